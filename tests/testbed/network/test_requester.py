"""The requesting half alone: what it makes of responses that come late, twice, damaged in sense or never."""

from __future__ import annotations

import pytest

from testbed.machine import CompareSwap, CompletionStatus, FetchAdd, Read, RemoteAddress, Send, Verb, Write
from testbed.network.connection import RNR_DELAYS, Connection, ConnectionSettings, Counters
from testbed.network.requester import Requester
from testbed.network.roce import Aeth, Opcode, Packet, Syndrome

PLACE = RemoteAddress(0x1000, 7)
MTU, START = 256, 0xFFFFFE
SUCCESS = CompletionStatus.SUCCESS


class Bench:
    def __init__(self, **settings: int) -> None:
        self.counters = Counters()
        self.requester = Requester(
            Connection("b", 1, 2, "10.61.0.1", "10.61.0.2", START, 0),
            ConnectionSettings(path_mtu=MTU, retransmission_timeout=1000, **settings),
            self.counters,
        )

    def send(self, *verbs: Verb, now: int = 0) -> list[int]:
        """Posts and drains; the numbers of the packets that went out, from 0."""
        for verb in verbs:
            self.requester.post(verb)
        numbers = []
        while (packet := self.requester.next_packet(now)) is not None:
            numbers.append((packet.psn - START) % (1 << 24))
        return numbers

    def answer(self, opcode: Opcode, number: int, now: int = 1, **fields: object) -> None:
        self.requester.receive(
            now, Packet(opcode, 1, (START + number) % (1 << 24), **fields)  # type: ignore[arg-type]
        )

    def ack(self, number: int, syndrome: int = Syndrome.ACK, now: int = 1) -> None:
        self.answer(Opcode.ACKNOWLEDGE, number, now, aeth=Aeth(syndrome, 0))

    def done(self) -> list[tuple[int, CompletionStatus]]:
        return [(completion.ticket, completion.status) for completion in self.requester.completions]


def write(ticket: int, size: int = 8) -> Write:
    return Write(ticket, "b", remote=PLACE, data=bytes(size))


def test_one_ack_answers_all_before_it() -> None:
    bench = Bench()
    assert bench.send(write(1), write(2, 700), write(3)) == [0, 1, 2, 3, 4]
    bench.ack(2)
    assert bench.done() == [(1, SUCCESS)]
    bench.ack(4)
    assert bench.done() == [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]
    assert bench.requester.deadline() is None


@pytest.mark.parametrize("number", [-5, -1, 2, 3, 100])
def test_answers_for_numbers_not_in_flight_are_ignored(number: int) -> None:
    bench = Bench()
    bench.send(write(1), Read(2, "b", remote=PLACE, length=8))
    bench.ack(number)
    bench.answer(Opcode.READ_RESPONSE_ONLY, number, aeth=Aeth(31, 0), payload=bytes(8))
    assert bench.done() == []
    assert bench.send() == []


@pytest.mark.parametrize(
    ("opcode", "fields"),
    [
        (Opcode.READ_RESPONSE_ONLY, {"payload": bytes(7), "aeth": Aeth(31, 0)}),
        (Opcode.READ_RESPONSE_ONLY, {"payload": bytes(9), "aeth": Aeth(31, 0)}),
        (Opcode.READ_RESPONSE_FIRST, {"payload": bytes(8), "aeth": Aeth(31, 0)}),
        (Opcode.READ_RESPONSE_MIDDLE, {"payload": bytes(8)}),
        (Opcode.ATOMIC_ACKNOWLEDGE, {"original": 5, "aeth": Aeth(31, 0)}),
    ],
)
def test_answers_that_do_not_fit_a_read_are_dropped_and_counted(opcode: Opcode, fields: dict[str, object]) -> None:
    bench = Bench()
    bench.send(Read(1, "b", remote=PLACE, length=8))
    bench.answer(opcode, 0, **fields)
    assert (bench.done(), bench.counters.malformed) == ([], 1)
    bench.answer(Opcode.READ_RESPONSE_ONLY, 0, payload=b"12345678", aeth=Aeth(31, 0))
    assert bench.requester.completions[0].data == b"12345678"


def test_a_read_response_does_not_answer_an_atomic() -> None:
    bench = Bench()
    bench.send(FetchAdd(1, "b", remote=PLACE, addend=1))
    bench.answer(Opcode.READ_RESPONSE_ONLY, 0, payload=bytes(8), aeth=Aeth(31, 0))
    assert (bench.done(), bench.counters.malformed) == ([], 1)


def test_an_unknown_syndrome_is_counted() -> None:
    bench = Bench()
    bench.send(write(1))
    bench.ack(0, 0x7F)
    assert (bench.done(), bench.counters.malformed) == ([], 1)


def test_late_answers_after_going_back_still_count() -> None:
    """The timer was too short: the answers of the first try arrive while the second is under way."""
    bench = Bench()
    assert bench.send(write(1), write(2), write(3)) == [0, 1, 2]
    bench.requester.wake(1000)
    assert bench.requester.next_packet(1000) is not None
    bench.ack(2, now=1001)
    assert bench.done() == [(1, SUCCESS), (2, SUCCESS), (3, SUCCESS)]
    assert bench.send(now=1002) == []
    assert bench.requester.deadline() is None


def test_late_read_responses_shorten_the_second_try() -> None:
    bench = Bench()
    bench.send(Read(1, "b", remote=PLACE, length=1000))
    bench.requester.wake(1000)
    for number in (0, 1):
        opcode = Opcode.READ_RESPONSE_MIDDLE if number else Opcode.READ_RESPONSE_FIRST
        bench.answer(opcode, number, 1001, payload=bytes([number]) * MTU)
    packet = bench.requester.next_packet(1002)
    assert packet is not None
    assert packet.reth is not None
    assert (packet.reth.address, packet.reth.length) == (PLACE.address + 2 * MTU, 1000 - 2 * MTU)


@pytest.mark.parametrize("period", [1, 300, 999])
def test_steady_posting_to_a_silent_peer_does_not_put_the_timeout_off(period: int) -> None:
    """The timer runs from the oldest unanswered packet: later ones do not start it anew (IBA 9.7.6.1.3)."""
    bench = Bench(window_packets=1 << 14, retry_limit=2)
    requester, timeouts, posts = bench.requester, [], 0
    for now in range(4 * 1000):
        if (due := requester.deadline()) is not None and due <= now:
            requester.wake(now)
            timeouts.append(now)
        if requester.failed:
            break
        if now % period == 0:
            posts += 1
            bench.send(write(posts), now=now)
        else:
            bench.send(now=now)
    assert timeouts == [1000, 2000, 3000]
    assert bench.counters.timeouts == 3
    assert bench.done()[0] == (1, CompletionStatus.RETRY_EXCEEDED)
    assert {status for _, status in bench.done()[1:]} == {CompletionStatus.FLUSHED}
    assert len(bench.done()) == posts


def test_two_naks_of_one_gap_go_back_once() -> None:
    bench = Bench()
    bench.send(write(1, 1000))
    bench.ack(1, Syndrome.SEQUENCE_ERROR)
    assert bench.send() == [1, 2, 3]
    bench.ack(1, Syndrome.SEQUENCE_ERROR)
    assert bench.send() == []
    bench.requester.wake(1000)
    assert bench.send() == [1, 2, 3]
    # After a timeout the same gap may be told again: this NAK answers what was sent since.
    bench.ack(1, Syndrome.SEQUENCE_ERROR)
    assert bench.send() == [1, 2, 3]
    bench.ack(2, Syndrome.SEQUENCE_ERROR)
    assert bench.send() == [2, 3]


def test_a_nak_for_the_packet_after_the_last_answers_all() -> None:
    """The gap closed before it was told, and nothing more was sent: the expected packet is one still to come."""
    bench = Bench()
    bench.send(write(1, 600))
    bench.ack(3, Syndrome.SEQUENCE_ERROR)
    assert bench.done() == [(1, SUCCESS)]
    assert bench.requester.deadline() is None
    assert bench.send(write(2)) == [3]


@pytest.mark.parametrize(
    ("syndrome", "status"),
    [
        (Syndrome.INVALID_REQUEST, CompletionStatus.REMOTE_INVALID_REQUEST),
        (Syndrome.REMOTE_ACCESS_ERROR, CompletionStatus.REMOTE_ACCESS_ERROR),
        (Syndrome.REMOTE_OPERATION_ERROR, CompletionStatus.REMOTE_OPERATION_ERROR),
    ],
)
def test_a_fatal_nak_names_its_verb(syndrome: Syndrome, status: CompletionStatus) -> None:
    bench = Bench()
    bench.send(write(1), write(2), write(3))
    bench.ack(1, syndrome)
    assert bench.done() == [(1, SUCCESS), (2, status), (3, CompletionStatus.FLUSHED)]
    assert bench.send(write(4)) == []
    assert bench.done()[3] == (4, CompletionStatus.FLUSHED)


def test_a_fatal_nak_behind_a_lost_read_response_asks_again_first() -> None:
    bench = Bench()
    bench.send(Read(1, "b", remote=PLACE, length=8), write(2))
    bench.ack(1, Syndrome.REMOTE_ACCESS_ERROR)
    assert bench.done() == []
    assert bench.send() == [0, 1]


@pytest.mark.parametrize("code", range(32))
def test_a_not_ready_pause_is_that_of_its_code(code: int) -> None:
    bench = Bench()
    bench.send(Send(1, "b", data=b"x"))
    bench.ack(0, Syndrome.RNR_NAK | code, now=10)
    bench.ack(0, Syndrome.RNR_NAK | code, now=11)
    end = 10 + RNR_DELAYS[code]
    assert bench.requester.deadline() == end
    assert bench.send(now=end - 1) == []
    bench.requester.wake(end)
    assert bench.send(now=end) == [0]
    assert bench.counters.rnr_naks == 2


def test_the_delays_are_those_of_the_standard() -> None:
    """ibv_modify_qp(3): 0 is 655.36 ms, 1 is 0.01 ms, 12 is 0.64 ms, 31 is 491.52 ms."""
    assert [RNR_DELAYS[code] for code in (0, 1, 12, 31)] == [655_360_000, 10_000, 640_000, 491_520_000]
    assert list(RNR_DELAYS[1:]) == sorted(RNR_DELAYS[1:])


@pytest.mark.parametrize(
    ("verb", "sentence"),
    [
        (CompareSwap(1, "b", remote=PLACE, expected=1 << 64, desired=0), "CompareSwap expected is 0x10000000000000000"),
        (CompareSwap(1, "b", remote=PLACE, expected=0, desired=-1), "CompareSwap desired is -0x1"),
        (Read(1, "b", remote=RemoteAddress(-8, 1), length=8), "Read address is -0x8"),
        (Write(1, "b", remote=RemoteAddress(0, 1 << 32), data=b""), "Write key is 0x100000000"),
    ],
)
def test_what_cannot_be_encoded_is_not_taken(verb: Verb, sentence: str) -> None:
    bench = Bench()
    with pytest.raises(ValueError, match=sentence):
        bench.requester.post(verb)
    with pytest.raises(TypeError, match="Verb is no verb"):
        bench.requester.post(Verb(1, "b"))
    assert len(bench.requester) == 0


def test_an_addend_is_taken_modulo_two_to_the_64() -> None:
    bench = Bench()
    bench.requester.post(FetchAdd(1, "b", remote=PLACE, addend=-1))
    packet = bench.requester.next_packet(0)
    assert packet is not None
    assert packet.atomic is not None
    assert packet.atomic.swap_add == (1 << 64) - 1


@pytest.mark.parametrize(
    ("field", "value"),
    [("path_mtu", 1500), ("window_packets", 0), ("ack_interval_packets", 129), ("retry_limit", 8), ("rnr_timer", 32),
     ("rnr_retry_limit", -1), ("fetch_depth", 0), ("retransmission_timeout", 0)],
)  # fmt: skip
def test_settings_name_what_is_wrong(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{field} is {value}; allowed"):
        ConnectionSettings(**{field: value})


@pytest.mark.parametrize(("field", "value"), [("number", 1 << 24), ("peer_psn", -1), ("service_level", 16)])
def test_connections_name_what_is_wrong(field: str, value: int) -> None:
    fields: dict[str, object] = {
        "peer": "b", "number": 1, "peer_number": 2, "address": "10.0.0.1", "peer_address": "10.0.0.2",
        "initial_psn": 0, "peer_psn": 0,
    }  # fmt: skip
    with pytest.raises(ValueError, match=f"{field} is {value}; allowed"):
        Connection(**{**fields, field: value})  # type: ignore[arg-type]
