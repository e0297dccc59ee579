"""A wide capture of two soft RNICs on a real link, read three times: by scapy, by tshark and by `roce_reading`.

Every operation in every size that matters (0, 1, MTU - 1, MTU, MTU + 1, 1 MiB), over a wrap of the sequence numbers:
between messages, inside a WRITE, inside a READ's responses and inside a SEND, each of 256 packets.
Since nothing is lost here, the packets that must have passed are known exactly.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from scapy.contrib.roce import BTH
from scapy.layers.l2 import Ether

from emulators.nic_pair import OWNER, REGION, REQUESTER, LinkedNamespaces, NicPair, wait_for
from emulators.verbs_ring import QueueSizes
from testbed.machine import CompareSwap, Completion, CompletionStatus, FetchAdd, Read, Received, Send, Verb, Write
from tests.oracles import roce_reading

pytestmark = pytest.mark.root
MTU, MIB = 4096, 1 << 20
SIZES = (0, 1, MTU - 1, MTU, MTU + 1, MIB)
LEVEL = 3
FIRST_PSNS = {
    "between messages": 0xFFFFF0, "in a WRITE": (1 << 24) - 150, "in a READ's responses": (1 << 24) - 400,
    "in a SEND": (1 << 24) - 650,
}  # fmt: skip
"""The requester's first number, by where its numbers wrap: the messages of 1 MiB have the places 28, 284 and 540."""


def verbs(pair: NicPair) -> list[Verb]:
    """Everything that the requester posts, in order."""
    random, posted = Random(3), []
    for size in SIZES:
        place = pair.remote.at(64 + size % 7)
        posted += [
            Write(len(posted), OWNER, LEVEL, remote=place, data=random.randbytes(size)),
            Read(len(posted) + 1, OWNER, LEVEL, remote=place, length=size),
            Send(len(posted) + 2, OWNER, LEVEL, data=random.randbytes(size)),
            CompareSwap(len(posted) + 3, OWNER, LEVEL, remote=pair.remote, expected=size, desired=size + 1),
            FetchAdd(len(posted) + 4, OWNER, LEVEL, remote=pair.remote.at(8), addend=(1 << 64) - 1 - size),
        ]
    return posted


class Traffic:
    """What was posted, what came back, and what the capture saw of it."""

    def __init__(self, folder: Path, first_psn: int) -> None:
        self.first_psn = first_psn
        self.pcap = folder / "wide.pcap"
        sizes = QueueSizes(staging=16 * MIB)
        with (
            LinkedNamespaces() as namespaces,
            NicPair(
                namespaces, service_levels=(LEVEL,), sizes=sizes, receives=2, receive_bytes=MIB, first_psn=first_psn
            ) as pair,
        ):
            self.addresses = pair.addresses
            self.verbs = verbs(pair)
            state = folder / "state.json"
            words = ["ip", "netns", "exec", namespaces.switch, sys.executable, "-m", "emulators.capture"]
            capture = subprocess.Popen(
                [*words, "--device", "p0", "--file", str(self.pcap), "--state", str(state)]
            )
            try:
                _until(state.exists)
                for verb in self.verbs:  # one at a time: then order on the wire is the order here
                    self._carry_out(pair, verb)
                capture.send_signal(signal.SIGTERM)
                capture.wait(10)
            finally:
                capture.kill()
                capture.wait()
            self.said = json.loads(state.read_text())
        self.frames = roce_reading.frames(self.pcap)
        self.read = [found for frame in self.frames if (found := roce_reading.read(*frame)) is not None]

    def _carry_out(self, pair: NicPair, verb: Verb) -> None:
        pair.verbs[REQUESTER].post(verb)
        (done,) = wait_for(pair.verbs[REQUESTER])
        assert isinstance(done, Completion)
        assert done.status is CompletionStatus.SUCCESS, verb
        if isinstance(verb, Send):
            assert wait_for(pair.verbs[OWNER]) == [Received(REQUESTER, bytes(verb.data))]
        elif isinstance(verb, Read):
            begin = verb.remote.address - REGION.address
            assert done.data == bytes(pair.memory.view[begin : begin + verb.length])


def _until(condition: Callable[[], bool], seconds: float = 15.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


@pytest.fixture(scope="module", params=FIRST_PSNS)
def traffic(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Traffic:
    return Traffic(tmp_path_factory.mktemp("wide"), FIRST_PSNS[request.param])


def packets_of(size: int) -> int:
    return max(1, -(-size // MTU))


def segments(first: int, middle: int, last: int, only: int, count: int) -> list[int]:
    return [only] if count == 1 else [first, *[middle] * (count - 2), last]


def expected_requests(posted: list[Verb], first_psn: int) -> list[tuple[int, int, int]]:
    """(opcode, PSN, payload bytes) of each request packet, from the standard's rules (IBA 9.7)."""
    psn, rows = first_psn, []
    for verb in posted:
        if isinstance(verb, Write | Send):
            size = len(bytes(verb.data))
            opcodes = (0x06, 0x07, 0x08, 0x0A) if isinstance(verb, Write) else (0x00, 0x01, 0x02, 0x04)
            for index, opcode in enumerate(segments(*opcodes, packets_of(size))):
                rows.append((opcode, (psn + index) & 0xFFFFFF, min(MTU, size - index * MTU)))
            psn += packets_of(size)
        elif isinstance(verb, Read):
            rows.append((0x0C, psn & 0xFFFFFF, 0))
            psn += packets_of(verb.length)
        else:
            rows.append((0x13 if isinstance(verb, CompareSwap) else 0x14, psn & 0xFFFFFF, 0))
            psn += 1
    return rows


def expected_responses(posted: list[Verb], first_psn: int) -> list[tuple[int, int, int]]:
    """(opcode, PSN, payload bytes) of each response to a READ or atomic."""
    psn, rows = first_psn, []
    for verb in posted:
        if isinstance(verb, Read):
            for index, opcode in enumerate(segments(0x0D, 0x0E, 0x0F, 0x10, packets_of(verb.length))):
                rows.append((opcode, (psn + index) & 0xFFFFFF, min(MTU, verb.length - index * MTU)))
            psn += packets_of(verb.length)
        elif isinstance(verb, Write | Send):
            psn += packets_of(len(bytes(verb.data)))
        else:
            rows.append((0x12, psn & 0xFFFFFF, 0))
            psn += 1
    return rows


def test_the_capture_is_whole(traffic: Traffic) -> None:
    assert (traffic.said["packets"], traffic.said["lost"], traffic.said["whole"]) == (len(traffic.frames), 0, True)
    foreign = [frame.hex() for time_ns, frame in traffic.frames if roce_reading.read(time_ns, frame) is None]
    # The kernel of the test's own bridge may say something of its own there, but nothing in IP.
    assert all(frame[24:28] != "0800" for frame in foreign), foreign


def test_the_requests_are_just_those_of_the_standard(traffic: Traffic) -> None:
    sent = [row for row in traffic.read if row.source == traffic.addresses[0]]
    assert [(row.opcode, row.psn, len(row.payload)) for row in sent] == expected_requests(
        traffic.verbs, traffic.first_psn
    )  # fmt: skip
    assert {row.psn for row in traffic.read} >= {0xFFFFFF, 0}, "the numbers have wrapped"
    assert b"".join(row.payload for row in sent) == b"".join(
        bytes(verb.data) for verb in traffic.verbs if isinstance(verb, Write | Send)
    )
    # An acknowledgement is asked for at the end of each message (and within long ones).
    ends = [row.ack_request for row in sent if row.opcode in (0x02, 0x04, 0x08, 0x0A)]
    assert all(ends)


def test_requests_name_the_memory_that_was_meant(traffic: Traffic) -> None:
    named = [row for row in traffic.read if row.address is not None]
    meant = [verb for verb in traffic.verbs if not isinstance(verb, Send)]
    assert len(named) == len(meant)
    for row, verb in zip(named, meant, strict=True):
        assert (row.address, row.key) == (verb.remote.address, verb.remote.key)  # type: ignore[attr-defined]
        match verb:
            case Write(data=data):
                assert row.length == len(bytes(data))
            case Read(length=length):
                assert row.length == length
            case CompareSwap(expected=compare, desired=swap):
                assert (row.compare, row.swap) == (compare, swap)
            case FetchAdd(addend=addend):
                assert row.swap == addend


def test_the_answers_are_just_those_of_the_standard(traffic: Traffic) -> None:
    answers = [row for row in traffic.read if row.source == traffic.addresses[1]]
    data = [row for row in answers if row.opcode != 0x11]
    assert [(row.opcode, row.psn, len(row.payload)) for row in data] == expected_responses(
        traffic.verbs, traffic.first_psn
    )  # fmt: skip
    assert {row.syndrome for row in answers} <= {None, 0x1F}, "a NAK on a link that loses nothing"
    # Message sequence numbers count finished requests (IBA 9.7.5): they never go back, and end at their number.
    counted = [row.msn for row in answers if row.msn is not None]
    assert counted == sorted(counted)
    assert counted[-1] == len(traffic.verbs)
    # Every WRITE and SEND is acknowledged by its last packet's number.
    acknowledged = {row.psn for row in answers if row.opcode == 0x11}
    ends = {row.psn for row in traffic.read if row.source == traffic.addresses[0] and row.opcode in (2, 4, 8, 0x0A)}
    assert ends <= acknowledged


def test_headers_around_the_packets(traffic: Traffic) -> None:
    for row in traffic.read:
        ours = row.source == traffic.addresses[0]
        assert (row.identification, row.type_of_service, row.partition) == (0, LEVEL << 4, 0xFFFF)
        assert row.queue_pair == (0x200 if ours else 0x100)
        assert row.source_port == (0xC100 if ours else 0xC200)
        assert row.pad == -len(row.payload) % 4
        assert row.frame[20] & 0x40, "may be fragmented"


def test_every_icrc_is_that_of_both_references(traffic: Traffic) -> None:
    for place, row in enumerate(traffic.read):
        if len(row.payload) < MTU or place % 16 == 0:  # a bytewise CRC of every full packet would take a minute
            assert roce_reading.icrc(row.frame) == row.icrc, row
        assert Ether(row.frame)[BTH].compute_icrc(row.frame[42:-4]) == row.icrc, row


def test_both_references_see_a_flipped_bit(traffic: Traffic) -> None:
    row = traffic.read[0]
    damaged = row.frame[:-8] + bytes([row.frame[-8] ^ 1]) + row.frame[-7:]
    assert roce_reading.icrc(damaged) != row.icrc
    assert Ether(damaged)[BTH].compute_icrc(damaged[42:-4]) != row.icrc


TSHARK_FIELDS = {
    "ip.src": "source", "udp.srcport": "source_port", "infiniband.bth.opcode": "opcode",
    "infiniband.bth.padcnt": "pad", "infiniband.bth.p_key": "partition", "infiniband.bth.destqp": "queue_pair",
    "infiniband.bth.a": "ack_request", "infiniband.bth.psn": "psn", "infiniband.reth.r_key": "key",
    "infiniband.reth.va": "address", "infiniband.reth.dmalen": "length", "infiniband.aeth.syndrome": "syndrome",
    "infiniband.aeth.msn": "msn", "infiniband.atomiceth.swapdt": "swap", "infiniband.atomiceth.cmpdt": "compare",
    "infiniband.atomicacketh.origremdt": "original",
}  # fmt: skip


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark (apt-get install tshark)")
def test_tshark_reads_the_same_in_every_packet(traffic: Traffic) -> None:
    # Heuristic dissectors would take payloads for other protocols on top of InfiniBand; they are not what is asked.
    words = ["tshark", "-r", str(traffic.pcap), "-Y", "infiniband", "-T", "fields"]
    words += ["-E", "separator=|", "-E", "occurrence=f"]
    for field in TSHARK_FIELDS:
        words += ["-e", field]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=120)
    lines = done.stdout.splitlines()
    assert len(lines) == len(traffic.read)
    for line, row in zip(lines, traffic.read, strict=True):
        for (field, name), text in zip(TSHARK_FIELDS.items(), line.split("|"), strict=True):
            wanted = getattr(row, name)
            found: object = text if field == "ip.src" else (int(text, 0) if text else None)
            assert found == wanted, (field, row)
