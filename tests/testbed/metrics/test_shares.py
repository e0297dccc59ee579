from __future__ import annotations

from testbed.events import schema
from testbed.metrics.fold import Folding
from testbed.metrics.shares import LaneShare, ShareFold
from testbed.units import MILLISECOND
from tests.testbed.metrics.stories import Story


def reading(
    port: str, lane: int, carried: int, rate: int = 0, drops: int = 0, interval_ms: int = 100
) -> schema.LinkMeasured:
    return schema.LinkMeasured(port, lane, interval_ms * MILLISECOND, carried, carried // 100, drops, rate, 400)


def test_a_lanes_share_is_of_its_own_ports_bytes() -> None:
    story = Story()
    for t in (100, 200):
        story.at(t, "bench", reading("p0", 0, 300), reading("p0", 1, 100, drops=1), reading("p0", -1, 999))
    story.at(300, "bench", reading("p1", 0, 50))
    found: tuple[LaneShare, ...] = Folding({"s": ShareFold()}).take_all(story.records()).result("s")
    assert [(one.port, one.lane, one.bytes, one.share, one.drops) for one in found] == [
        ("p0", -1, 1998, None, 0),
        ("p0", 0, 600, 0.75, 0),
        ("p0", 1, 200, 0.25, 2),
        ("p1", 0, 50, 1.0, 0),
    ]


def test_the_mean_rate_weighs_readings_by_their_length() -> None:
    story = Story().at(1, "bench", reading("p", 0, 1, rate=1000), reading("p", 0, 1, rate=4000, interval_ms=300))
    (one,) = Folding({"s": ShareFold()}).take_all(story.records()).result("s")
    assert (one.mean_bits_per_s, one.peak_bits_per_s) == (3250, 4000)


def test_a_port_that_carried_nothing_has_no_shares() -> None:
    (one,) = Folding({"s": ShareFold()}).take_all(Story().at(1, "bench", reading("p", 2, 0)).records()).result("s")
    assert (one.share, one.mean_bits_per_s) == (None, 0)


def test_a_long_run_at_the_highest_rate_still_fits_a_snapshot() -> None:
    story = Story()
    for t in range(20):
        story.at(t, "bench", reading("p", 0, 10**15, rate=1_600 * 10**9, interval_ms=3_600_000))
    folding = Folding({"s": ShareFold()}).take_all(story.records())
    folding.restore(folding.snapshot())
    assert folding.result("s")[0].mean_bits_per_s == 1_600 * 10**9
