"""A queue pair over rough wires: what is lost, doubled, out of order or damaged is repaired, once and within bounds."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.machine import CompareSwap, CompletionStatus, FetchAdd, Read, Send, Verb, Write
from testbed.network.roce import Aeth, Flow, Reth, Syndrome, source_port

MakePair = Callable[..., Any]
SUCCESS, FLUSHED = CompletionStatus.SUCCESS, CompletionStatus.FLUSHED


def statuses(pair: Any, name: str = "a") -> list[tuple[int, CompletionStatus]]:
    return [(completion.ticket, completion.status) for completion in pair.completions[name]]


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
