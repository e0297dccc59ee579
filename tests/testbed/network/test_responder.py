"""The responding half alone: every place within a message against every opcode, and what each refusal leaves alone."""

from __future__ import annotations

from itertools import product

import pytest

from testbed.network.connection import Connection, ConnectionSettings, Counters
from testbed.network.memory_region import Access, MemoryRegion, PlainMemory, RegionTable
from testbed.network.responder import MESSAGES, Progress, Responder
from testbed.network.roce import RESPONSES, Aeth, AtomicEth, Opcode, Packet, Reth, Syndrome

MTU, KEY, BASE, START = 256, 9, 0x4000, 200
REQUESTS = [opcode for opcode in Opcode if opcode not in RESPONSES]
FIRST = {Progress.BETWEEN: None, Progress.WRITING: Opcode.WRITE_FIRST, Progress.RECEIVING: Opcode.SEND_FIRST}


class Bench:
    def __init__(self, access: Access = Access.REMOTE, receives: int = 4, depth: int = 4) -> None:
        self.memory = PlainMemory(4096)
        self.counters = Counters()
        self.responder = Responder(
            Connection("b", 1, 2, "10.61.0.1", "10.61.0.2", 100, START),
            ConnectionSettings(path_mtu=MTU, fetch_depth=depth, ack_interval_packets=64),
            RegionTable([MemoryRegion(KEY, BASE, 4096, access, self.memory)]),
            self.counters,
        )
        for _ in range(receives):
            self.responder.post_receive(1024)
        self.psn = START

    def request(self, opcode: Opcode, **changes: object) -> Packet:
        """A request that is right by itself: a WRITE of 700 bytes, a SEND, a READ of 600, an atomic."""
        first = opcode in (Opcode.WRITE_FIRST, Opcode.SEND_FIRST, Opcode.WRITE_MIDDLE, Opcode.SEND_MIDDLE)
        last = opcode in (Opcode.WRITE_LAST, Opcode.SEND_LAST)
        fields: dict[str, object] = {
            "opcode": opcode,
            "queue_pair": 1,
            "psn": self.psn,
            "ack_request": True,
            "payload": bytes([opcode]) * (MTU if first else 188 if last else 0),
        }
        if opcode in (Opcode.WRITE_FIRST, Opcode.READ_REQUEST, Opcode.WRITE_ONLY):
            length = {Opcode.WRITE_FIRST: 700, Opcode.READ_REQUEST: 600}.get(opcode, 40)
            fields["reth"] = Reth(BASE, KEY, length)
        if opcode in (Opcode.WRITE_ONLY, Opcode.SEND_ONLY):
            fields["payload"] = bytes([opcode]) * 40
        if opcode in (Opcode.COMPARE_SWAP, Opcode.FETCH_ADD):
            fields["atomic"] = AtomicEth(BASE, KEY, 3, 0)
        return Packet(**{**fields, **changes})  # type: ignore[arg-type]

    def take(self, packet: Packet) -> None:
        self.responder.receive(packet)
        self.psn = packet.psn + (3 if packet.opcode is Opcode.READ_REQUEST else 1)

    def answers(self) -> list[Packet]:
        answers = []
        while (packet := self.responder.next_packet()) is not None:
            answers.append(packet)
        return answers

    def syndromes(self) -> list[int]:
        return [packet.aeth.syndrome for packet in self.answers() if packet.aeth is not None]

    def until(self, progress: Progress, opcode: Opcode) -> None:
        """Into `progress`; far enough for a LAST to fit."""
        first = FIRST[progress]
        if first is not None:
            self.take(self.request(first))
        if progress is Progress.WRITING and opcode is Opcode.WRITE_LAST:
            self.take(self.request(Opcode.WRITE_MIDDLE))
        self.answers()


@pytest.mark.parametrize(("progress", "opcode"), list(product(Progress, REQUESTS)))
def test_every_place_in_a_message_and_every_request(progress: Progress, opcode: Opcode) -> None:
    bench = Bench()
    bench.until(progress, opcode)
    before = bytes(bench.memory.view)
    bench.take(bench.request(opcode))
    if (progress, opcode) in MESSAGES:
        assert set(bench.syndromes()) == {Syndrome.ACK}
        assert not bench.responder.failed
    else:
        assert bench.syndromes() == [Syndrome.INVALID_REQUEST]
        assert bench.responder.failed
        assert bench.memory.view == before
        bench.take(bench.request(Opcode.WRITE_ONLY))
        assert (bench.answers(), bytes(bench.memory.view)) == ([], before)


def test_the_table_ends_every_message_it_begins() -> None:
    for (progress, opcode), after in MESSAGES.items():
        assert (after is Progress.BETWEEN) == opcode.name.endswith(("LAST", "ONLY", "REQUEST", "SWAP", "ADD"))
        assert (progress is Progress.BETWEEN) == (not opcode.name.endswith(("MIDDLE", "LAST")))


@pytest.mark.parametrize(
    ("before", "opcode", "changes"),
    [
        ([], Opcode.WRITE_FIRST, {"payload": bytes(MTU - 1)}),
        ([], Opcode.WRITE_FIRST, {"payload": bytes(MTU + 1)}),
        ([], Opcode.WRITE_ONLY, {"payload": bytes(39)}),
        ([], Opcode.WRITE_ONLY, {"payload": bytes(41)}),
        ([], Opcode.WRITE_ONLY, {"payload": bytes(MTU + 4), "reth": Reth(BASE, KEY, MTU + 4)}),
        ([], Opcode.WRITE_FIRST, {"reth": Reth(BASE, KEY, MTU - 1)}),
        ([Opcode.WRITE_FIRST], Opcode.WRITE_MIDDLE, {"payload": bytes(MTU - 4)}),
        ([Opcode.WRITE_FIRST], Opcode.WRITE_LAST, {}),
        ([Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE], Opcode.WRITE_MIDDLE, {}),
        ([Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE], Opcode.WRITE_LAST, {"payload": bytes(189)}),
        ([Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE], Opcode.WRITE_LAST, {"payload": b""}),
        ([Opcode.SEND_FIRST], Opcode.SEND_LAST, {"payload": b""}),
        ([Opcode.SEND_FIRST], Opcode.SEND_MIDDLE, {"payload": bytes(8)}),
        ([], Opcode.SEND_ONLY, {"payload": bytes(MTU + 1)}),
        ([], Opcode.COMPARE_SWAP, {"atomic": AtomicEth(BASE + 4, KEY, 1, 0)}),
        ([], Opcode.READ_REQUEST, {"reth": Reth(BASE, KEY, (1 << 31) + 1)}),
    ],
)
def test_invalid_requests(before: list[Opcode], opcode: Opcode, changes: dict[str, object]) -> None:
    bench = Bench()
    for earlier in before:
        bench.take(bench.request(earlier))
    bench.answers()
    image = bytes(bench.memory.view)
    bench.take(bench.request(opcode, **changes))
    assert bench.syndromes() == [Syndrome.INVALID_REQUEST]
    assert bench.memory.view == image


@pytest.mark.parametrize("opcode", [Opcode.WRITE_ONLY, Opcode.READ_REQUEST, Opcode.COMPARE_SWAP, Opcode.FETCH_ADD])
@pytest.mark.parametrize("access", [Access.LOCAL, Access.REMOTE_READ, Access.REMOTE_WRITE, Access.REMOTE_ATOMIC])
def test_rights(opcode: Opcode, access: Access) -> None:
    needed = {Opcode.WRITE_ONLY: Access.REMOTE_WRITE, Opcode.READ_REQUEST: Access.REMOTE_READ}
    bench = Bench(access)
    bench.take(bench.request(opcode))
    allowed = access is needed.get(opcode, Access.REMOTE_ATOMIC)
    assert set(bench.syndromes()) == {Syndrome.ACK if allowed else Syndrome.REMOTE_ACCESS_ERROR}
    assert any(bench.memory.view) is (allowed and opcode is not Opcode.READ_REQUEST)


def test_a_gap_is_told_once_until_it_closes() -> None:
    bench = Bench()
    ahead = bench.request(Opcode.WRITE_ONLY, psn=START + 2)
    for _ in range(3):
        bench.responder.receive(ahead)
    (nak,) = bench.answers()
    assert (nak.psn, nak.aeth) == (START, Aeth(Syndrome.SEQUENCE_ERROR, 0))
    bench.take(bench.request(Opcode.WRITE_ONLY, psn=START))
    bench.responder.receive(ahead)
    assert [(p.psn, p.aeth) for p in bench.answers()] == [(START + 1, Aeth(Syndrome.SEQUENCE_ERROR, 1))]
    assert (bench.counters.sequence_errors, bench.counters.naks_sent) == (4, 2)


def test_no_sequence_nak_behind_a_not_ready_one() -> None:
    bench = Bench(receives=0)
    bench.responder.receive(bench.request(Opcode.SEND_ONLY, psn=START))
    bench.responder.receive(bench.request(Opcode.WRITE_ONLY, psn=START + 1))
    assert bench.syndromes() == [Syndrome.RNR_NAK | 12]
    bench.responder.post_receive(40)
    bench.responder.receive(bench.request(Opcode.SEND_ONLY, psn=START))
    assert bench.syndromes() == [Syndrome.ACK]
    assert (len(bench.responder.received), bench.responder.receives) == (1, 0)


def test_repeated_requests() -> None:
    bench = Bench()
    requests = [Opcode.WRITE_ONLY, Opcode.FETCH_ADD, Opcode.READ_REQUEST, Opcode.SEND_ONLY]
    sent = []
    for opcode in requests:
        sent.append(bench.request(opcode))
        bench.take(sent[-1])
    first = bench.answers()
    image = bytes(bench.memory.view)
    for packet in sent:
        bench.responder.receive(packet)
    again = bench.answers()
    assert bench.memory.view == image, "a repeated atomic or WRITE acted twice"
    assert len(bench.responder.received) == 1
    written = int.from_bytes(bytes([Opcode.WRITE_ONLY]) * 8, "little")
    assert [p.original for p in first if p.opcode is Opcode.ATOMIC_ACKNOWLEDGE] == [written]
    assert [p.original for p in again if p.opcode is Opcode.ATOMIC_ACKNOWLEDGE] == [written]
    reads = [Opcode.READ_RESPONSE_FIRST, Opcode.READ_RESPONSE_MIDDLE, Opcode.READ_RESPONSE_LAST]
    assert [p.opcode for p in again] == [Opcode.ATOMIC_ACKNOWLEDGE, *reads, Opcode.ACKNOWLEDGE]
    assert again[-1].psn == START + 5


def test_a_read_asked_again_starts_over_where_it_is_asked_for() -> None:
    bench = Bench()
    bench.take(bench.request(Opcode.READ_REQUEST))
    assert bench.responder.next_packet() is not None
    assert bench.responder.next_packet() is not None
    again = bench.request(Opcode.READ_REQUEST, psn=START + 1, reth=Reth(BASE + MTU, KEY, 600 - MTU))
    bench.responder.receive(again)
    assert [(p.opcode, p.psn, len(p.payload)) for p in bench.answers()] == [
        (Opcode.READ_RESPONSE_FIRST, START + 1, MTU), (Opcode.READ_RESPONSE_LAST, START + 2, 600 - 2 * MTU),
    ]  # fmt: skip


def test_a_read_that_is_still_to_come_is_not_doubled() -> None:
    bench = Bench()
    bench.take(bench.request(Opcode.READ_REQUEST))
    bench.responder.receive(bench.request(Opcode.READ_REQUEST, psn=START))
    assert len(bench.answers()) == 3


def test_an_answer_given_again_goes_before_later_ones() -> None:
    bench = Bench()
    bench.take(bench.request(Opcode.FETCH_ADD))
    bench.answers()
    bench.take(bench.request(Opcode.READ_REQUEST))
    bench.responder.receive(bench.request(Opcode.FETCH_ADD, psn=START))
    assert [p.psn for p in bench.answers()] == [START, START + 1, START + 2, START + 3]


def test_more_fetches_than_agreed_are_refused() -> None:
    bench = Bench(depth=2)
    for _ in range(5):
        bench.take(bench.request(Opcode.FETCH_ADD))
    assert bench.responder.failed
    assert bench.memory.load(0) == 4 * 3


def test_repeated_reads_that_make_no_sense_are_dropped() -> None:
    bench = Bench()
    bench.take(bench.request(Opcode.WRITE_ONLY))
    bench.answers()
    beyond = bench.request(Opcode.READ_REQUEST, psn=START)
    bench.responder.receive(beyond)
    bench.responder.receive(bench.request(Opcode.READ_REQUEST, psn=START, reth=Reth(0, KEY, 8)))
    assert (bench.answers(), bench.counters.malformed) == ([], 2)
    assert not bench.responder.failed
