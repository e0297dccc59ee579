"""Packets as bytes: every header there and back, the ICRC's masked fields, and what is refused."""

from __future__ import annotations

import mmap
import os
import signal
import struct
import time
import zlib
from contextlib import suppress
from socket import inet_aton

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.network import roce
from testbed.network.roce import (
    PSN_MASK,
    RESPONSES,
    Aeth,
    AtomicEth,
    Flow,
    Opcode,
    Packet,
    PacketError,
    Reth,
    TruncatedPacket,
    UnknownOpcode,
    WrongHeader,
    WrongIcrc,
    destination_queue_pair,
    header_bytes,
    masked_headers,
    source_port,
    unwrap,
)

SOURCE, DESTINATION, PORT = "10.61.0.1", "10.61.0.2", 0xC011
WITH_PAYLOAD = [
    opcode
    for opcode in Opcode
    if opcode not in (Opcode.READ_REQUEST, Opcode.ACKNOWLEDGE, Opcode.ATOMIC_ACKNOWLEDGE)
    and opcode not in (Opcode.COMPARE_SWAP, Opcode.FETCH_ADD)
]
WORDS = st.integers(0, (1 << 64) - 1)


def flow() -> Flow:
    return Flow(SOURCE, DESTINATION, PORT)


def ip_packet(payload: bytes, *, tos: int = 0, ttl: int = 64, checksum: int = 0, udp_checksum: int = 0) -> bytearray:
    """The whole IPv4 packet as a kernel would send it: DF, id 0."""
    ip = struct.pack("!BBHHHBBH", 0x45, tos, 28 + len(payload), 0, 0x4000, ttl, 17, checksum)
    udp = struct.pack("!HHHH", PORT, 4791, 8 + len(payload), udp_checksum)
    return bytearray(ip + inet_aton(SOURCE) + inet_aton(DESTINATION) + udp + payload)


def reference_icrc(packet: bytearray) -> bytes:
    """IBA annex A17, word by word over a whole IP packet, independent of the code under test."""
    masked = bytearray(packet[:-4])
    masked[1] = masked[8] = masked[10] = masked[11] = 0xFF
    masked[26] = masked[27] = masked[32] = 0xFF
    return struct.pack("<I", zlib.crc32(bytes(masked), zlib.crc32(b"\xff" * 8)))


@st.composite
def packets(draw: st.DrawFn, opcode: Opcode | None = None) -> Packet:
    opcode = draw(st.sampled_from(list(Opcode))) if opcode is None else opcode
    number = st.integers(0, PSN_MASK)
    key = st.integers(0, (1 << 32) - 1)
    has_reth = opcode in (Opcode.WRITE_FIRST, Opcode.WRITE_ONLY, Opcode.READ_REQUEST)
    has_aeth = header_bytes(opcode) in (16, 24)
    has_atomic = opcode in (Opcode.COMPARE_SWAP, Opcode.FETCH_ADD)
    return Packet(
        opcode,
        draw(number),
        draw(number),
        draw(st.booleans()),
        Reth(draw(WORDS), draw(key), draw(key)) if has_reth else None,
        Aeth(draw(st.integers(0, 255)), draw(number)) if has_aeth else None,
        AtomicEth(draw(WORDS), draw(key), draw(WORDS), draw(WORDS)) if has_atomic else None,
        draw(WORDS) if opcode is Opcode.ATOMIC_ACKNOWLEDGE else None,
        draw(st.binary(max_size=70)) if opcode in WITH_PAYLOAD else b"",
    )


@settings(deadline=None)
@given(packets())
def test_a_packet_comes_back_as_it_was(packet: Packet) -> None:
    datagram = flow().build(packet)
    assert len(datagram) == header_bytes(packet.opcode) + -(-len(packet.payload) // 4) * 4 + 4
    assert destination_queue_pair(datagram) == packet.queue_pair
    assert flow().parse(datagram) == packet
    assert flow().parse(memoryview(bytearray(datagram))) == packet


@settings(deadline=None)
@given(packets(), st.integers(0, 255), st.integers(0, 255), st.integers(0, 0xFFFF), st.integers(0, 0xFFFF))
def test_icrc_is_that_of_the_whole_ip_packet(packet: Packet, tos: int, ttl: int, checksum: int, udp: int) -> None:
    """What routers change does not count; the reference is computed over a packet that they changed."""
    datagram = flow().build(packet)
    whole = ip_packet(datagram, tos=tos, ttl=ttl, checksum=checksum, udp_checksum=udp)
    assert datagram[-4:] == reference_icrc(whole)


def test_every_bit_is_covered_but_those_of_congestion() -> None:
    packet = Packet(Opcode.WRITE_ONLY, 0x11, 7, True, Reth(0x1000, 5, 6), payload=b"six by")
    datagram = flow().build(packet)
    for bit in range(len(datagram) * 8):
        damaged = bytearray(datagram)
        damaged[bit // 8] ^= 1 << bit % 8
        assert flow().check(damaged) is (bit // 8 == 4), f"bit {bit}"
        if bit // 8 == 4:  # FECN, BECN and six reserved bits: a switch may mark them
            assert flow().parse(damaged) == packet
        else:
            with pytest.raises(WrongIcrc):
                flow().parse(damaged)


def test_addresses_and_ports_are_covered() -> None:
    datagram = flow().build(Packet(Opcode.ACKNOWLEDGE, 1, 2, aeth=Aeth(31, 1)))
    for other in (
        Flow("10.61.0.3", DESTINATION, PORT),
        Flow(SOURCE, "10.61.0.3", PORT),
        Flow(SOURCE, DESTINATION, PORT + 1),
    ):
        with pytest.raises(WrongIcrc):
            other.parse(datagram)


def test_another_ip_id_fails_the_strict_check() -> None:
    """Segments of a GSO send would carry ids 1, 2, …: those are refused, for every packet here is sent singly."""
    datagram = flow().build(Packet(Opcode.ACKNOWLEDGE, 1, 2, aeth=Aeth(31, 1)))
    body = datagram[:4] + b"\xff" + datagram[5:-4]
    ours = masked_headers(SOURCE, DESTINATION, PORT, 20)
    assert struct.pack("<I", zlib.crc32(body, zlib.crc32(ours))) == datagram[-4:]
    other = masked_headers(SOURCE, DESTINATION, PORT, 20, identification=1)
    with pytest.raises(WrongIcrc):
        flow().parse(datagram[:-4] + struct.pack("<I", zlib.crc32(body, zlib.crc32(other))))


def test_memory_that_somebody_writes_meanwhile_gives_a_whole_packet() -> None:
    """A NIC answers a READ from memory that its node's software writes to on another core: old bytes, new ones or some
    of both may be sent, but the ICRC must be theirs.
    """
    memory = memoryview(mmap.mmap(-1, 4096))
    writer = os.fork()
    if writer == 0:
        while os.getppid() != 1:
            for byte in range(256):
                memory[:] = bytes([byte]) * 4096
    try:
        packet = Packet(Opcode.READ_RESPONSE_ONLY, 1, 1, aeth=Aeth(0, 1), payload=memory)
        end = time.monotonic() + 0.4
        while time.monotonic() < end:
            assert flow().check(flow().build(packet))
    finally:
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)


def test_fast_and_plain_crc_agree() -> None:
    """isal where it is installed, zlib where not: one polynomial."""
    for size in (0, 1, 20, 4112):
        data = bytes(range(256)) * 17
        assert roce.crc32(data[:size], 7) == zlib.crc32(data[:size], 7)


def sealed(header: bytes, rest: bytes = b"") -> bytes:
    """Any bytes with a right ICRC."""
    body = header + rest
    start = zlib.crc32(masked_headers(SOURCE, DESTINATION, PORT, len(body) + 4))
    return body + struct.pack("<I", zlib.crc32(body[5:], zlib.crc32(body[:4] + b"\xff", start)))


def bth(opcode: int, flags: int = 0, partition: int = 0xFFFF) -> bytes:
    return struct.pack("!BBHII", opcode, flags, partition, 0x11, 5)


@pytest.mark.parametrize(
    ("datagram", "error", "sentence"),
    [
        (b"", TruncatedPacket, "packet of 0 bytes is shorter than the 16 bytes"),
        (bytes(15), TruncatedPacket, "packet of 15 bytes"),
        (bytes(16), WrongIcrc, "packet of 16 bytes fails its ICRC"),
        (sealed(bth(0x03), bytes(4)), UnknownOpcode, "opcode 0x03"),
        (sealed(bth(0x81), bytes(16)), UnknownOpcode, "opcode 0x81"),
        (sealed(bth(0x64), bytes(16)), UnknownOpcode, "opcode 0x64"),
        (sealed(bth(0x04, 0x01)), WrongHeader, "BTH transport version is 0x1; allowed is 0"),
        (sealed(bth(0x04, 0, 0x1234)), WrongHeader, "BTH partition key is 0x1234"),
        (sealed(bth(0x0A), bytes(8)), TruncatedPacket, "shorter than the 32 bytes"),
        (sealed(bth(0x04, 0x30)), TruncatedPacket, "shorter than the 19 bytes"),
        (sealed(bth(0x0C), bytes(20)), WrongHeader, "BTH payload length is 0x4; allowed is 0 with this opcode"),
        (sealed(bth(0x13), bytes(32)), WrongHeader, "BTH payload length is 0x4"),
        (sealed(bth(0x12), bytes(8)), TruncatedPacket, "shorter than the 28 bytes"),
    ],
)
def test_what_is_no_packet_is_named(datagram: bytes, error: type[PacketError], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        flow().parse(datagram)


@settings(deadline=None)
@given(st.binary(max_size=100))
def test_noise_is_refused_and_nothing_else_is_raised(noise: bytes) -> None:
    with pytest.raises(PacketError):
        flow().parse(noise)
    with suppress(PacketError):
        flow().parse(sealed(noise) if len(noise) >= 12 else noise)


def test_partition_membership_bit_is_free() -> None:
    assert flow().parse(sealed(bth(0x04, 0, 0x7FFF))).opcode is Opcode.SEND_ONLY


def test_short_datagrams_name_no_queue_pair() -> None:
    with pytest.raises(TruncatedPacket):
        destination_queue_pair(bytes(15))


def test_responses_are_the_opcodes_that_answer() -> None:
    assert {opcode for opcode in Opcode if opcode.name.startswith("READ_RESPONSE") or "ACK" in opcode.name} == RESPONSES


@given(st.integers(0, 1 << 40), st.integers(-(1 << 23), (1 << 23) - 1))
def test_unwrap_finds_the_nearest(near: int, distance: int) -> None:
    assert unwrap((near + distance) & PSN_MASK, near) == near + distance


def test_source_ports_are_in_the_dynamic_range() -> None:
    assert source_port(0) == 0xC000
    assert source_port(0x11) == 0xC011
    assert all(0xC000 <= source_port(number) <= 0xFFFF for number in (0x3FFF, 0x4000, PSN_MASK))
