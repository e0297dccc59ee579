"""Flipped bits: what the ICRC covers is never taken when changed; what it leaves out may change and does no harm."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.machine import CompletionStatus, FetchAdd, Read, Received, Send, Write
from testbed.network.roce import Aeth, AtomicEth, Flow, Opcode, Packet, Reth, WrongIcrc

MakePair = Callable[..., Any]
FLOW = Flow("10.61.0.1", "10.61.0.2", 0xC011)
UNCOVERED_BYTE = 4
"""FECN, BECN and the reserved bits beside them count as ones (IBA annex A17)."""
PACKETS = {
    "write": Packet(Opcode.WRITE_ONLY, 0x22, 7, True, Reth(0x1000, 0xABCD, 5), payload=b"hello"),
    "write middle": Packet(Opcode.WRITE_MIDDLE, 0x22, 8, payload=bytes(range(256))),
    "read": Packet(Opcode.READ_REQUEST, 0x22, 9, reth=Reth(1 << 63, 0xFFFFFFFF, 1 << 31)),
    "response": Packet(Opcode.READ_RESPONSE_LAST, 0x22, 10, aeth=Aeth(0x1F, 3), payload=b"abc"),
    "acknowledge": Packet(Opcode.ACKNOWLEDGE, 0x22, 11, aeth=Aeth(0x60, 4)),
    "compare and swap": Packet(Opcode.COMPARE_SWAP, 0x22, 12, atomic=AtomicEth(8, 1, 2, 3)),
    "atomic answer": Packet(Opcode.ATOMIC_ACKNOWLEDGE, 0x22, 13, aeth=Aeth(0x1F, 5), original=1 << 60),
    "send of nothing": Packet(Opcode.SEND_ONLY, 0x22, 14, True),
}


@pytest.mark.parametrize("name", PACKETS)
def test_every_bit_of_every_kind_of_packet(name: str) -> None:
    good = FLOW.build(PACKETS[name])
    meant = FLOW.parse(good)
    for bit in range(8 * len(good)):
        changed = bytearray(good)
        changed[bit // 8] ^= 1 << bit % 8
        if bit // 8 == UNCOVERED_BYTE:
            assert FLOW.parse(changed) == meant
        else:
            with pytest.raises(WrongIcrc):
                FLOW.parse(changed)


@pytest.mark.parametrize(
    "other",
    [
        Flow("10.61.0.3", "10.61.0.2", 0xC011), Flow("10.61.0.1", "10.61.0.3", 0xC011),
        Flow("10.61.0.1", "10.61.0.2", 0xC012),
    ],
    ids=["source", "destination", "port"],
)  # fmt: skip
def test_addresses_and_port_are_covered(other: Flow) -> None:
    with pytest.raises(WrongIcrc):
        other.parse(FLOW.build(PACKETS["write"]))


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(victim=st.integers(0, 40), place=st.floats(0, 1, exclude_max=True))
def test_one_flipped_bit_is_dropped_counted_and_repaired(make_pair: MakePair, victim: int, place: float) -> None:
    """Any bit of any packet of either direction, once."""
    pair = make_pair(path_mtu=256, receives=1, psn=(0xFFFFFA, 0xFFFFFF))
    seen, harmed = 0, False

    def damage(_to: str, datagram: bytes) -> list[tuple[int, bytes]]:
        nonlocal seen, harmed
        seen += 1
        if seen - 1 != victim:
            return [(0, datagram)]
        bit = int(place * 8 * len(datagram))
        harmed = bit // 8 != UNCOVERED_BYTE
        changed = bytearray(datagram)
        changed[bit // 8] ^= 1 << bit % 8
        return [(0, bytes(changed))]

    pair.damage = damage
    data = Random(victim).randbytes(256 * 12 + 5)
    pair.post(Write(1, "b", remote=pair.remote(8), data=data))
    pair.post(FetchAdd(2, "b", remote=pair.remote(), addend=3))
    pair.post(Read(3, "b", remote=pair.remote(8), length=len(data)))
    pair.post(Send(4, "b", data=data))
    pair.run()
    assert [(done.ticket, done.status) for done in pair.completions["a"]] == [
        (ticket, CompletionStatus.SUCCESS) for ticket in (1, 2, 3, 4)
    ]
    assert pair.completions["a"][2].data == data == bytes(pair.memory["b"].view[8 : 8 + len(data)])
    assert pair.received["b"] == [Received("a", data)]
    assert pair.memory["b"].load(0) == 3
    assert sum(end.counters.icrc_errors for end in pair.ends.values()) == harmed
    if not harmed:
        assert sum(end.counters.resent for end in pair.ends.values()) == 0
