"""An egress port: exact times, order by lane, bounded queues."""

from __future__ import annotations

import pytest

from testbed.network.lanes import LaneTable
from testbed.network.port import EgressPort
from testbed.units import GBIT_PER_S, MICROSECOND


def drain(port: EgressPort[str]) -> list[tuple[int, str]]:
    left = []
    while (moment := port.deadline()) is not None:
        left += [(moment, item) for item in port.wake(moment)]
    return left


def test_frames_leave_one_after_another_at_the_rate() -> None:
    port: EgressPort[str] = EgressPort(GBIT_PER_S)
    for name in "abc":
        assert port.offer(100, 0, 1000, name)
    assert port.backlog(0) == 2
    assert drain(port) == [(8_100, "a"), (16_100, "b"), (24_100, "c")]
    assert port.deadline() is None
    port.offer(30_000, 0, 125, "d")
    assert drain(port) == [(31_000, "d")]
    assert (port.sent_bytes, port.sent_frames, port.drops) == ([3125], [4], [0])


def test_a_frame_on_the_link_is_not_overtaken_but_those_behind_it_are() -> None:
    port: EgressPort[str] = EgressPort(GBIT_PER_S, LaneTable())
    for number in range(3):
        port.offer(0, 2, 1250, f"low{number}")
    port.offer(5 * MICROSECOND, 0, 1250, "high")
    assert [item for _, item in drain(port)] == ["low0", "high", "low1", "low2"]


def test_waking_late_loses_no_time_on_the_link() -> None:
    port: EgressPort[str] = EgressPort(GBIT_PER_S)
    for name in "abc":
        port.offer(0, 0, 125, name)
    assert port.wake(999) == []
    assert port.wake(2_500) == ["a", "b"]
    assert port.deadline() == 3_000


def test_a_full_lane_drops_and_counts() -> None:
    port: EgressPort[str] = EgressPort(GBIT_PER_S, LaneTable(), queue_frames=2)
    assert [port.offer(0, 1, 1000, str(number)) for number in range(4)] == [True, True, True, False]
    assert port.offer(0, 0, 1000, "other lane")
    assert port.drops == [0, 1, 0, 0]
    assert len(drain(port)) == 4


def test_a_rate_must_be_one() -> None:
    with pytest.raises(ValueError, match="a port's rate is 0 bit/s"):
        EgressPort(0)


def test_backlogged_lanes_share_as_the_arbiter_says() -> None:
    port: EgressPort[int] = EgressPort(GBIT_PER_S, LaneTable(vlarb_high="0:64,1:128,3:192"))
    sent = {0: 0, 1: 0, 3: 0}
    for lane in sent:
        for _ in range(10):
            port.offer(0, lane, 4154, lane)
    for _ in range(6000):
        moment = port.deadline()
        assert moment is not None
        for lane in port.wake(moment):
            sent[lane] += 1
            port.offer(moment, lane, 4154, lane)
    total = sum(sent.values())
    assert [100 * sent[lane] / total for lane in (0, 1, 3)] == pytest.approx([16.7, 33.3, 50.0], abs=0.2)
