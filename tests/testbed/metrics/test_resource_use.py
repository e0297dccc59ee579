from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.events.fidelity_events import LinkMeasured
from testbed.events.kv_events import TransferFinished
from testbed.events.log import Record
from testbed.events.run_events import RunStarted
from testbed.metrics.fold import Folding
from testbed.metrics.resource_use import BIN, Crossing, UseFold, UseState, busy, carried, link_busy, max_over_avg
from testbed.units import MILLISECOND as MS
from testbed.units import SECOND
from tests.testbed.metrics.stories import Story


def of(records: list[Record]) -> UseState:
    found: UseState = Folding({"u": UseFold()}).take_all(records).result("u")
    return found


def moved(story: Story, end_ms: float, began_ms: float, size: int, *crossed: str) -> Story:
    began = round(began_ms * MS)
    return story.at(end_ms, "n", TransferFinished("t", "pe1-2", -1, "a", "b", size, 1, began, crossed))


def crossing(**bins: int) -> Crossing:
    return Crossing(sum(bins.values()), 0, {int(number[1:]): size for number, size in bins.items()})


@given(
    st.lists(st.tuples(st.integers(0, 80), st.integers(0, 90), st.integers(0, 10**12)), max_size=20),
)
def test_every_byte_is_in_a_bin_between_its_transfers_begin_and_end(moves: list[tuple[int, int, int]]) -> None:
    story = Story()
    for end, lasting, size in moves:
        moved(story, end, end - lasting, size, "pe0.snic0.snic_rx")
    found = of(story.records()).resources.get("pe0.snic0.snic_rx", Crossing())
    assert sum(found.bins.values()) == found.bytes == sum(size for _, _, size in moves)
    assert all(size >= 0 for size in found.bins.values())
    if moves:
        assert min(end - lasting for end, lasting, _ in moves) * MS // BIN <= min(found.bins)
        assert max(found.bins) <= max(end for end, _, _ in moves) * MS // BIN


def test_a_transfer_that_queues_is_carried_after_the_one_before_it() -> None:
    story = Story()
    moved(story, 30, 0, 300, "x")
    moved(story, 60, 0, 300, "x")
    bins = of(story.records()).resources["x"].bins
    assert [bins.get(number, 0) for number in range(6)] == [100, 100, 100, 100, 100, 100]


def test_bytes_of_a_transfer_are_spread_in_proportion() -> None:
    bins = of(moved(Story(), 25, 5, 400, "x").records()).resources["x"].bins
    assert bins == {0: 100, 1: 200, 2: 100}


def test_the_span_is_of_storage_transfers_alone() -> None:
    story = moved(Story(), 5, 1, 10, "pe0.cnic0.cnic_read")
    assert of(story.records()).first is None
    moved(story, 20, 12, 10, "storage0.snic0.snic_tx", "pe0.snic0.snic_rx")
    moved(story, 40, 35, 10, "pe0.cnic0.wire")
    found = of(story.records())
    assert (found.first, found.last) == (12 * MS, 20 * MS)


def test_a_link_that_carries_its_rate_all_the_time_is_busy_to_one() -> None:
    story = Story()
    for end in range(100, 2001, 100):
        moved(story, end, end - 100, 100_000, "x")
    one = of(story.records()).resources["x"]
    assert busy(one, 8_000_000, 0, 2 * SECOND - 1) == pytest.approx(1.0, rel=1e-6)
    assert busy(one, 16_000_000, 0, 2 * SECOND - 1) == pytest.approx(0.5, rel=1e-6)
    assert busy(None, 8_000_000, 0, SECOND) == 0.0
    assert busy(one, 0, 0, SECOND) is None
    assert busy(one, 8, SECOND, SECOND) is None
    assert carried(one, SECOND, 2 * SECOND) == pytest.approx(1_000_000, rel=0.01)


def test_readings_of_an_emulation_are_in_true_time_and_weigh_by_their_overlap() -> None:
    story = Story().at(0, "bench", RunStarted("s", "wall", 10.0, 100, 1, 0))
    for t, rate in ((50, 400), (100, 200), (150, 0)):
        for lane in (-1, 3):
            story.at(t, "bench", LinkMeasured("pe0.snic0", lane, 500 * MS, 1, 1, 0, rate if lane < 0 else 999, 400))
    found = of(story.records())
    assert [(one.begin, one.end, one.bits_per_s) for one in found.links["pe0.snic0"]] == [
        (0, 50 * MS, 400),
        (50 * MS, 100 * MS, 200),
        (100 * MS, 150 * MS, 0),
    ]
    assert found.settings == {"pe0.snic0": 400}
    readings = found.links["pe0.snic0"]
    assert link_busy(readings, 400, 0, 100 * MS) == 0.75
    assert link_busy(readings, 400, 25 * MS, 75 * MS) == 0.75
    assert link_busy(readings, 400, 100 * MS, 150 * MS) == 0
    assert link_busy(readings, 400, SECOND, 2 * SECOND) is None
    assert link_busy([], 400, 0, SECOND) is None


def test_max_over_avg_is_the_mean_over_windows_in_which_something_was_carried() -> None:
    # Windows of two bins: (30, 10, 20) and nothing and (0, 0, 9) of three NICs.
    resources = {"a": crossing(b0=10, b1=20), "b": crossing(b1=10), "c": crossing(b0=20, b5=9)}
    ratio, windows = max_over_avg(resources, ["a", "b", "c"], 2 * BIN, 0, 10 * BIN)
    assert windows == 2
    assert ratio == pytest.approx((30 * 3 / 60 + 3) / 2)


def test_a_nic_that_carried_nothing_is_one_of_those_among_which_it_is_shared() -> None:
    assert max_over_avg({"a": crossing(b0=5)}, ["a", "idle"], BIN, 0, BIN) == (2.0, 1)
    assert max_over_avg({}, ["a", "idle"], BIN, 0, BIN) == (None, 0)
    assert max_over_avg({"a": crossing(b9=5)}, ["a"], BIN, 0, 3 * BIN) == (None, 0)


@given(st.lists(st.lists(st.integers(0, 100), min_size=3, max_size=3), min_size=1, max_size=10))
def test_max_over_avg_lies_between_even_and_one_for_all(rows: list[list[int]]) -> None:
    resources = {
        f"n{place}": Crossing(0, 0, {number: row[place] for number, row in enumerate(rows)}) for place in range(3)
    }
    ratio, windows = max_over_avg(resources, sorted(resources), BIN, 0, 100 * BIN)
    assert windows == sum(any(row) for row in rows)
    assert ratio is None or 1 <= ratio <= 3 + 1e-9
