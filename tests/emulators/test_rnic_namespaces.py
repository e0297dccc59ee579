"""The soft RNIC in network namespaces: the contracts of the kernel's rxe tests (docs/models/soft_rnic.md).

Two runs on one host may have the same addresses; what belongs to a namespace ends with it; a wrong address is named.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
import pytest

from emulators.nic_pair import OWNER, REQUESTER, LinkedNamespaces, NamedNamespaces, NicPair, wait_for
from testbed.events.fidelity_events import RnicMeasured
from testbed.events.log import read_log
from testbed.experiment.plan import Plan, write_plan
from testbed.machine import Completion, CompletionStatus, FetchAdd, Read, Write

pytestmark = pytest.mark.root
ROCE_PORT = ":12B7"
"""4791, as /proc/net/udp writes it."""


def ports_open_beside(pid: int | str, addresses: Sequence[str] = ()) -> int:
    """Sockets at port 4791 (of these addresses, where some are named) in the network namespace of a process."""
    lines = Path(f"/proc/{pid}/net/udp").read_text().splitlines()[1:]
    words = {socket.inet_aton(address)[::-1].hex().upper() + ROCE_PORT for address in addresses}
    local = [line.split()[1] for line in lines]
    return sum(word in words if words else word.endswith(ROCE_PORT) for word in local)


def interface_counts(pid: int) -> list[int]:
    """Received bytes and packets, sent bytes and packets of cnic0 beside a process."""
    rows = Path(f"/proc/{pid}/net/dev").read_text().splitlines()
    words = next(row for row in rows if row.strip().startswith("cnic0:")).split(":")[1].split()
    return [int(words[place]) for place in (0, 1, 8, 9)]


def within(seconds: float, condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.01)


def test_traffic_passes_between_two_namespaces(namespaces: LinkedNamespaces) -> None:
    """rping between namespaces: every byte of the address space that was lent, both ways."""
    with NicPair(namespaces) as pair:
        for name, peer in ((REQUESTER, OWNER), (OWNER, REQUESTER)):
            software, data = pair.verbs[name], name.encode() * 30_000
            software.post(Write(1, peer, remote=pair.remote.at(64), data=data))
            software.post(Read(2, peer, remote=pair.remote.at(64), length=len(data)))
            assert wait_for(software, 2) == [Completion(1), Completion(2, data=data)]


def test_two_pairs_with_the_same_addresses_do_not_meet(namespaces: LinkedNamespaces) -> None:
    with LinkedNamespaces() as others, NicPair(namespaces) as one, NicPair(others) as other:
        assert one.addresses == other.addresses
        assert one.plan.nodes == other.plan.nodes, "numbers, keys and sequence numbers are the same too"
        for turn in range(20):
            for pair, step in ((one, 1), (other, 1000)):
                pair.verbs[REQUESTER].post(FetchAdd(turn, OWNER, remote=pair.remote, addend=step))
                assert wait_for(pair.verbs[REQUESTER]) == [Completion(turn, original=turn * step)]
        assert (one.memory.load(0), other.memory.load(0)) == (20, 20_000)
        namespaces.cut(0)
        other.verbs[REQUESTER].post(Write(99, OWNER, remote=other.remote, data=b"x"))
        assert wait_for(other.verbs[REQUESTER]) == [Completion(99)]


def test_two_devices_in_one_namespace_speak_by_their_own_addresses(namespaces: LinkedNamespaces) -> None:
    """Two NICs of one namespace, told apart by address alone, as two rxe devices of one host."""
    second = "10.61.7.9"
    subprocess.run([*namespaces.prefix(0), "ip", "addr", "add", f"{second}/24", "dev", "cnic0"], check=True)
    with subprocess.Popen([*namespaces.prefix(0), "sh", "-c", "echo; exec cat"], stdin=-1, stdout=-1) as inside:
        assert inside.stdout is not None
        assert inside.stdin is not None
        inside.stdout.readline()
        with NicPair(NamedNamespaces((inside.pid, inside.pid), (namespaces.addresses[0], second))) as pair:
            assert ports_open_beside(inside.pid) == 2
            for name, peer in ((REQUESTER, OWNER), (OWNER, REQUESTER)):
                data = name.encode() * 5_000
                pair.verbs[name].post(Write(1, peer, remote=pair.remote.at(64), data=data))
                pair.verbs[name].post(Read(2, peer, remote=pair.remote.at(64), length=len(data)))
                assert wait_for(pair.verbs[name], 2) == [Completion(1), Completion(2, data=data)]
        inside.stdin.close()


def test_what_one_end_has_sent_the_other_has_received(namespaces: LinkedNamespaces) -> None:
    """Bytes and packets of the two interfaces, by the kernel's counters, and packets by the NICs' own."""
    with NicPair(namespaces) as pair:
        before = [interface_counts(process.pid) for process in pair.processes.values()]
        for ticket in range(20):
            pair.verbs[REQUESTER].post(Write(ticket, OWNER, remote=pair.remote, data=bytes(100_000)))
        assert wait_for(pair.verbs[REQUESTER], 20) == [Completion(ticket) for ticket in range(20)]
        after = [interface_counts(process.pid) for process in pair.processes.values()]
        (a, b) = ([now - then for now, then in zip(*both, strict=True)] for both in zip(after, before, strict=True))
        for receiver, sender in ((a, b), (b, a)):
            # A veth counts what it receives without the Ethernet header.
            assert (receiver[0] + 14 * receiver[1], receiver[1]) == (sender[2], sender[3])
        for process in pair.processes.values():
            process.terminate()
            process.wait()
        logs = {name: read_log(pair.folder / "events" / f"{name}-nic.jsonl") for name in pair.names}
        counted = {
            name: [record.event for record in log if isinstance(record.event, RnicMeasured)]
            for name, log in logs.items()
        }
    sent = {name: sum(event.packets_sent for event in events) for name, events in counted.items()}
    received = {name: sum(event.packets_received for event in events) for name, events in counted.items()}
    assert (sent[REQUESTER], received[REQUESTER]) == (received[OWNER], sent[OWNER])
    assert (sent[REQUESTER], sent[OWNER]) == (a[3], b[3])
    full = 100_000 // 4096
    # Frames as /proc/net/dev counts them: Ethernet 14, IPv4 20, UDP 8, BTH 12, RETH 16 in the first, ICRC 4.
    assert a[2] == 20 * (100_000 + (full + 1) * 58 + 16)


def test_the_port_is_open_in_the_nodes_namespace_only(namespaces: LinkedNamespaces) -> None:
    with NicPair(namespaces) as pair:
        assert [ports_open_beside(process.pid) for process in pair.processes.values()] == [1, 1]
        assert [ports_open_beside(process.pid, pair.addresses) for process in pair.processes.values()] == [1, 1]
        assert ports_open_beside("self", pair.addresses) == 0
        keeper = subprocess.Popen([*namespaces.prefix(0), "sleep", "60"])
        try:
            pair.processes[REQUESTER].kill()
            pair.processes[REQUESTER].wait()
            within(2, lambda: ports_open_beside(keeper.pid) == 0)
        finally:
            keeper.kill()
            keeper.wait()


def test_a_namespace_that_is_deleted_takes_its_device_along(namespaces: LinkedNamespaces) -> None:
    """As long as a NIC lives in it, its device works on; with the last process it goes, at both ends of the cable."""

    def cables() -> str:
        words = ["ip", "netns", "exec", namespaces.switch, "ip", "-o", "link"]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout

    with NicPair(namespaces) as pair:
        subprocess.run(["ip", "netns", "delete", namespaces.names[1]], check=True)
        pair.verbs[REQUESTER].post(Write(1, OWNER, remote=pair.remote, data=b"still there"))
        assert wait_for(pair.verbs[REQUESTER]) == [Completion(1)]
        assert " p1@" in cables()
        pair.processes[OWNER].kill()
        pair.processes[OWNER].wait()
        within(10, lambda: " p1@" not in cables())
        pair.verbs[REQUESTER].post(Read(2, OWNER, remote=pair.remote, length=8))
        assert wait_for(pair.verbs[REQUESTER]) == [Completion(2, CompletionStatus.RETRY_EXCEEDED)]
        assert pair.processes[REQUESTER].poll() is None


def test_a_device_that_is_removed_under_traffic_ends_it_at_both_ends(namespaces: LinkedNamespaces) -> None:
    """Known fault D3, the kernel's NETDEV_UNREGISTER test: no hang, no crash, and both processes end when told."""
    with NicPair(namespaces) as pair:
        for name, peer in ((REQUESTER, OWNER), (OWNER, REQUESTER)):
            for ticket in range(10):
                pair.verbs[name].post(Write(ticket, peer, remote=pair.remote, data=bytes(1 << 20)))
        namespaces.cut(1)
        for name in pair.names:
            done = wait_for(pair.verbs[name], 10)
            assert [message.ticket for message in done if isinstance(message, Completion)] == list(range(10))
            last = done[-1]
            assert isinstance(last, Completion)
            assert last.status in (CompletionStatus.FLUSHED, CompletionStatus.RETRY_EXCEEDED)
        within(3, lambda: ports_open_beside(pair.processes[OWNER].pid) == 0)
        assert ports_open_beside(pair.processes[REQUESTER].pid) == 1, "its own interface is still there"
        for process in pair.processes.values():
            assert process.poll() is None
            process.terminate()
            assert process.wait(timeout=5) == 0


def _with_queue_pair(plan: Plan, **changes: object) -> Plan:
    """The plan with other values in the first node's queue pair."""
    first, *others = plan.nodes
    pair = msgspec.structs.replace(first.queue_pairs[0], **changes)
    return msgspec.structs.replace(plan, nodes=(msgspec.structs.replace(first, queue_pairs=(pair,)), *others))


def test_a_wrong_peer_address_ends_in_an_error_within_two_seconds(namespaces: LinkedNamespaces) -> None:
    """Known fault D7: an address (GID) that nobody has must not hang."""
    pair = NicPair(namespaces)
    pair.plan = _with_queue_pair(pair.plan, peer_address="10.61.7.77")
    with pair:
        start = time.monotonic()
        pair.verbs[REQUESTER].post(Read(1, OWNER, remote=pair.remote, length=8))
        assert wait_for(pair.verbs[REQUESTER]) == [Completion(1, CompletionStatus.RETRY_EXCEEDED)]
        assert time.monotonic() - start < 2


def test_an_own_address_that_is_not_there_is_one_line_that_names_it(
    namespaces: LinkedNamespaces, tmp_path: Path
) -> None:
    """Known fault D7: the NIC does not start, and says which address it lacks."""
    pair = NicPair(namespaces)
    first, *others = pair.plan.nodes
    port = msgspec.structs.replace(first.ports[0], address="10.61.7.66")
    plan = msgspec.structs.replace(pair.plan, nodes=(msgspec.structs.replace(first, ports=(port,)), *others))
    (tmp_path / "plan.json").write_bytes(write_plan(plan))
    words = [sys.executable, "-m", "emulators.rnic", "--run", str(tmp_path), "--node", first.name]
    done = subprocess.run(
        [*namespaces.prefix(0), *words, "--socket", str(tmp_path / "nic")], capture_output=True, text=True, timeout=20
    )
    assert done.returncode == 3
    assert "10.61.7.66" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "nic").exists()
