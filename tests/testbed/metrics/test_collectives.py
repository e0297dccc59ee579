from __future__ import annotations

from testbed.events.kv_events import CollectiveFinished
from testbed.metrics.collectives import FEWEST_PACKETS, CollectiveFold, CollectiveState
from testbed.metrics.fold import Folding
from tests.testbed.metrics.stories import Story


def test_small_bursts_are_counted_apart_and_are_in_no_time() -> None:
    story = Story()
    for packets, duration in ((FEWEST_PACKETS, 100), (FEWEST_PACKETS - 1, 9_000), (40, 300)):
        story.at(1, "pe0", CollectiveFinished("dispatch", 0, 1, 10 * packets, packets, duration))
    story.at(2, "pe0", CollectiveFinished("all_gather", 0, 1, 7, 20, 5))
    found: CollectiveState = Folding({"c": CollectiveFold()}).take_all(story.records()).result("c")
    dispatch = found.operations["dispatch"]
    assert (dispatch.times.n, dispatch.times.total, dispatch.times.worst) == (2, 400, 300)
    assert (dispatch.small, dispatch.bytes) == (1, 10 * (16 + 15 + 40))
    assert found.operations["all_gather"].times.n == 1
