"""RoCEv2 packets: the UDP payload of one reliable-connection packet, built and taken apart, with its ICRC.

Knows bytes only: no queue pair, no memory, no socket, no time. Layouts follow InfiniBand Architecture (IBA) 9.2-9.4
and its annex A17 (RoCEv2), as Linux' drivers/infiniband/sw/rxe, scapy.contrib.roce and tshark read them. A NIC
process runs this code for each packet, so it is scalar `struct` code (numpy costs 60 µs a packet, platform.md §1).

The IP id rule: the ICRC covers the IPv4 identification, which a UDP receiver cannot see. Every packet here is sent
singly, from an unconnected socket with IP_MTU_DISCOVER=DO, so the kernel sets DF and id 0; the check is strict.
"""

from __future__ import annotations

import struct
import zlib
from enum import IntEnum
from socket import inet_aton
from typing import Final, TypeAlias

import msgspec

try:  # three to seven times faster than zlib on 1-4 KiB (platform.md §1); the same polynomial and result
    from isal.isal_zlib import crc32
except ImportError:
    from zlib import crc32

Buffer: TypeAlias = bytes | bytearray | memoryview

UDP_PORT: Final = 4791
"""Destination port of every RoCEv2 packet (IBA annex A17)."""
PARTITION_KEY: Final = 0xFFFF
"""The default partition, full member."""
PSN_BITS: Final = 24
PSN_MASK: Final = (1 << PSN_BITS) - 1
BTH_BYTES: Final = 12
ICRC_BYTES: Final = 4
FRAME_OVERHEAD_BYTES: Final = 14 + 20 + 8
"""Ethernet, IPv4 and UDP headers around a UDP payload, as the kernel's queues count a frame (no FCS, no preamble)."""


class Opcode(IntEnum):
    """BTH opcodes of the reliable connection that a queue pair here speaks."""

    SEND_FIRST = 0x00
    SEND_MIDDLE = 0x01
    SEND_LAST = 0x02
    SEND_ONLY = 0x04
    WRITE_FIRST = 0x06
    WRITE_MIDDLE = 0x07
    WRITE_LAST = 0x08
    WRITE_ONLY = 0x0A
    READ_REQUEST = 0x0C
    READ_RESPONSE_FIRST = 0x0D
    READ_RESPONSE_MIDDLE = 0x0E
    READ_RESPONSE_LAST = 0x0F
    READ_RESPONSE_ONLY = 0x10
    ACKNOWLEDGE = 0x11
    ATOMIC_ACKNOWLEDGE = 0x12
    COMPARE_SWAP = 0x13
    FETCH_ADD = 0x14


class Syndrome(IntEnum):
    """AETH syndromes (IBA 9.7). An RNR NAK is `RNR_NAK` plus a five-bit timer code."""

    ACK = 0x1F
    """Acknowledge, end-to-end credits not used."""
    RNR_NAK = 0x20
    SEQUENCE_ERROR = 0x60
    INVALID_REQUEST = 0x61
    REMOTE_ACCESS_ERROR = 0x62
    REMOTE_OPERATION_ERROR = 0x63


class Reth(msgspec.Struct, frozen=True, gc=False):
    """RDMA extended transport header: where a WRITE or READ goes, and how long the whole message is."""

    address: int
    key: int
    length: int


class AtomicEth(msgspec.Struct, frozen=True, gc=False):
    """Atomic extended transport header. `swap_add` is the new value of CMP_SWAP or the addend of FETCH_ADD."""

    address: int
    key: int
    swap_add: int
    compare: int


class Aeth(msgspec.Struct, frozen=True, gc=False):
    """Acknowledge extended transport header: syndrome and 24-bit message sequence number."""

    syndrome: int
    msn: int


class Packet(msgspec.Struct, frozen=True):
    """One packet, from BTH to payload. The headers that are not None are those its opcode carries."""

    opcode: Opcode
    queue_pair: int
    """Destination queue pair, 24 bits."""
    psn: int
    """Packet sequence number, 24 bits."""
    ack_request: bool = False
    reth: Reth | None = None
    aeth: Aeth | None = None
    atomic: AtomicEth | None = None
    original: int | None = None
    """AtomicAckETH: the word before the atomic."""
    payload: Buffer = b""
    """Without padding. After parsing, a view of the datagram: copy it before the buffer is used again."""


class PacketError(Exception):
    """A datagram that is no packet for us; the peer's or the network's fault, so a receiver drops and counts it."""


class TruncatedPacket(PacketError):
    """Shorter than the headers of its opcode."""

    def __init__(self, length: int, needed: int) -> None:
        self.length = length
        self.needed = needed
        super().__init__(f"packet of {length} bytes is shorter than the {needed} bytes that its headers take")


class WrongIcrc(PacketError):
    """The invariant CRC does not match: damaged on the way, or sent by another address, port or IP id."""

    def __init__(self, length: int) -> None:
        self.length = length
        super().__init__(f"packet of {length} bytes fails its ICRC")


class UnknownOpcode(PacketError):
    """A BTH opcode that no reliable connection here speaks."""

    def __init__(self, opcode: int) -> None:
        self.opcode = opcode
        super().__init__(f"opcode {opcode:#04x} is not one of this reliable connection")


class WrongHeader(PacketError):
    """A BTH field with a value that no packet for us has."""

    def __init__(self, field: str, value: int, allowed: str) -> None:
        self.field = field
        self.value = value
        super().__init__(f"BTH {field} is {value:#x}; allowed is {allowed}")


_RETH_OPCODES: Final = frozenset({Opcode.WRITE_FIRST, Opcode.WRITE_ONLY, Opcode.READ_REQUEST})
_ATOMIC_OPCODES: Final = frozenset({Opcode.COMPARE_SWAP, Opcode.FETCH_ADD})
_AETH_OPCODES: Final = frozenset(
    {Opcode.READ_RESPONSE_FIRST, Opcode.READ_RESPONSE_LAST, Opcode.READ_RESPONSE_ONLY, Opcode.ACKNOWLEDGE}
)
_BARE_OPCODES: Final = frozenset(
    {Opcode.READ_REQUEST, Opcode.ACKNOWLEDGE, Opcode.ATOMIC_ACKNOWLEDGE, *_ATOMIC_OPCODES},
)
"""Opcodes whose packets have no payload."""
_OPCODES: Final[dict[int, Opcode]] = {int(opcode): opcode for opcode in Opcode}

RESPONSES: Final = frozenset(
    {
        Opcode.READ_RESPONSE_FIRST,
        Opcode.READ_RESPONSE_MIDDLE,
        Opcode.READ_RESPONSE_LAST,
        Opcode.READ_RESPONSE_ONLY,
        Opcode.ACKNOWLEDGE,
        Opcode.ATOMIC_ACKNOWLEDGE,
    }
)
"""Opcodes that travel from responder to requester."""

_BTH = struct.Struct("!BBHII")
_RETH = struct.Struct("!QII")
_ATOMIC = struct.Struct("!QIQQ")
_AETH = struct.Struct("!I")
_ATOMIC_ACK = struct.Struct("!IQ")
_ICRC = struct.Struct("<I")
_QUEUE_PAIR = struct.Struct("!I")
_PADDING: Final = (b"", b"\0\0\0", b"\0\0", b"\0")
"""By length modulo 4: payloads are padded to whole 32-bit words (IBA 9.2)."""
_CRC_RESIDUE: Final = 0x2144DF1C
"""CRC-32 of any message followed by its own CRC, least significant byte first."""


def header_bytes(opcode: Opcode) -> int:
    """Bytes of BTH and extension headers before the payload of a packet with `opcode`."""
    if opcode in _RETH_OPCODES:
        return BTH_BYTES + 16
    if opcode in _ATOMIC_OPCODES:
        return BTH_BYTES + 28
    if opcode in _AETH_OPCODES:
        return BTH_BYTES + 4
    return BTH_BYTES + 12 if opcode is Opcode.ATOMIC_ACKNOWLEDGE else BTH_BYTES


_HEADER_BYTES: Final[dict[Opcode, int]] = {opcode: header_bytes(opcode) for opcode in Opcode}


def unwrap(psn: int, near: int) -> int:
    """The sequence number congruent to the 24-bit `psn` that is nearest to `near`.

    Queue pairs count packets without wrapping and cut to 24 bits on the wire; comparing the unwrapped numbers is
    the signed comparison modulo 2**24 of IBA 9.7, written once. The result may be below 0 near the start.
    """
    return near + ((psn - near + 0x800000) & PSN_MASK) - 0x800000


def source_port(queue_pair: int) -> int:
    """UDP source port of a queue pair's packets: 0xC000 plus its low bits, as rxe, so flows hash apart."""
    return 0xC000 | (queue_pair & 0x3FFF)


def destination_queue_pair(datagram: Buffer) -> int:
    """Destination queue pair of an unchecked datagram, for a NIC to find the queue pair that will check it.

    Raises TruncatedPacket below the size of the smallest packet.
    """
    if len(datagram) < BTH_BYTES + ICRC_BYTES:
        raise TruncatedPacket(len(datagram), BTH_BYTES + ICRC_BYTES)
    return int(_QUEUE_PAIR.unpack_from(datagram, 4)[0]) & PSN_MASK


def masked_headers(source: str, destination: str, port: int, length: int, identification: int = 0) -> bytes:
    """What the ICRC covers before the BTH: eight 0xff, IPv4 and UDP with all that a router may change set to ones.

    `length` is that of the UDP payload with its ICRC. Masked are TOS, TTL and both checksums (IBA annex A17).
    """
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, 0xFF, 28 + length, identification, 0x4000, 0xFF, 17, 0xFFFF,
        inet_aton(source), inet_aton(destination),
    )  # fmt: skip
    return b"\xff" * 8 + ip + struct.pack("!HHHH", port, UDP_PORT, 8 + length, 0xFFFF)


class Flow:
    """Packets of one direction of one queue pair: addresses and source port, which the ICRC covers.

    The CRC over the masked headers depends on the payload's length only, so it is computed once a length.
    """

    __slots__ = ("_starts", "destination", "port", "source")

    def __init__(self, source: str, destination: str, port: int) -> None:
        self.source = source
        self.destination = destination
        self.port = port
        self._starts: dict[int, int] = {}

    def _start(self, length: int) -> int:
        start = self._starts[length] = zlib.crc32(
            masked_headers(self.source, self.destination, self.port, length),
        )
        return start

    def build(self, packet: Packet) -> bytes:
        """The UDP payload of `packet`, padding and ICRC included. Raises struct.error if a field overflows."""
        payload = packet.payload
        if not isinstance(payload, bytes):
            # Memory that somebody else may write to meanwhile: what is sent must be what the ICRC was made from.
            payload = bytes(payload)
        size = len(payload)
        padding = -size & 3
        opcode = packet.opcode
        header = _BTH.pack(
            opcode, padding << 4, PARTITION_KEY, packet.queue_pair,
            packet.psn | 0x80000000 if packet.ack_request else packet.psn,
        )  # fmt: skip
        if packet.reth is not None:
            reth = packet.reth
            header += _RETH.pack(reth.address, reth.key, reth.length)
        elif packet.aeth is not None:
            word = packet.aeth.syndrome << PSN_BITS | packet.aeth.msn
            header += _AETH.pack(word) if packet.original is None else _ATOMIC_ACK.pack(word, packet.original)
        elif packet.atomic is not None:
            atomic = packet.atomic
            header += _ATOMIC.pack(atomic.address, atomic.key, atomic.swap_add, atomic.compare)
        length = len(header) + size + padding + ICRC_BYTES
        start = self._starts.get(length) or self._start(length)
        # Byte 4 of the BTH (FECN, BECN, reserved) counts as ones.
        crc = crc32(header[5:], crc32(header[:4] + b"\xff", start))
        if not size:
            return header + _ICRC.pack(crc)
        crc = crc32(payload, crc)
        if not padding:
            return b"".join((header, payload, _ICRC.pack(crc)))
        zeros = _PADDING[size & 3]
        return b"".join((header, payload, zeros, _ICRC.pack(crc32(zeros, crc))))

    def check(self, datagram: Buffer) -> bool:
        """True if the datagram's ICRC fits this flow."""
        length = len(datagram)
        start = self._starts.get(length) or self._start(length)
        view = memoryview(datagram)
        return crc32(view[5:], crc32(bytes(view[:4]) + b"\xff", start)) == _CRC_RESIDUE

    def parse(self, datagram: Buffer) -> Packet:
        """The packet in a UDP payload, its ICRC checked. Raises a PacketError; the payload is a view, not a copy."""
        view = memoryview(datagram)
        length = len(view)
        if length < BTH_BYTES + ICRC_BYTES:
            raise TruncatedPacket(length, BTH_BYTES + ICRC_BYTES)
        start = self._starts.get(length) or self._start(length)
        if crc32(view[5:], crc32(bytes(view[:4]) + b"\xff", start)) != _CRC_RESIDUE:
            raise WrongIcrc(length)
        number, flags, partition, queue_pair, psn = _BTH.unpack_from(view)
        opcode = _OPCODES.get(number)
        if opcode is None:
            raise UnknownOpcode(number)
        if flags & 0x0F:
            raise WrongHeader("transport version", flags & 0x0F, "0")
        if partition & 0x7FFF != PARTITION_KEY & 0x7FFF:
            raise WrongHeader("partition key", partition, "0xffff, the default partition")
        begin = _HEADER_BYTES[opcode]
        end = length - ICRC_BYTES - (flags >> 4 & 3)
        if end < begin:
            raise TruncatedPacket(length, begin + ICRC_BYTES + (flags >> 4 & 3))
        if opcode in _BARE_OPCODES and end != begin:
            raise WrongHeader("payload length", end - begin, "0 with this opcode")
        reth = aeth = atomic = original = None
        if opcode in _RETH_OPCODES:
            reth = Reth(*_RETH.unpack_from(view, BTH_BYTES))
        elif opcode in _AETH_OPCODES:
            (word,) = _AETH.unpack_from(view, BTH_BYTES)
            aeth = Aeth(word >> PSN_BITS, word & PSN_MASK)
        elif opcode in _ATOMIC_OPCODES:
            atomic = AtomicEth(*_ATOMIC.unpack_from(view, BTH_BYTES))
        elif opcode is Opcode.ATOMIC_ACKNOWLEDGE:
            word, original = _ATOMIC_ACK.unpack_from(view, BTH_BYTES)
            aeth = Aeth(word >> PSN_BITS, word & PSN_MASK)
        return Packet(
            opcode, queue_pair & PSN_MASK, psn & PSN_MASK, psn >= 0x80000000, reth, aeth, atomic, original,
            view[begin:end],
        )  # fmt: skip
