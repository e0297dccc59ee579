"""How a queue pair's work ends badly: silence, no receive, refusals, faults at home, damage. Never in a hang."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testbed.machine import CompletionStatus, FetchAdd, Read, Received, Send, Write
from testbed.network.queue_pair import State
from testbed.network.roce import Aeth, Flow, Opcode, Packet, Reth, source_port

MakePair = Callable[..., Any]
SUCCESS, FLUSHED = CompletionStatus.SUCCESS, CompletionStatus.FLUSHED


def statuses(pair: Any, name: str = "a") -> list[tuple[int, CompletionStatus]]:
    return [(completion.ticket, completion.status) for completion in pair.completions[name]]


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
