"""The arbiter against the exact shares of the design notes (platform.md §3.1), and its rules one by one."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.network.arbiter import UNLIMITED, Arbiter, find_entry, limit_units, next_turn
from testbed.network.lanes import LaneTable

PAPER = LaneTable()


def shares(table: LaneTable, sizes: dict[int, int], packets: int = 60_000) -> dict[int, float]:
    """Percent of the bytes by lane while every lane of `sizes` always has a packet of that size."""
    arbiter = Arbiter(table)
    sent: Counter[int] = Counter()
    for _ in range(packets):
        lane = arbiter.choose(sizes)
        sent[lane] += sizes[lane]
    total = sum(sent.values())
    return {lane: 100 * sent[lane] / total for lane in sizes}


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        ({0: 4154, 1: 4154, 3: 4154}, {0: 33.33, 1: 33.33, 3: 33.33}),
        ({0: 4154, 1: 4154, 2: 4154, 3: 4154}, {0: 33.32, 1: 33.32, 2: 0.042, 3: 33.32}),
        ({0: 4154, 2: 4154}, {0: 99.895, 2: 0.105}),
        ({0: 1082, 1: 4154, 3: 4154}, {0: 34.25, 1: 32.87, 3: 32.87}),
        ({0: 106, 1: 4154}, {0: 44.95, 1: 55.05}),
        ({1: 1082, 2: 1082}, {1: 99.973, 2: 0.027}),
    ],
)
def test_shares_under_the_papers_tables(sizes: dict[int, int], expected: dict[int, float]) -> None:
    packets = 237_600 if 2 in sizes else 400_000 if 106 in sizes.values() else 60_000
    measured = shares(PAPER, sizes, packets)
    for lane, share in expected.items():
        assert measured[lane] == pytest.approx(share, abs=0.005 if lane == 2 else 0.02)


def test_unequal_weights() -> None:
    table = LaneTable(vlarb_high="0:64,1:128,3:192")
    measured = shares(table, {0: 4154, 1: 4154, 3: 4154}, 237_600)
    assert measured == pytest.approx({0: 16.74, 1: 33.33, 3: 49.93}, abs=0.02)


@pytest.mark.parametrize(
    ("limit", "low_share"), [(0, 12.5), (1, 12.5), (6, 3.5713), (60, 0.4098), (240, 0.105), (255, 0.0)]
)
def test_the_high_limit(limit: int, low_share: float) -> None:
    measured = shares(LaneTable(high_limit=limit), {0: 4154, 2: 4154}, 200_000)
    assert measured[2] == pytest.approx(low_share, abs=0.003)


def test_one_low_packet_after_the_limit() -> None:
    """240 × 4,096 bytes are 15,360 units; a 4,154-byte packet has 65, so 237 high packets spend the limit."""
    table = LaneTable(vlarb_high="0:192", vlarb_low="1:64", sl2vl="0,1")
    arbiter = Arbiter(table)
    order = [arbiter.choose({0: 4154, 1: 4154}) for _ in range(3 * 238)]
    assert order == ([0] * 237 + [1]) * 3


def test_a_packet_may_overrun_its_weight_and_is_rounded_up() -> None:
    """65 units a packet: an entry of 192 sends three (195 units), one of 64 sends one, one of 66 two."""
    table = LaneTable(vlarb_high="0:192,1:64,2:66", vlarb_low="0:1", high_limit=255, sl2vl="0,1,2")
    arbiter = Arbiter(table)
    order = [arbiter.choose({0: 4154, 1: 4154, 2: 4154}) for _ in range(12)]
    assert order == [0, 0, 0, 1, 2, 2] * 2


def test_low_is_served_at_once_while_high_is_empty() -> None:
    arbiter = Arbiter(PAPER)
    assert arbiter.choose({2: 4154}) == 2
    assert arbiter.choose({0: 4154, 2: 4154}) == 0


def test_a_low_packet_that_comes_after_the_limit_was_spent_goes_next() -> None:
    arbiter = Arbiter(LaneTable(high_limit=1))
    for _ in range(5):
        assert arbiter.choose({0: 4154}) == 0
    assert arbiter.choose({0: 4154, 2: 4154}) in (0, 2)
    served = {arbiter.choose({0: 4154, 2: 4154}) for _ in range(8)}
    assert 2 in served


def test_a_lane_may_stand_in_a_table_more_than_once() -> None:
    table = LaneTable(vlarb_high="0:64,1:64,0:64", vlarb_low="0:0", high_limit=255, max_vls=2, sl2vl="0,1")
    arbiter = Arbiter(table)
    order = [arbiter.choose({0: 4096, 1: 4096}) for _ in range(6)]
    assert order == [0, 1, 0, 0, 1, 0]


def test_nothing_ready_and_nothing_with_weight() -> None:
    arbiter = Arbiter(LaneTable(max_vls=2, vlarb_high="0:1", vlarb_low="0:1", sl2vl="0"))
    before = arbiter.turn
    assert arbiter.choose({}) == -1
    assert arbiter.choose({1: 100}) == -1
    assert arbiter.turn == before
    assert find_entry((), (), 0, 0, 1) == (-1, 0)


TABLES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 255)), min_size=1, max_size=8)


@settings(max_examples=100, deadline=None)
@given(high=TABLES, low=TABLES, limit=st.integers(0, 255), seed=st.integers(0, 1 << 30))
def test_it_serves_what_is_ready_and_rests_only_if_it_must(
    high: list[tuple[int, int]], low: list[tuple[int, int]], limit: int, seed: int
) -> None:
    random = Random(seed)
    columns = [(tuple(lane for lane, _ in table), tuple(weight for _, weight in table)) for table in (high, low)]
    weighted = {lane for lane, weight in (*high, *low) if weight}
    only_low = {lane for lane, weight in low if weight} - {lane for lane, weight in high if weight}
    arbiter_turn = Arbiter(PAPER).turn._replace(high_left=limit_units(limit))
    since_low = 0
    for _ in range(300):
        ready = random.randrange(16)
        sizes = [random.randrange(64, 4300) for _ in range(4)]
        lane, arbiter_turn = next_turn(columns[0], columns[1], limit, arbiter_turn, ready, sizes)
        may = {number for number in weighted if ready >> number & 1}
        assert (lane in may) if may else (lane == -1)
        if lane < 0:
            continue
        waiting_low = any(ready >> number & 1 for number in only_low)
        since_low = 0 if lane in only_low or not waiting_low else since_low + sizes[lane]
        if limit != UNLIMITED and len(only_low) == 1 and {lane for lane, weight in low if weight} == only_low:
            # A waiting low lane waits for the limit and one packet more, never longer.
            assert since_low <= limit * 4096 + 2 * 4300
