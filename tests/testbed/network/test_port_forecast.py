"""Forecasts of one port against arithmetic: an empty port, a residual packet, a full window before a burst, a floor."""

from __future__ import annotations

import pytest

from testbed.network.lanes import LaneTable
from testbed.network.port_forecast import Bulk, Bursts, burst_times, low_share
from testbed.units import SECOND

RATE, FRAME, LAST = 100_000_000, 4154, 130
PACKET = FRAME * 8 * SECOND // RATE
TABLE = LaneTable()
MOMENTS = [number * 97_000_001 for number in range(1, 20)]
BULK = Bulk(lane=2, window_packets=128, ack_interval_packets=64, message_packets=64)


def times(burst: Bursts, bulk: Bulk | None, table: LaneTable = TABLE) -> list[int]:
    return burst_times(table, RATE, FRAME, burst, MOMENTS, bulk)


def test_alone_a_burst_takes_its_packets_and_one_more() -> None:
    """Store and forward: the last frames of both links add."""
    (first, *others) = times(Bursts(0, 48, LAST, 1), None)
    assert first == pytest.approx(49 * PACKET, abs=2 * LAST * 8 * 10)
    assert set(others) == {first}


def test_two_senders_share_the_port() -> None:
    (first, *_) = times(Bursts(0, 48, LAST, 2), None)
    assert first == pytest.approx((2 * 48 + 1) * PACKET, rel=0.01)


def test_a_lane_of_its_own_costs_a_burst_at_most_one_packet() -> None:
    alone = times(Bursts(0, 48, LAST, 1), None)
    beside = times(Bursts(0, 48, LAST, 1), BULK)
    assert all(0 <= one - other <= PACKET for one, other in zip(beside, alone, strict=True))
    assert any(one > other for one, other in zip(beside, alone, strict=True))


def test_in_the_same_lane_a_burst_waits_for_what_the_window_has_put_there() -> None:
    """Nearly a window stands at the port, and while the 48 packets come in, as many of the bulk come with them."""
    alone = times(Bursts(0, 48, LAST, 1), None)
    behind = times(Bursts(0, 48, LAST, 1), BULK._replace(lane=0, ack_interval_packets=1))
    waits = [(one - other) / PACKET for one, other in zip(behind, alone, strict=True)][5:]
    assert waits == pytest.approx([127 + 47] * 14, abs=2)
    # Acknowledgements that come in lumps leave less at the port, down to half of the window here.
    lumped = times(Bursts(0, 48, LAST, 1), BULK._replace(lane=0))
    waits = [(one - other) / PACKET for one, other in zip(lumped, alone, strict=True)][5:]
    assert all(64 <= wait <= 127 + 48 for wait in waits)


def test_the_wrong_way_round_a_burst_lives_on_the_floor() -> None:
    """The bulk in the high table and the burst in the low one: a packet for 240 of the bulk."""
    (first,) = burst_times(TABLE, RATE, FRAME, Bursts(2, 4, LAST, 1), [SECOND], BULK._replace(lane=0))
    assert first > 4 * 230 * PACKET


@pytest.mark.parametrize(
    ("frames", "percent"),
    [({0: FRAME, 2: FRAME}, 0.105), ({0: FRAME, 1: FRAME, 2: FRAME, 3: FRAME}, 0.042)],
)
def test_the_floor_is_the_design_notes(frames: dict[int, int], percent: float) -> None:
    """Platform.md §3.1, from another implementation of the arbiter."""
    assert 100 * low_share(TABLE, 2, frames) == pytest.approx(percent, abs=0.001)


def test_without_a_limit_there_is_no_floor() -> None:
    assert low_share(LaneTable(high_limit=255), 2, {0: FRAME, 2: FRAME}) == 0
