"""The soft RNIC over bad links: losses, doubles, wrong order and damage change no byte, and are repaired within bounds.

The NIC's own die makes each kind of fault on purpose; packets are also dropped behind its back, by the kernel, and
damaged ones are put on the wire by hand. Speed is nobody's business here, except that nothing may go on for ever.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from typing import Any

import pytest

from emulators.nic_pair import OWNER, REGION, REQUESTER, LinkedNamespaces, NicPair, wait_for
from emulators.rnic_bench import cpu_ns
from emulators.wire_faults import KINDS
from testbed.events.fidelity_events import RnicMeasured
from testbed.events.log import read_log
from testbed.machine import Completion, FetchAdd, Read, Write
from testbed.network.roce import Flow, Opcode, Packet, Reth, source_port
from topologies.namespaces import network_of

KIB64 = 1 << 16
ROUND_PACKETS = 16 + 1 + 16 + 3
"""Packets of one round that a perfect link carries: WRITE, atomic and READ of 64 KiB, and their answers."""


def work(pair: NicPair, rounds: int) -> None:
    """Rounds of all verbs, every answer compared with what it must be."""
    software, original = pair.verbs[REQUESTER], pair.memory.load(0)
    for turn in range(rounds):
        data, place = os.urandom(KIB64), pair.remote.at(8 + turn % 40)
        software.post(Write(3 * turn, OWNER, remote=place, data=data))
        software.post(FetchAdd(3 * turn + 1, OWNER, remote=pair.remote, addend=1))
        software.post(Read(3 * turn + 2, OWNER, remote=place, length=KIB64))
        done = wait_for(software, 3)
        assert done == [
            Completion(3 * turn), Completion(3 * turn + 1, original=original + turn),
            Completion(3 * turn + 2, data=data),
        ]  # fmt: skip
    assert pair.memory.load(0) == original + rounds
    assert software.poll() == []


def counters(pair: NicPair, *names: str) -> dict[str, dict[str, int]]:
    """Ends both NICs and returns what they (or those of `names`) counted."""
    for process in pair.processes.values():
        process.terminate()
        process.wait()
    counted = {}
    for name in names or pair.names:
        events = [record.event for record in read_log(pair.folder / "events" / f"{name}-nic.jsonl")]
        last = [event for event in events if isinstance(event, RnicMeasured)][-1]
        counted[name] = {field: getattr(last, field) for field in last.__struct_fields__ if field != "rnic"}
    return counted


@pytest.mark.parametrize("rate", [0.001, 0.01, 0.05])
@pytest.mark.parametrize("kind", [*KINDS, "all at once"])
def test_faults_change_no_byte_and_are_repaired_within_bounds(kind: str, rate: float, soak: bool) -> None:
    rounds = 300 if soak else 12
    kinds = KINDS if kind == "all at once" else (kind,)
    with NicPair(options=[word for one in kinds for word in (f"--{one}", str(rate))]) as pair:
        before = {name: cpu_ns(process.pid) for name, process in pair.processes.items()}
        work(pair, rounds)
        used = sum(cpu_ns(process.pid) - before[name] for name, process in pair.processes.items())
        counted = counters(pair)
    sent = sum(each["packets_sent"] for each in counted.values())
    needed = rounds * ROUND_PACKETS
    # Go-back-N sends at most a window (here: the message) again for each fault, and an answer for each packet.
    assert needed <= sent <= needed * (1 + 60 * rate * len(kinds)) + 100, counted
    print(f"{used / sent / 1000:.0f} us of CPU a packet, {sent / needed:.2f} sent for each that is needed")
    # A guard against spinning: some times what a packet takes, and what the processes take for the time they lived.
    assert used <= 150_000 * sent + 500_000_000, f"{used / 1e9:.2f} s for {sent} packets"
    total = {field: sum(each[field] for each in counted.values()) for field in counted[REQUESTER]}
    if kind in ("drop", "duplicate"):
        assert total["icrc_errors"] == 0
    if rate > 0.02:
        assert total["icrc_errors"] > 0 or "corrupt" not in kinds
        assert total["resent"] > 0 or kind == "duplicate"


@pytest.mark.root
@pytest.mark.parametrize("rate", [0.001, 0.01, 0.05])
def test_packets_that_the_kernel_drops_are_sent_again(namespaces: LinkedNamespaces, rate: float, soak: bool) -> None:
    """Losses that no part of ours knows of, in both receivers (platform.md §1)."""
    for index in range(2):
        rule = ["iptables", "-A", "INPUT", "-p", "udp", "--dport", "4791", "-m", "statistic", "--mode", "random"]
        words = [*namespaces.prefix(index), *rule, "--probability", str(rate), "-j", "DROP"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"iptables cannot drop at random here: {done.stderr.strip()}")
    rounds = 300 if soak else 12
    with NicPair(namespaces) as pair:
        work(pair, rounds)
        counted = counters(pair)
    sent = sum(each["packets_sent"] for each in counted.values())
    assert sent <= rounds * ROUND_PACKETS * (1 + 60 * rate) + 100
    if rate > 0.02:
        assert sum(each["resent"] for each in counted.values()) > 0


class ByHand:
    """A socket in the requester's namespace in place of its NIC, which has been ended."""

    def __init__(self, pair: NicPair) -> None:
        plan = pair.plan.node(REQUESTER).queue_pairs[0]
        self.peer_number, self.psn = plan.peer_number, plan.initial_psn
        self.flow = Flow(pair.addresses[0], pair.addresses[1], source_port(plan.number))
        self.target = (pair.addresses[1], 4791)
        process = pair.processes[REQUESTER]
        with network_of(process.pid):
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        process.kill()
        process.wait()
        self.socket.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER, IP_PMTUDISC_DO: IP id 0
        self.socket.bind((pair.addresses[0], source_port(plan.number)))

    def write(self, offset: int, data: bytes) -> bytes:
        """The datagram of a WRITE of one packet at the present sequence number."""
        reth = Reth(REGION.address + offset, REGION.key, len(data))
        psn = self.psn & 0xFFFFFF
        return self.flow.build(Packet(Opcode.WRITE_ONLY, self.peer_number, psn, True, reth, payload=data))

    def send(self, datagram: bytes, **options: Any) -> None:
        """Puts a datagram on the wire, with `tos` or `ttl` as given."""
        for name, value in options.items():
            self.socket.setsockopt(socket.IPPROTO_IP, {"tos": socket.IP_TOS, "ttl": socket.IP_TTL}[name], value)
        self.socket.sendto(datagram, self.target)


@pytest.mark.root
def test_a_flipped_bit_anywhere_is_dropped_on_the_real_wire(namespaces: LinkedNamespaces) -> None:
    """Every bit that the ICRC covers; what it does not cover (FECN, BECN, DSCP, TTL) may change and does no harm."""
    with NicPair(namespaces) as pair:
        hand = ByHand(pair)
        with hand.socket:
            good = hand.write(64, b"six by")
            flipped = 0
            for bit in range(len(good) * 8):
                if bit // 8 == 4:  # FECN, BECN and the reserved bits beside them
                    continue
                damaged = bytearray(good)
                damaged[bit // 8] ^= 1 << bit % 8
                hand.send(bytes(damaged))
                flipped += 1
            _nothing_written(pair)
            hand.send(good)
            _written(pair, 64, b"six by")
            for step, (bit, options) in enumerate(
                [(32, {}), (38, {}), (39, {}), (None, {"tos": 0x2C}), (None, {"ttl": 3})]
            ):
                hand.psn += 1
                changed = bytearray(hand.write(128 + 8 * step, b"marked" + bytes([step])))
                if bit is not None:
                    changed[bit // 8] ^= 1 << bit % 8
                hand.send(bytes(changed), **options)
                _written(pair, 128 + 8 * step, b"marked" + bytes([step]))
        owner = counters(pair, OWNER)[OWNER]
    # A flip in the destination queue pair's number is for no queue pair: a stray, not an ICRC error.
    assert owner["icrc_errors"] == flipped - 24


def _nothing_written(pair: NicPair) -> None:
    time.sleep(0.1)  # what was going to be written would be there
    assert not any(pair.memory.view[:4096])


def _written(pair: NicPair, offset: int, data: bytes) -> None:
    limit = time.monotonic() + 5
    while bytes(pair.memory.view[offset : offset + len(data)]) != data:
        assert time.monotonic() < limit, f"{data!r} never arrived"
        time.sleep(0.001)
