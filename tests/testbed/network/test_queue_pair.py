"""A queue pair as a whole: its states, and its promises over a good wire."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest

from testbed.machine import CompletionStatus, FetchAdd, Read, Received, Send, Write
from testbed.network.connection import Connection
from testbed.network.memory_region import RegionTable
from testbed.network.queue_pair import (
    RECEIVING,
    TRANSITIONS,
    CannotPost,
    IllegalMove,
    Move,
    QueuePair,
    State,
)
from testbed.network.roce import PSN_MASK, Flow, Opcode, Packet, source_port

MakePair = Callable[..., Any]
PATHS: dict[State, tuple[Move, ...]] = {
    State.RESET: (),
    State.INIT: (Move.INITIALISE,),
    State.READY_TO_RECEIVE: (Move.INITIALISE, Move.ENABLE_RECEIVE),
    State.READY_TO_SEND: (Move.INITIALISE, Move.ENABLE_RECEIVE, Move.ENABLE_SEND),
    State.ERROR: (Move.INITIALISE, Move.ENABLE_RECEIVE, Move.ENABLE_SEND, Move.FAIL),
}
SUCCESS, FLUSHED = CompletionStatus.SUCCESS, CompletionStatus.FLUSHED
CONNECTION = Connection("b", 0x11, 0x22, "10.61.0.1", "10.61.0.2", 100, 200)


def in_state(state: State) -> QueuePair:
    pair = QueuePair(CONNECTION, RegionTable())
    for move in PATHS[state]:
        pair.change(move)
    return pair


def statuses(pair: Any, name: str = "a") -> list[tuple[int, CompletionStatus]]:
    return [(completion.ticket, completion.status) for completion in pair.completions[name]]


def opcodes(pair: Any, to: str) -> list[Opcode]:
    return [Opcode(datagram[0]) for receiver, datagram in pair.log if receiver == to]


# --- states --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("state", "move"), list(product(State, Move)))
def test_every_state_and_every_move(state: State, move: Move) -> None:
    pair = in_state(state)
    if (state, move) in TRANSITIONS:
        pair.change(move)
        assert pair.state is TRANSITIONS[state, move]
    else:
        with pytest.raises(IllegalMove, match=f"'{state.value}', which has no move '{move.value}'"):
            pair.change(move)
        assert pair.state is state


@pytest.mark.parametrize("state", State)
def test_posting_in_every_state(state: State) -> None:
    pair = in_state(state)
    verb = Send(1, "b", data=b"")
    if state is State.READY_TO_SEND:
        pair.post(verb)
        assert (pair.outstanding, pair.poll_completions()) == (1, [])
    elif state is State.ERROR:
        pair.post(verb)
        assert [completion.status for completion in pair.poll_completions()] == [FLUSHED]
    else:
        with pytest.raises(CannotPost, match=f"cannot take a Send in state '{state.value}'"):
            pair.post(verb)
        assert (pair.outstanding, pair.poll_completions()) == (0, [])
    if state is State.RESET:
        with pytest.raises(CannotPost, match="cannot take a receive"):
            pair.post_receive(10)
    else:
        pair.post_receive(10)


@pytest.mark.parametrize("state", State)
def test_packets_in_every_state(state: State) -> None:
    pair = in_state(state)
    if state is not State.RESET:
        pair.post_receive(10)
    flow = Flow("10.61.0.2", "10.61.0.1", source_port(0x22))
    pair.receive_packet(0, flow.build(Packet(Opcode.SEND_ONLY, 0x11, 200, True, payload=b"hello")))
    if state in RECEIVING:
        assert pair.poll_received() == [Received("b", b"hello")]
        assert len(pair.packets_to_send(0)) == 1
    else:
        assert (pair.poll_received(), pair.packets_to_send(0), pair.counters.received) == ([], [], 0)


def test_the_page_shows_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs/models/queue_pair.md").read_text()
    for (state, move), after in TRANSITIONS.items():
        assert f"| {state.value} | {move.value} | {after.value} |" in page
    rows = [line for line in page.splitlines() if line.count("|") == 4]
    assert sum(any(f"| {move.value} |" in row for move in Move) for row in rows) == len(TRANSITIONS)


def test_fail_flushes_and_reset_forgets(make_pair: MakePair) -> None:
    pair = make_pair()
    end = pair.ends["a"]
    for ticket in (1, 2):
        pair.post(Write(ticket, "b", remote=pair.remote(), data=bytes(100)))
    end.packets_to_send(0, 1)
    end.change(Move.FAIL)
    assert [(c.ticket, c.status) for c in end.poll_completions()] == [(1, FLUSHED), (2, FLUSHED)]
    assert (end.packets_to_send(0), end.deadline()) == ([], None)
    end.change(Move.RESET)
    end.connect()
    pair.post(Write(3, "b", remote=pair.remote(), data=bytes(100)))
    pair.run()
    assert statuses(pair) == [(3, SUCCESS)]


# --- sizes, numbers, acknowledgements --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 3, 255, 256, 257, 511, 512, 513, 4096, 65536])
@pytest.mark.parametrize("path_mtu", [256, 4096])
def test_messages_of_every_size(make_pair: MakePair, size: int, path_mtu: int) -> None:
    pair = make_pair(path_mtu=path_mtu, receives=1)
    data = Random(size).randbytes(size)
    pair.post(Write(1, "b", remote=pair.remote(8), data=data))
    pair.post(Read(2, "b", remote=pair.remote(8), length=size))
    pair.post(Send(3, "b", data=data))
    pair.run()
    assert statuses(pair) == [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]
    assert pair.memory["b"].view[8 : 8 + size] == data
    assert pair.completions["a"][1].data == data
    assert pair.received["b"] == [Received("a", data)]
    packets = max(1, -(-size // path_mtu))
    assert pair.ends["a"].counters.sent == 2 * packets + 1


def test_opcodes_of_a_segmented_message(make_pair: MakePair) -> None:
    pair = make_pair(path_mtu=256, receives=2)
    pair.post(Write(1, "b", remote=pair.remote(), data=bytes(700)))
    pair.post(Send(2, "b", data=bytes(512)))
    pair.post(Read(3, "b", remote=pair.remote(), length=600))
    pair.post(Write(4, "b", remote=pair.remote(), data=bytes(256)))
    pair.run()
    assert opcodes(pair, "b") == [
        Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST, Opcode.SEND_FIRST, Opcode.SEND_LAST,
        Opcode.READ_REQUEST, Opcode.WRITE_ONLY,
    ]  # fmt: skip
    flow = Flow("10.61.0.1", "10.61.0.2", source_port(0x11))
    sent = [flow.parse(datagram) for to, datagram in pair.log if to == "b"]
    # The READ takes three numbers, one for each packet of its response.
    assert [packet.psn for packet in sent] == [100, 101, 102, 103, 104, 105, 108]
    assert [packet.ack_request for packet in sent] == [False, False, True, False, True, False, True]
    assert [packet.reth and packet.reth.length for packet in sent] == [700, None, None, None, None, 600, 256]
    answers = [Flow("10.61.0.2", "10.61.0.1", source_port(0x22)).parse(d) for to, d in pair.log if to == "a"]
    assert [(packet.opcode, packet.psn) for packet in answers] == [
        (Opcode.READ_RESPONSE_FIRST, 105), (Opcode.READ_RESPONSE_MIDDLE, 106), (Opcode.READ_RESPONSE_LAST, 107),
        (Opcode.ACKNOWLEDGE, 108),
    ]  # fmt: skip
    # One ACK behind the response covers all: those of the first WRITE and of the SEND were coalesced into it.
    assert [packet.aeth and packet.aeth.msn for packet in answers] == [4, None, 4, 4]


@pytest.mark.parametrize("start", [PSN_MASK, PSN_MASK - 1, PSN_MASK - 100, 0])
def test_numbers_wrap(make_pair: MakePair, rough_wire: Callable[..., Any], start: int) -> None:
    pair = make_pair(path_mtu=256, psn=(start, PSN_MASK - start), receives=3)
    pair.damage = rough_wire(start, 0.05, 0, 0, 0)
    data = Random(start).randbytes(200 * 256)
    pair.post(Write(1, "b", remote=pair.remote(), data=data))
    pair.post(Read(2, "b", remote=pair.remote(), length=len(data)))
    pair.post(FetchAdd(3, "b", remote=pair.remote(len(data)), addend=9))
    pair.post(Send(4, "b", data=data))
    pair.run()
    assert statuses(pair) == [(n, SUCCESS) for n in (1, 2, 3, 4)]
    assert pair.completions["a"][1].data == data == pair.received["b"][0].data
    assert pair.memory["b"].load(len(data)) == 9


def test_window_and_acknowledgements_of_a_long_message(make_pair: MakePair) -> None:
    pair = make_pair(path_mtu=256)
    pair.post(Write(1, "b", remote=pair.remote(), data=bytes(256 * 300)))
    first = pair.ends["a"].packets_to_send(0)
    assert len(first) == 128
    assert not pair.ends["a"].has_packets(0)
    asking = [place for place, datagram in enumerate(first) if datagram[8] & 0x80]
    assert asking == [63, 127]
    for datagram in first:
        pair.ends["b"].receive_packet(0, datagram)
    # Both requests are answered by one ACK, since nothing was sent in between.
    answers = pair.ends["b"].packets_to_send(0)
    assert len(answers) == 1
    pair.ends["a"].receive_packet(0, answers[0])
    assert len(pair.ends["a"].packets_to_send(0)) == 128


def test_posting_sends_nothing_and_one_call_drains(make_pair: MakePair) -> None:
    pair = make_pair()
    for ticket in range(100):
        pair.post(Write(ticket, "b", remote=pair.remote(8 * ticket), data=bytes(8)))
    assert len(pair.ends["a"].packets_to_send(0, 7)) == 7
    assert len(pair.ends["a"].packets_to_send(0)) == 93


def test_reads_and_atomics_in_flight_are_limited(make_pair: MakePair) -> None:
    pair = make_pair(fetch_depth=3)
    for ticket in range(10):
        pair.post(FetchAdd(ticket, "b", remote=pair.remote(), addend=1))
    assert len(pair.ends["a"].packets_to_send(0)) == 3
    assert not pair.ends["a"].has_packets(0)
    pair.run()  # the three are lost here; they come again
    assert [completion.original for completion in pair.completions["a"]] == list(range(10))


def test_a_sink_takes_what_a_read_brings(make_pair: MakePair) -> None:
    pair = make_pair(path_mtu=256)
    pair.memory["b"].view[:1000] = Random(1).randbytes(1000)
    sink = memoryview(bytearray(1000))
    pair.ends["a"].post(Read(1, "b", remote=pair.remote(), length=1000), sink)
    pair.run()
    assert pair.completions["a"][0].data == b""
    assert sink == pair.memory["b"].view[:1000]
