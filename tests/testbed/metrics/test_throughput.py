from __future__ import annotations

import pytest

from testbed.events import schema
from testbed.metrics.fold import Folding
from testbed.metrics.requests import ExchangeFold
from testbed.metrics.throughput import Throughput, ThroughputFold, served
from testbed.units import SECOND
from tests.testbed.metrics.stories import Story, ask


def rates(story: Story, window: int = SECOND) -> Throughput:
    found: Throughput = Folding({"t": ThroughputFold(window)}).take_all(story.records()).result("t")
    return found


def test_fifty_requests_a_second_have_no_spread_however_close_they_come() -> None:
    # Pairs 0.1 ms apart: by gaps this is 10,000 requests a second, by windows it is 50 (fault 16).
    story = Story()
    for k in range(0, 250, 2):
        t = k * 20
        story.at(t, "client0", schema.RequestSent(f"a{k}", 0, 0, 1, 1))
        story.at(t + 0.1, "client0", schema.RequestSent(f"b{k}", 0, 0, 1, 1))
    found = rates(story)
    assert (found.whole, found.sent_per_s.mean, found.sent_per_s.spread, found.sent_per_s.most) == (4, 50, 0, 50)


def test_windows_that_are_only_partly_inside_are_not_rated() -> None:
    story = Story()
    for t in (900, 1200, 1500, 1800, 2100):
        story.at(t, "client0", schema.TokenReceived("q", 0, 4))
    found = rates(story)
    assert [window.tokens for window in found.windows] == [4, 12, 4]
    assert (found.whole, found.tokens_per_s.mean) == (1, 12)
    assert found.begin == 0


def test_quiet_windows_count_as_zero() -> None:
    story = Story()
    for t in (0, 3500):
        story.at(t, "client0", schema.RequestFinished("q", 1, "stop"))
    found = rates(story)
    assert [window.finished for window in found.windows] == [1, 0, 0, 1]
    assert found.finished_per_s.mean == pytest.approx(1 / 3, abs=1e-6)
    assert rates(Story()).sent_per_s.mean is None


def test_a_window_of_another_length_gives_rates_per_second_still() -> None:
    story = Story()
    for k in range(41):
        story.at(k * 25, "client0", schema.TokenReceived("q", k))
    assert rates(story, SECOND // 4).tokens_per_s.mean == 40


def test_overall_counts_only_what_completed_over_the_whole_span() -> None:
    story = ask(ask(Story(), "a", 0, [500, 1000]), "b", 1000, [1500, 2000, 4000])
    story.at(100, "client0", schema.RequestSent("bad", 0, 0, 7, 7))
    story.at(200, "client0", schema.TokenReceived("bad", 0), schema.RequestFailed("bad", "x"))
    exchanges = Folding({"x": ExchangeFold()}).take_all(story.records()).result("x")
    found = served(exchanges)
    assert (found.span_s, found.requests_per_s, found.tokens_per_s) == (4.0, 0.5, 1.25)
    assert found.total_tokens_per_s == (5 + 20) / 4
    assert served(()).tokens_per_s is None
