"""The machines of the isolation experiment by themselves: moments, one collective at a time, KV that never runs dry."""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from testbed.dualpath.isolation import (
    DRAIN,
    STAGGER,
    START,
    Burster,
    IsolationParameters,
    Phase,
    Pusher,
    moments,
)
from testbed.dualpath.local_messages import Exchange, Exchanged, Move, Moved, Pulled
from testbed.events.kv_events import PortForecast
from testbed.machine import Deliver, Effects, Emit, RemoteAddress, UnexpectedMessage

BURSTS = IsolationParameters(members=3, burst_packets=4, bursts=3, period=1_000_000)
SATURATING = IsolationParameters(load="saturating", members=3, burst_packets=4, bursts=2)
FORECAST = PortForecast("own", 10**9, 4154, 128, 1, 1, 1_050, False)


def burster(parameters: IsolationParameters = BURSTS, place: int = 0) -> Burster:
    return Burster(parameters, place, 0, moments(parameters, Random(1)), FORECAST)


def exchange(effects: Effects) -> Exchange:
    (effect,) = (effect for effect in effects if isinstance(effect, Deliver))
    assert effect.to == "collective0"
    assert isinstance(effect.message, Exchange)
    return effect.message


def test_moments_are_about_a_period_apart_and_never_before_the_start() -> None:
    found = moments(IsolationParameters(bursts=200, period=1_000_000), Random(3))
    assert found == sorted(found)
    assert found[0] > START
    gaps = {after - before for before, after in pairwise(found)}
    assert len(gaps) > 150
    assert all(500_000 <= gap <= 1_500_000 for gap in gaps)


def test_bursts_begin_when_due_one_at_a_time() -> None:
    machine = burster()
    due = moments(BURSTS, Random(1))
    assert machine.deadline() == START
    assert machine.wake(START) == [Emit(FORECAST)]
    assert machine.deadline() == due[0]
    first = exchange(machine.wake(due[0]))
    assert (first.sequence, first.operation, first.bytes_to_each) == (1, "dispatch", (0, 4 * 4096, 4 * 4096))
    assert machine.deadline() is None
    late = due[1] + 100
    machine.receive(late, Exchanged(1))
    assert machine.deadline() == late
    second = exchange(machine.wake(late))
    assert (second.sequence, second.operation) == (2, "combine")
    machine.receive(late + 1, Exchanged(2))
    assert machine.deadline() == due[2]
    assert (machine.ended, machine.remaining) == (2, 1)


def test_it_is_done_when_kv_has_had_time_to_land() -> None:
    machine = burster(SATURATING, place=2)
    begin = machine.deadline()
    assert begin == START + 5 * STAGGER
    for sequence in (1, 2):
        assert exchange(machine.wake(begin)).bytes_to_each == (0, 0, 0)
        machine.receive(begin, Exchanged(sequence))
    assert machine.phase is Phase.DRAINING
    assert machine.deadline() == begin + DRAIN
    assert not machine.done
    machine.wake(begin + DRAIN)
    assert machine.done
    assert machine.deadline() is None


def test_saturating_members_send_to_the_last_alone() -> None:
    machine = burster(SATURATING, place=0)
    assert exchange(machine.wake(START + STAGGER)).bytes_to_each == (0, 0, 4 * 4096)


def test_a_failure_ends_it() -> None:
    machine = burster()
    due = moments(BURSTS, Random(1))
    machine.wake(START)
    machine.wake(due[0])
    machine.receive(due[0] + 5, Exchanged(1, "pe1: retry_exceeded"))
    assert machine.failed
    assert machine.remaining == 0
    machine.wake(due[0] + 5 + DRAIN)
    assert machine.done


@pytest.mark.parametrize("message", [Exchanged(1), Moved(1)])
def test_a_burster_takes_only_the_end_of_what_it_began(message: Exchanged | Moved) -> None:
    machine = burster()
    with pytest.raises(UnexpectedMessage, match="WAITING"):
        machine.receive(START, message)
    assert machine.phase is Phase.WAITING


def pusher(until: int) -> Pusher:
    parameters = IsolationParameters(kv_message_packets=2, kv_messages=3)
    where = RemoteAddress(1 << 32, 7)
    return Pusher(parameters, peer="pe1.cnic0", remote=where, room=5 * 8192, region="hbm0", until=until)


def test_a_pusher_keeps_so_many_moves_going_until_the_end() -> None:
    machine = pusher(until=START + 100)
    assert machine.deadline() == START
    moves = [effect.message for effect in machine.wake(START) if isinstance(effect, Deliver)]
    assert [move.ticket for move in moves if isinstance(move, Move)] == [1, 2, 3]
    assert machine.deadline() is None
    (fourth,) = machine.receive(START + 50, Moved(1))
    assert isinstance(fourth, Deliver)
    assert isinstance(fourth.message, Move)
    assert machine.receive(START + 100, Moved(2)) == ()
    assert machine.receive(START + 60, Moved(3, "flushed")) == ()


def test_pushed_kv_stays_within_its_room() -> None:
    machine = pusher(until=10 * START)
    machine.wake(START)
    for ticket in range(1, 20):
        (effect,) = machine.receive(START, Moved(ticket))
        assert isinstance(effect, Deliver)
        assert isinstance(effect.message, Move)
        (piece,) = effect.message.pieces
        assert 0 <= piece.offset <= 5 * 8192 - piece.length
        assert effect.message.remote.address == (1 << 32) + piece.offset


def test_a_pusher_takes_nothing_else() -> None:
    with pytest.raises(UnexpectedMessage):
        pusher(until=1).receive(0, Pulled(1))
