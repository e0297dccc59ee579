"""What a port carried beside its forecast: what counts, and from when to when."""

from __future__ import annotations

import pytest

from testbed.events.log import Record
from testbed.experiment.isolation_figures import NAMES, IsolationFigures, isolation_figures, isolation_words
from testbed.metrics.fold import Folding
from testbed.metrics.isolation import IsolationFold, IsolationState, floor, kept, low_packets
from tests.testbed.metrics.isolation_stories import FRAME, RATE, isolation_run, pushed, saturated_run
from tests.testbed.metrics.stories import Story


def folded(records: list[Record]) -> IsolationState:
    found = Folding({"isolation": IsolationFold()}).take_all(records).result("isolation")
    assert isinstance(found, IsolationState)
    return found


def figures(*runs: list[Record]) -> IsolationFigures:
    made = isolation_figures([folded(run) for run in runs])
    assert made is not None
    return made


def test_only_collectives_that_end_at_the_port_are_timed() -> None:
    found = figures(isolation_run())
    assert (found.kv, found.bursts_us.n, found.bursts_us.worst) == ("own", 100, 6_980)
    assert (found.forecast_p50_us, found.forecast_p99_us) == (16_000, 20_000)
    assert found.p99_over_forecast == pytest.approx(6.96 / 20, rel=0.01)


def test_kv_is_held_against_what_collectives_leave() -> None:
    """In a second the port carries 3,009 frames; 1,000 are the other member's, 1,800 are KV."""
    state = folded(isolation_run())
    frames = RATE / 8 / FRAME
    assert kept(state) == pytest.approx(1800 / (frames - 1000), rel=1e-6)
    assert floor(state) is None
    assert low_packets(state) == 1800


def test_a_floor_is_counted_while_collectives_hold_the_port() -> None:
    """Nine packets between the second collective and the last; eight of them in 2.4 s after the first."""
    state = folded(saturated_run())
    assert low_packets(state) == 9
    assert floor(state) == pytest.approx(8 * FRAME * 8 / (RATE * 2.4), rel=1e-6)
    assert kept(state) is None
    found = figures(saturated_run())
    assert found.floor_over_forecast == pytest.approx(8 * FRAME * 8 / (RATE * 2.4) / 0.001, rel=1e-6)


def test_without_a_forecast_nothing_is_said() -> None:
    records = Story().at(1, "de0", pushed(5, 0)).records()
    assert folded(records) == IsolationState()
    assert isolation_figures([folded(records)]) is None


def test_repeats_are_pooled_and_words_name_both_sides() -> None:
    found = figures(isolation_run(), isolation_run())
    assert found.bursts_us.n == 200
    words = dict(isolation_words(found))
    assert set(words) == {"bursts", "KV"}
    assert "the exact arbiter foretells p50 16,000, p99 20,000 us" in words["bursts"]
    assert "KV's floor" in dict(isolation_words(figures(saturated_run())))


def test_every_figure_has_a_name() -> None:
    assert {name.split(".")[1] for name in NAMES} == set(IsolationFigures.__struct_fields__) - {"kv"}
