"""A queue pair as a whole: its states, its promises over a good and over a rough wire, and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.machine import CompareSwap, CompletionStatus, FetchAdd, Read, Received, Send, Verb, Write
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
from testbed.network.roce import PSN_MASK, Aeth, Flow, Opcode, Packet, Reth, Syndrome, source_port

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


# --- repair ----------------------------------------------------------------------------------------------------------


def test_one_nak_a_gap_and_go_back(make_pair: MakePair) -> None:
    pair = make_pair(path_mtu=256)
    lost = iter([False, False, True])
    pair.damage = lambda to, datagram: [] if to == "b" and next(lost, False) else [(0, datagram)]
    data = Random(2).randbytes(256 * 10)
    pair.post(Write(1, "b", remote=pair.remote(), data=data))
    pair.run()
    a, b = pair.ends["a"].counters, pair.ends["b"].counters
    assert pair.memory["b"].view[: len(data)] == data
    assert (b.naks_sent, b.sequence_errors, a.naks_received, a.resent, a.timeouts) == (1, 7, 1, 8, 0)


def test_a_lost_response_is_asked_again_from_where_it_is_missing(make_pair: MakePair) -> None:
    pair = make_pair(path_mtu=256)
    lost = iter([False, False, False, True])
    pair.damage = lambda to, datagram: [] if to == "a" and next(lost, False) else [(0, datagram)]
    data = Random(3).randbytes(256 * 10)
    pair.memory["b"].view[: len(data)] = data
    pair.post(Read(1, "b", remote=pair.remote(), length=len(data)))
    pair.run()
    assert pair.completions["a"][0].data == data
    flow = Flow("10.61.0.1", "10.61.0.2", source_port(0x11))
    asked = [flow.parse(datagram) for to, datagram in pair.log if to == "b"]
    assert [(packet.psn, packet.reth) for packet in asked] == [
        (100, Reth(pair.remote().address, pair.remote().key, 2560)),
        (103, Reth(pair.remote(768).address, pair.remote().key, 1792)),
    ]
    assert pair.ends["a"].counters.timeouts == 0


def test_an_atomic_is_replayed_not_repeated(make_pair: MakePair) -> None:
    pair = make_pair()
    lost = iter([True, True])
    pair.damage = lambda to, datagram: [] if to == "a" and next(lost, False) else [(0, datagram)]
    pair.post(FetchAdd(1, "b", remote=pair.remote(), addend=5))
    pair.post(CompareSwap(2, "b", remote=pair.remote(), expected=5, desired=6))
    pair.run()
    assert [(c.status, c.original) for c in pair.completions["a"]] == [(SUCCESS, 0), (SUCCESS, 5)]
    assert pair.memory["b"].load(0) == 6
    assert pair.ends["b"].counters.duplicates == 2


def test_an_acknowledgement_that_overtakes_a_lost_read_asks_again_at_once(make_pair: MakePair) -> None:
    pair = make_pair()
    lost = iter([True])
    pair.damage = lambda to, datagram: [] if to == "a" and next(lost, False) else [(0, datagram)]
    pair.post(Read(1, "b", remote=pair.remote(), length=8))
    pair.post(Write(2, "b", remote=pair.remote(8), data=b"12345678"))
    pair.run()
    assert statuses(pair) == [(1, SUCCESS), (2, SUCCESS)]
    assert pair.ends["a"].counters.timeouts == 0


def test_a_gap_that_closes_within_a_batch_is_told_all_the_same(make_pair: MakePair) -> None:
    """What came behind the gap was dropped; a NIC that takes packets in batches must not forget that."""
    pair = make_pair(path_mtu=256)
    pair.post(Write(1, "b", remote=pair.remote(), data=bytes(256 * 3)))
    first, second, third = pair.ends["a"].packets_to_send(0)
    for datagram in (first, third, second):
        pair.ends["b"].receive_packet(0, datagram)
    (nak,) = pair.ends["b"].packets_to_send(0)
    packet = Flow("10.61.0.2", "10.61.0.1", source_port(0x22)).parse(nak)
    assert (packet.psn, packet.aeth) == (102, Aeth(Syndrome.SEQUENCE_ERROR, 0))
    pair.ends["a"].receive_packet(0, nak)
    pair.run()
    assert statuses(pair) == [(1, SUCCESS)]
    assert pair.ends["a"].counters.timeouts == 0


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 1 << 32),
    loss=st.sampled_from((0, 0.01, 0.05)),
    duplication=st.sampled_from((0, 0.2)),
    reordering=st.sampled_from((0, 0.2)),
    corruption=st.sampled_from((0, 0.03)),
)
def test_a_rough_wire_changes_nothing(
    make_pair: MakePair,
    rough_wire: Callable[..., Any],
    seed: int,
    loss: float,
    duplication: float,
    reordering: float,
    corruption: float,
) -> None:
    random = Random(seed)
    pair = make_pair(path_mtu=256, receives=80, psn=(0xFFFFF0, 0xFFFFFF))
    pair.damage = rough_wire(seed, loss, duplication, reordering, corruption)
    model = _Model()
    pair.memory["b"].view[:] = model.memory
    verbs = [model.draw(random, ticket, pair.remote) for ticket in range(40)]
    for verb in verbs:
        pair.post(verb)
    pair.run()
    assert statuses(pair) == [(verb.ticket, SUCCESS) for verb in verbs]
    assert [c.original for c in pair.completions["a"]] == [model.originals.get(verb.ticket, 0) for verb in verbs]
    assert {c.ticket: c.data for c in pair.completions["a"] if c.data} == model.reads
    assert [message.data for message in pair.received["b"]] == model.messages
    assert pair.memory["b"].view == model.memory
    a = pair.ends["a"].counters
    assert (a.resent > 0) <= (loss + reordering + corruption + duplication > 0)
    # Bounded repair: each timeout sends at most a window again.
    assert a.resent <= 128 * (a.timeouts + a.naks_received + 40 * 20)


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=st.integers(0, 1 << 32), loss=st.sampled_from((0.3, 0.6, 0.9)))
def test_a_wire_that_is_too_rough_ends_cleanly(
    make_pair: MakePair, rough_wire: Callable[..., Any], seed: int, loss: float
) -> None:
    """Either all succeed, or one gives up and those behind it are flushed; what was answered before is right."""
    random = Random(seed)
    pair = make_pair(path_mtu=256, receives=80)
    pair.damage = rough_wire(seed, loss, 0.2, 0.2, 0.1)
    model = _Model()
    pair.memory["b"].view[:] = model.memory
    verbs = [model.draw(random, ticket, pair.remote) for ticket in range(40)]
    for verb in verbs:
        pair.post(verb)
    pair.run()
    done = pair.completions["a"]
    assert [completion.ticket for completion in done] == list(range(40))
    good = sum(completion.status is SUCCESS for completion in done)
    ending = [completion.status for completion in done[good:]]
    assert ending in ([], [CompletionStatus.RETRY_EXCEEDED, *[FLUSHED] * (39 - good)])
    for completion in done[:good]:
        assert completion.original == model.originals.get(completion.ticket, 0)
        assert completion.data == model.reads.get(completion.ticket, b"")
    assert [message.data for message in pair.received["b"]] == model.messages[: len(pair.received["b"])]


class _Model:
    """What the verbs do to memory if nothing ever goes wrong.

    READs look only at bytes that no WRITE behind them changes: without a fence they may see those (IBA 10.8).
    """

    def __init__(self) -> None:
        self.memory = bytearray(1 << 18)
        self.memory[:50_000] = Random(0).randbytes(50_000)
        self.reads: dict[int, bytes] = {}
        self.originals: dict[int, int] = {}
        self.messages: list[bytes] = []
        self._fresh = False

    def draw(self, random: Random, ticket: int, remote: Callable[[int], Any]) -> Verb:
        size = random.choice((0, 1, 255, 256, 257, 700, 1024, 5000))
        match random.randrange(5):
            case 0:
                offset, data = random.randrange(100_000, 190_000), random.randbytes(size)
                self.memory[offset : offset + size] = data
                return Write(ticket, "b", remote=remote(offset), data=data)
            case 1:
                offset = random.randrange(0, 40_000)
                if size:
                    self.reads[ticket] = bytes(self.memory[offset : offset + size])
                return Read(ticket, "b", remote=remote(offset), length=size)
            case 2:
                self.messages.append(random.randbytes(size))
                return Send(ticket, "b", data=self.messages[-1])
            case 3:
                offset, expected, desired = 200_000 + 8 * random.randrange(3), random.randrange(3), random.randrange(3)
                self.originals[ticket] = before = int.from_bytes(self.memory[offset : offset + 8], "little")
                if before == expected:
                    self.memory[offset : offset + 8] = desired.to_bytes(8, "little")
                return CompareSwap(ticket, "b", remote=remote(offset), expected=expected, desired=desired)
            case _:
                addend = random.randrange(1 << 64)
                self.originals[ticket] = before = int.from_bytes(self.memory[210_000:210_008], "little")
                self.memory[210_000:210_008] = ((before + addend) % (1 << 64)).to_bytes(8, "little")
                return FetchAdd(ticket, "b", remote=remote(210_000), addend=addend)


# --- the end -----------------------------------------------------------------------------------------------------


def test_a_silent_peer_costs_a_known_time(make_pair: MakePair) -> None:
    pair = make_pair(retransmission_timeout=1_000_000, retry_limit=3)
    pair.damage = lambda _to, _datagram: []
    for ticket in (1, 2, 3):
        pair.post(Write(ticket, "b", remote=pair.remote(), data=bytes(8)))
    pair.run()
    assert statuses(pair) == [(1, CompletionStatus.RETRY_EXCEEDED), (2, FLUSHED), (3, FLUSHED)]
    assert pair.now == 4 * 1_000_000
    assert pair.ends["a"].counters.timeouts == 4
    assert pair.ends["a"].state is State.ERROR


def test_progress_starts_the_retries_again(make_pair: MakePair) -> None:
    pair = make_pair(path_mtu=256, retransmission_timeout=1_000_000, retry_limit=1)
    turn = 0

    def every_second_round(to: str, datagram: bytes) -> list[tuple[int, bytes]]:
        nonlocal turn
        turn += to == "b"
        return [] if to == "b" and turn % 2 else [(0, datagram)]

    pair.damage = every_second_round
    for ticket in range(6):
        pair.post(Read(ticket, "b", remote=pair.remote(), length=8))
        pair.run()
    assert statuses(pair) == [(ticket, SUCCESS) for ticket in range(6)]
    assert pair.ends["a"].counters.timeouts == 6


def test_no_receive_pauses_as_asked_and_then_goes_on(make_pair: MakePair) -> None:
    pair = make_pair(rnr_timer=10)  # 0.32 ms
    pair.post(Send(1, "b", data=b"first"))
    pair.post(Write(2, "b", remote=pair.remote(), data=b"behind"))
    posted = False

    def post_late(_to: str, datagram: bytes) -> list[tuple[int, bytes]]:
        nonlocal posted
        if pair.now > 700_000 and not posted:
            posted = True
            pair.ends["b"].post_receive(5)
        return [(0, datagram)]

    pair.damage = post_late
    pair.run()
    assert statuses(pair) == [(1, SUCCESS), (2, SUCCESS)]
    assert pair.received["b"] == [Received("a", b"first")]
    assert pair.ends["a"].counters.rnr_naks >= 2
    assert pair.now > 3 * 320_000


def test_no_receive_for_ever_costs_a_known_time(make_pair: MakePair) -> None:
    pair = make_pair(rnr_timer=1, rnr_retry_limit=2)
    pair.post(Send(1, "b", data=b"first"))
    pair.post(Send(2, "b", data=b"second"))
    pair.run()
    assert statuses(pair) == [(1, CompletionStatus.RNR_RETRY_EXCEEDED), (2, FLUSHED)]
    # Three tries, two pauses of 10 µs between them, each try a round trip of 2 µs.
    assert pair.now == 2 * 10_000 + 3 * 2_000
    assert pair.ends["b"].state is State.READY_TO_SEND


def test_a_message_beyond_its_receive_is_an_invalid_request(make_pair: MakePair) -> None:
    pair = make_pair(path_mtu=256)
    pair.ends["b"].post_receive(300)
    pair.post(Send(1, "b", data=bytes(301)))
    pair.run()
    assert statuses(pair) == [(1, CompletionStatus.REMOTE_INVALID_REQUEST)]
    assert pair.received["b"] == []
    assert pair.ends["b"].state is State.ERROR


def test_what_comes_before_a_refused_request_is_answered(make_pair: MakePair) -> None:
    pair = make_pair(path_mtu=256)
    pair.post(Read(1, "b", remote=pair.remote(), length=2000))
    pair.post(FetchAdd(2, "b", remote=pair.remote(), addend=1))
    pair.post(Write(3, "b", remote=pair.remote(1 << 20), data=b"outside"))
    pair.post(Write(4, "b", remote=pair.remote(), data=b"never"))
    pair.run()
    assert statuses(pair) == [
        (1, SUCCESS), (2, SUCCESS), (3, CompletionStatus.REMOTE_ACCESS_ERROR), (4, FLUSHED),
    ]  # fmt: skip
    assert pair.memory["b"].load(0) == 1


def test_a_local_fault_waits_for_its_turn(make_pair: MakePair) -> None:
    pair = make_pair()
    pair.post(FetchAdd(1, "b", remote=pair.remote(), addend=1))
    pair.ends["a"].post(Read(2, "b", remote=pair.remote(), length=9), memoryview(bytearray(8)))
    pair.post(FetchAdd(3, "b", remote=pair.remote(), addend=1))
    pair.run()
    assert statuses(pair) == [(1, SUCCESS), (2, CompletionStatus.LOCAL_PROTECTION_ERROR), (3, FLUSHED)]
    assert pair.memory["b"].load(0) == 1


def test_damage_and_foreign_packets_are_counted_and_dropped(make_pair: MakePair) -> None:
    pair = make_pair()
    end = pair.ends["b"]
    flow = Flow("10.61.0.1", "10.61.0.2", source_port(0x11))
    place = Reth(pair.remote().address, pair.remote().key, 4)
    good = flow.build(Packet(Opcode.WRITE_ONLY, 0x22, 100, True, place, payload=b"good"))
    end.receive_packet(0, good[:-1] + bytes([good[-1] ^ 1]))
    end.receive_packet(0, b"short")
    end.receive_packet(0, flow.build(Packet(Opcode.ACKNOWLEDGE, 0x23, 100, aeth=Aeth(31, 0))))
    assert (end.counters.icrc_errors, end.counters.malformed, end.counters.received) == (1, 2, 1)
    assert not end.has_packets(0)
    end.receive_packet(0, good)
    assert pair.memory["b"].view[:4] == b"good"


def test_counters_by_name(make_pair: MakePair) -> None:
    pair = make_pair()
    pair.post(FetchAdd(1, "b", remote=pair.remote(), addend=1))
    pair.run()
    counted = pair.ends["a"].counters.as_dict()
    assert {name: value for name, value in counted.items() if value} == {"sent": 1, "received": 1}
