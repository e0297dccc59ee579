"""Outside oracles for the wire format: scapy's RoCE layer recomputes every ICRC, tshark decodes every field.

The packets are those of two real queue pairs that carry out every operation and both kinds of refusal.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from scapy.contrib.roce import AETH, BTH
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw, raw
from scapy.utils import wrpcap

from testbed.machine import CompareSwap, CompletionStatus, FetchAdd, Read, RemoteAddress, Send, Write
from testbed.network.connection import Connection, ConnectionSettings
from testbed.network.memory_region import Access, MemoryRegion, PlainMemory, RegionTable
from testbed.network.queue_pair import QueuePair
from testbed.network.roce import UDP_PORT, Flow, Opcode, Packet, Syndrome, source_port

ADDRESS = {"a": "10.61.0.1", "b": "10.61.0.2"}
NUMBER = {"a": 0x123456, "b": 0x22}
KEY, BASE, MTU = 0xDEADBEEF, 0x7F00_1234_5678_0000, 1024
PLACE = RemoteAddress(BASE, KEY)


class Sent(NamedTuple):
    sender: str
    datagram: bytes
    packet: Packet


def exchange(*, lose: int = -1) -> list[Sent]:
    """Every operation from a to b, with packet `lose` lost on the way; ends with a refused request."""
    ends: dict[str, QueuePair] = {}
    for name, peer in (("a", "b"), ("b", "a")):
        connection = Connection(
            peer, NUMBER[name], NUMBER[peer], ADDRESS[name], ADDRESS[peer], 0xFFFFF8, 0xFFFFF8
        )
        region = MemoryRegion(KEY, BASE, 1 << 16, Access.REMOTE, PlainMemory(1 << 16))
        settings = ConnectionSettings(path_mtu=MTU, rnr_timer=1)
        ends[name] = QueuePair(connection, RegionTable([region]), settings)
        ends[name].connect()
    flows = {name: Flow(ADDRESS[name], ADDRESS[peer], source_port(NUMBER[name])) for name, peer in ("ab", "ba")}
    a = ends["a"]
    a.post(Write(1, "b", remote=PLACE, data=bytes(range(256)) * 10 + b"odd"))
    a.post(Write(2, "b", remote=PLACE.at(8), data=b"w"))
    a.post(Read(3, "b", remote=PLACE.at(5), length=2500))
    a.post(CompareSwap(4, "b", remote=PLACE.at(4096), expected=0, desired=0x1122334455667788))
    a.post(FetchAdd(5, "b", remote=PLACE.at(4096), addend=(1 << 64) - 1))
    a.post(Send(6, "b", data=b"message " * 300))
    # Long enough that no heuristic dissector of tshark (RPC over RDMA) takes it for its own.
    a.post(Send(7, "b", data=b"one packet" * 9 + b"!"))
    a.post(Read(8, "b", remote=PLACE.at(2), length=7))
    a.post(Read(9, "b", remote=PLACE.at(1 << 16), length=16))
    log: list[Sent] = []
    now, posted = 0, False
    while a.outstanding:
        for sender, receiver in (("a", "b"), ("b", "a")):
            for datagram in ends[sender].packets_to_send(now):
                log.append(Sent(sender, datagram, flows[sender].parse(datagram)))
                if len(log) - 1 != lose:
                    ends[receiver].receive_packet(now, datagram)
        now = max(now, a.deadline() or now)
        a.wake(now)
        if not posted and now:
            ends["b"].post_receive(4096)
            ends["b"].post_receive(4096)
            posted = True
    statuses = [completion.status for completion in a.poll_completions()]
    assert statuses == [CompletionStatus.SUCCESS] * 8 + [CompletionStatus.REMOTE_ACCESS_ERROR]
    return log


@pytest.fixture(scope="module")
def log() -> list[Sent]:
    return exchange(lose=1)


def frame(sent: Sent) -> Ether:
    """The Ethernet frame that the kernel would send: DF, id 0, no UDP checksum."""
    peer = {"a": "b", "b": "a"}[sent.sender]
    ip = IP(src=ADDRESS[sent.sender], dst=ADDRESS[peer], flags="DF", id=0, tos=0x40)
    udp = UDP(sport=source_port(NUMBER[sent.sender]), dport=UDP_PORT, chksum=0)
    return Ether(src="02:00:00:00:00:01", dst="02:00:00:00:00:02") / ip / udp / Raw(sent.datagram)


def test_every_opcode_and_every_kind_of_answer_is_there(log: list[Sent]) -> None:
    assert {sent.packet.opcode for sent in log} == set(Opcode)
    syndromes = {sent.packet.aeth.syndrome for sent in log if sent.packet.aeth is not None}
    assert syndromes == {Syndrome.ACK, Syndrome.RNR_NAK | 1, Syndrome.SEQUENCE_ERROR, Syndrome.REMOTE_ACCESS_ERROR}


def test_scapy_computes_the_same_icrc(log: list[Sent]) -> None:
    for sent in log:
        whole = Ether(raw(frame(sent)))
        assert raw(whole[BTH].compute_icrc(None)) == sent.datagram[-4:], sent.packet
        # Left to scapy, the packet is built to the same bytes.
        whole[BTH].icrc = None
        assert raw(whole[UDP].payload) == sent.datagram


def test_scapy_reads_the_same_headers(log: list[Sent]) -> None:
    for sent in log:
        header = Ether(raw(frame(sent)))[BTH]
        packet = sent.packet
        assert (header.opcode, header.dqpn, header.psn, header.ackreq, header.pkey, header.version) == (
            packet.opcode, packet.queue_pair, packet.psn, packet.ack_request, 0xFFFF, 0,
        )  # fmt: skip
        assert header.padcount == -len(packet.payload) % 4
        if packet.opcode is Opcode.ACKNOWLEDGE:
            assert packet.aeth is not None
            assert (header[AETH].syndrome, header[AETH].msn) == (packet.aeth.syndrome, packet.aeth.msn)


def test_scapy_catches_a_flipped_bit(log: list[Sent]) -> None:
    sent = log[0]
    damaged = sent._replace(datagram=sent.datagram[:40] + bytes([sent.datagram[40] ^ 1]) + sent.datagram[41:])
    assert Ether(raw(frame(damaged)))[BTH].compute_icrc(None) != damaged.datagram[-4:]


FIELDS = [
    "udp.srcport", "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.bth.psn", "infiniband.bth.a",
    "infiniband.bth.padcnt", "infiniband.reth.va", "infiniband.reth.r_key", "infiniband.reth.dmalen",
    "infiniband.aeth.syndrome", "infiniband.aeth.msn", "infiniband.atomiceth.swapdt", "infiniband.atomiceth.cmpdt",
    "infiniband.atomicacketh.origremdt", "infiniband.invariant.crc", "_ws.col.Info",
]  # fmt: skip


def decode(folder: Path, log: list[Sent]) -> list[dict[str, str]]:
    capture = folder / "roce.pcap"
    wrpcap(str(capture), [frame(sent) for sent in log])
    words = ["tshark", "-r", str(capture), "-T", "fields", "-E", "separator=|"]
    for field in FIELDS:
        words += ["-e", field]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    return [dict(zip(FIELDS, line.split("|"), strict=True)) for line in done.stdout.splitlines()]


def number(text: str) -> int | None:
    return int(text, 0) if text else None


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark (apt-get install tshark)")
def test_tshark_decodes_every_field(tmp_path: Path, log: list[Sent]) -> None:
    rows = decode(tmp_path, log)
    assert len(rows) == len(log)
    for row, sent in zip(rows, log, strict=True):
        packet = sent.packet
        reth, aeth, atomic = packet.reth, packet.aeth, packet.atomic
        place = reth or atomic
        assert [number(row[field]) for field in FIELDS[:-2]] == [
            source_port(NUMBER[sent.sender]), packet.opcode, packet.queue_pair, packet.psn, packet.ack_request,
            -len(packet.payload) % 4, place and place.address, place and place.key, reth and reth.length,
            aeth and aeth.syndrome, aeth and aeth.msn, atomic and atomic.swap_add, atomic and atomic.compare,
            packet.original,
        ], row["_ws.col.Info"]  # fmt: skip
        crc = number(row["infiniband.invariant.crc"])
        assert crc in (struct.unpack("<I", sent.datagram[-4:])[0], struct.unpack(">I", sent.datagram[-4:])[0])


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark (apt-get install tshark)")
def test_tshark_names_the_operations(tmp_path: Path, log: list[Sent]) -> None:
    names = {
        Opcode.WRITE_FIRST: "RDMA Write First", Opcode.WRITE_MIDDLE: "RDMA Write Middle",
        Opcode.WRITE_LAST: "RDMA Write Last", Opcode.WRITE_ONLY: "RDMA Write Only",
        Opcode.READ_REQUEST: "RDMA Read Request", Opcode.READ_RESPONSE_FIRST: "RDMA Read Response First",
        Opcode.READ_RESPONSE_MIDDLE: "RDMA Read Response Middle", Opcode.READ_RESPONSE_LAST: "RDMA Read Response Last",
        Opcode.ACKNOWLEDGE: "Acknowledge", Opcode.ATOMIC_ACKNOWLEDGE: "Atomic Acknowledge",
        Opcode.COMPARE_SWAP: "CmpSwap", Opcode.FETCH_ADD: "FetchAdd", Opcode.SEND_FIRST: "SEND First",
        Opcode.SEND_MIDDLE: "SEND Middle", Opcode.SEND_LAST: "SEND Last", Opcode.SEND_ONLY: "SEND Only",
        Opcode.READ_RESPONSE_ONLY: "RDMA Read Response Only",
    }  # fmt: skip
    for row, sent in zip(decode(tmp_path, log), log, strict=True):
        info = row["_ws.col.Info"].lower()
        assert info.startswith("rc "), row
        assert names[sent.packet.opcode].lower() in info.replace("compare swap", "cmpswap").replace(
            "fetch add", "fetchadd"
        )
