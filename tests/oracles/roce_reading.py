"""An independent reading of a RoCEv2 capture: pcap, headers and ICRC by this file alone, after IBA 9.2-9.4 and A17.

It imports nothing of the product, so that agreement with it means something. The CRC is computed bit by bit into a
table from its polynomial; zlib is not asked.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import NamedTuple

_POLYNOMIAL = 0xEDB88320
"""CRC-32 of IEEE 802.3, reflected."""


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _table()


def crc32(data: bytes) -> int:
    """CRC-32 of `data`, initial value and final complement all ones."""
    crc, table = 0xFFFFFFFF, _TABLE
    for byte in data:
        crc = crc >> 8 ^ table[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Read(NamedTuple):
    """One frame, field by field; None where its opcode has no such header."""

    time_ns: int
    frame: bytes
    source: str
    type_of_service: int
    identification: int
    source_port: int
    opcode: int
    pad: int
    partition: int
    queue_pair: int
    ack_request: bool
    psn: int
    address: int | None
    key: int | None
    length: int | None
    syndrome: int | None
    msn: int | None
    swap: int | None
    compare: int | None
    original: int | None
    payload: bytes
    icrc: bytes


WITH_RETH = {0x06, 0x0A, 0x0C}
WITH_AETH = {0x0D, 0x0F, 0x10, 0x11, 0x12}
WITH_ATOMIC = {0x13, 0x14}
WITH_ORIGINAL = {0x12}


def frames(path: Path) -> list[tuple[int, bytes]]:
    """Time in ns and bytes of each frame of a pcap file with nanoseconds."""
    data = path.read_bytes()
    assert struct.unpack_from("=I", data)[0] == 0xA1B23C4D
    found, place = [], 24
    while place < len(data):
        seconds, nanoseconds, kept, length = struct.unpack_from("=IIII", data, place)
        assert kept == length, "a frame was cut"
        found.append((seconds * 1_000_000_000 + nanoseconds, data[place + 16 : place + 16 + kept]))
        place += 16 + kept
    return found


def read(time_ns: int, frame: bytes) -> Read | None:
    """The frame read; None if it is not RoCEv2 over IPv4."""
    if frame[12:14] != b"\x08\x00" or frame[23] != 17 or frame[36:38] != b"\x12\xb7":
        return None
    assert frame[14] == 0x45, "IP options"
    total, identification = struct.unpack_from("!HH", frame, 16)
    assert 14 + total == len(frame), "the frame has a trailer, or was cut"
    datagram = frame[42:]
    opcode, flags, partition, queue_pair, acknowledged = struct.unpack_from("!BBHII", datagram)
    place = 12
    address = key = length = syndrome = msn = swap = compare = original = None
    if opcode in WITH_RETH:
        address, key, length = struct.unpack_from("!QII", datagram, place)
        place += 16
    if opcode in WITH_ATOMIC:
        address, key, swap, compare = struct.unpack_from("!QIQQ", datagram, place)
        place += 28
    if opcode in WITH_AETH:
        (word,) = struct.unpack_from("!I", datagram, place)
        syndrome, msn = word >> 24, word & 0xFFFFFF
        place += 4
    if opcode in WITH_ORIGINAL:
        (original,) = struct.unpack_from("!Q", datagram, place)
        place += 8
    pad = flags >> 4 & 3
    return Read(
        time_ns, frame, ".".join(map(str, frame[26:30])), frame[15], identification,
        struct.unpack_from("!H", frame, 34)[0], opcode, pad, partition, queue_pair & 0xFFFFFF,
        bool(acknowledged >> 31), acknowledged & 0xFFFFFF, address, key, length, syndrome, msn, swap, compare, original,
        datagram[place : len(datagram) - 4 - pad], datagram[-4:],
    )  # fmt: skip


def icrc(frame: bytes) -> bytes:
    """The invariant CRC that a frame must carry (IBA A17.3.3): variant fields are taken as ones."""
    covered = bytearray(frame[14:-4])
    covered[1] = covered[8] = 0xFF  # type of service, time to live
    covered[10:12] = covered[26:28] = b"\xff\xff"  # checksums of IP and UDP
    covered[32] = 0xFF  # FECN, BECN and the reserved bits beside them
    return struct.pack("<I", crc32(b"\xff" * 8 + bytes(covered)))
