"""A connection that failed comes back: RESET and up again, with fresh numbers, by both ends and never by one."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest

from testbed.machine import CompareSwap, CompletionStatus, FetchAdd, Read, Received, RemoteAddress, Send, Verb, Write
from testbed.network.connection import RENEWAL_STRIDE, Connection
from testbed.network.memory_region import RegionTable
from testbed.network.queue_pair import TRANSITIONS, Move, QueuePair, State
from testbed.network.roce import PSN_MASK

MakePair = Callable[..., Any]
SUCCESS, FLUSHED = CompletionStatus.SUCCESS, CompletionStatus.FLUSHED
PATHS: dict[State, tuple[Move, ...]] = {
    State.RESET: (),
    State.INIT: (Move.INITIALISE,),
    State.READY_TO_RECEIVE: (Move.INITIALISE, Move.ENABLE_RECEIVE),
    State.READY_TO_SEND: (Move.INITIALISE, Move.ENABLE_RECEIVE, Move.ENABLE_SEND),
    State.ERROR: (Move.INITIALISE, Move.FAIL),
}


def spoil(pair: Any) -> None:
    """Fails the connection at both ends: a READ with a wrong key."""
    place = pair.remote()
    pair.post(Read(0, "b", remote=RemoteAddress(place.address, place.key ^ 1), length=8))
    pair.run()
    assert {end.state for end in pair.ends.values()} == {State.ERROR}


def renew(pair: Any, turns: int = 1) -> None:
    for end in pair.ends.values():
        end.reconnect(turns)
    pair.run()
    pair.completions["a"].clear()


def all_verbs(pair: Any) -> list[Verb]:
    place = pair.remote(64)
    return [
        Write(1, "b", remote=place, data=bytes(range(200)) * 9),
        Read(2, "b", remote=place, length=1800),
        FetchAdd(3, "b", remote=pair.remote(), addend=5),
        CompareSwap(4, "b", remote=pair.remote(), expected=5, desired=6),
        Send(5, "b", data=b"again"),
    ]


@pytest.mark.parametrize("state", State)
def test_every_state_leads_back_to_ready_to_send(state: State) -> None:
    pair = QueuePair(Connection("b", 0x11, 0x22, "10.61.0.1", "10.61.0.2", 100, 200), RegionTable())
    for move in PATHS[state]:
        pair.change(move)
    pair.reconnect()
    assert pair.state is State.READY_TO_SEND
    assert (pair.connection.initial_psn, pair.connection.peer_psn) == (100 + RENEWAL_STRIDE, 200 + RENEWAL_STRIDE)
    assert all((each, Move.RESET) in TRANSITIONS for each in State)


def test_a_failed_connection_carries_all_verbs_again(make_pair: MakePair) -> None:
    pair = make_pair(path_mtu=256)
    spoil(pair)
    for turn in range(1, 6):
        renew(pair)
        pair.ends["b"].post_receive(100)
        pair.memory["b"].store(0, 0)
        for verb in all_verbs(pair):
            pair.post(verb)
        pair.run()
        assert [(done.ticket, done.status) for done in pair.completions["a"]] == [(n, SUCCESS) for n in range(1, 6)]
        assert pair.memory["b"].load(0) == 6
        assert pair.received["b"] == [Received("a", b"again")] * turn
        spoil(pair)


def test_verbs_in_flight_are_flushed_and_not_forgotten(make_pair: MakePair) -> None:
    pair = make_pair()
    for ticket in range(3):
        pair.post(Write(ticket, "b", remote=pair.remote(), data=b"x"))
    pair.ends["a"].packets_to_send(0)
    pair.ends["a"].reconnect()
    done = pair.ends["a"].poll_completions()
    assert [(each.ticket, each.status) for each in done] == [(ticket, FLUSHED) for ticket in range(3)]
    assert pair.ends["a"].deadline() is None


@pytest.mark.parametrize("alone", ["a", "b"])
@pytest.mark.parametrize("failed", [True, False])
def test_one_end_alone_never_succeeds_and_changes_nothing(make_pair: MakePair, alone: str, failed: bool) -> None:
    pair = make_pair(receives=2)
    pair.post(Write(1, "b", remote=pair.remote(), data=bytes(50_000)))
    pair.run()
    if failed:
        spoil(pair)
    pair.completions["a"].clear()
    pair.ends[alone].reconnect()
    before = bytes(pair.memory["b"].view)
    for verb in (Write(2, "b", remote=pair.remote(), data=b"lost"), FetchAdd(3, "b", remote=pair.remote(), addend=1)):
        pair.post(verb)
    pair.run()
    assert {done.status for done in pair.completions["a"]} <= {CompletionStatus.RETRY_EXCEEDED, FLUSHED}
    assert len(pair.completions["a"]) == 2
    assert bytes(pair.memory["b"].view) == before


def test_packets_of_the_connection_before_do_nothing(make_pair: MakePair) -> None:
    pair = make_pair(path_mtu=256)
    for ticket in range(4):
        pair.post(Write(ticket, "b", remote=pair.remote(), data=b"stale" * 100))
    stale = pair.ends["a"].packets_to_send(0)
    renew(pair)
    for datagram in stale:
        pair.ends["b"].receive_packet(pair.now, datagram)
    pair.run()
    assert not any(pair.memory["b"].view)
    pair.post(Write(9, "b", remote=pair.remote(), data=b"fresh"))
    pair.run()
    assert [(done.ticket, done.status) for done in pair.completions["a"]] == [(9, SUCCESS)]
    assert pair.memory["b"].view[:6] == b"fresh\0"


def test_numbers_do_not_come_again_soon() -> None:
    connection = Connection("b", 1, 2, "10.61.0.1", "10.61.0.2", PSN_MASK, 0)
    starts = {connection.renewed(turn).initial_psn for turn in range(100_000)}
    assert len(starts) == 100_000
    assert connection.renewed(3) == connection.renewed(1).renewed(2)


def test_many_connections_leave_nothing(make_pair: MakePair, soak: bool) -> None:
    """Known fault D6: connecting and closing 5,000 times (200 without --soak) leaves no object behind."""
    pair = make_pair(path_mtu=256)

    def cycles(count: int) -> None:
        for _ in range(count):
            renew(pair)
            pair.post(Write(1, "b", remote=pair.remote(), data=bytes(1000)))
            pair.run()
            assert [done.status for done in pair.completions["a"]] == [SUCCESS]
            pair.log.clear()
            spoil(pair)

    cycles(20)
    gc.collect()
    before = len(gc.get_objects())
    cycles(5000 if soak else 200)
    gc.collect()
    assert len(gc.get_objects()) - before < 50
