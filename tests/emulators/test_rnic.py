"""The soft RNIC as a process: the verbs end to end, software that is stopped or dies, links that break, hostility."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from emulators.nic_pair import OWNER, REGION, REQUESTER, LinkedNamespaces, NicPair, wait_for
from emulators.rnic_ports import MAKE_UP
from emulators.verbs import NicDeclined, NoNic, Verbs
from testbed.events.fidelity_events import RnicMeasured
from testbed.events.log import read_log
from testbed.events.run_events import LineLogged
from testbed.experiment.live_lanes import claimed_path, tables_path, write_tables
from testbed.experiment.plan import write_plan
from testbed.machine import (
    CompareSwap,
    Completion,
    CompletionStatus,
    FetchAdd,
    Read,
    Received,
    RemoteAddress,
    Send,
    Verb,
    Write,
)
from testbed.network.lanes import LaneTable
from tests.emulators.nic_work import post, statuses

MIB = 1 << 20


@pytest.fixture(scope="module")
def steady() -> Iterator[NicPair]:
    """One pair for all tests that leave it as it was."""
    with NicPair() as pair:
        yield pair


# --- the verbs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 3, 1023, 1024, 1025, 4095, 4096, 4097, 65536, MIB, MIB + 5])
def test_what_is_written_is_read_back(steady: NicPair, size: int) -> None:
    steady.memory.view[:] = bytes(REGION.size)
    data = os.urandom(size)
    place = steady.remote.at(3)
    written, read = post(
        steady, Write(1, OWNER, remote=place, data=data), Read(2, OWNER, remote=place, length=size)
    )
    assert statuses([written, read]) == ["SUCCESS", "SUCCESS"]
    assert read.data == data
    assert bytes(steady.memory.view[3 : 3 + size]) == data
    assert bytes(steady.memory.view[:3]) == bytes(3), "a byte before the place was touched"
    assert not any(steady.memory.view[3 + size : 4096 + 3 + size])


def test_completions_come_in_the_order_of_posting(steady: NicPair) -> None:
    verbs: list[Verb] = []
    for ticket in range(300):
        place = steady.remote.at(ticket % 64 * 8)
        kinds: tuple[Verb, ...] = (
            Write(ticket, OWNER, remote=place, data=bytes(8)),
            Read(ticket, OWNER, remote=place, length=9000),
            CompareSwap(ticket, OWNER, remote=place, expected=0, desired=0),
            FetchAdd(ticket, OWNER, remote=place, addend=0),
        )
        verbs.append(kinds[ticket % 4])
    completions = post(steady, *verbs)
    assert [completion.ticket for completion in completions] == list(range(300))
    assert set(statuses(completions)) == {"SUCCESS"}


def test_atomics_of_peer_and_owner_lose_nothing(steady: NicPair) -> None:
    local = 0
    steady.memory.store(64, 0)
    software = steady.verbs[REQUESTER]
    for ticket in range(400):
        software.post(FetchAdd(ticket, OWNER, remote=steady.remote.at(64), addend=3), more=ticket % 10 != 9)
    done: list[object] = []
    while len(done) < 400:
        done += software.poll()
        steady.memory.fetch_add(64, 5)
        local += 1
    assert steady.memory.load(64) == 400 * 3 + local * 5


def test_compare_swap_says_what_was_there(steady: NicPair) -> None:
    word = steady.remote.at(128)
    steady.memory.store(128, 2**64 - 1)
    miss, hit = post(
        steady,
        CompareSwap(1, OWNER, remote=word, expected=0, desired=9),
        CompareSwap(2, OWNER, remote=word, expected=2**64 - 1, desired=7),
    )
    assert (miss.original, hit.original, steady.memory.load(128)) == (2**64 - 1, 2**64 - 1, 7)


def test_sends_land_in_lent_places_and_the_places_come_back(steady: NicPair) -> None:
    owner = steady.verbs[OWNER]
    messages = [os.urandom(size) for size in (0, 1, 4096, 100)] * 10
    for ticket, message in enumerate(messages):
        assert statuses(post(steady, Send(ticket, OWNER, data=message))) == ["SUCCESS"]
        assert wait_for(owner) == [Received(REQUESTER, message)]
    owner.post(Send(1, REQUESTER, data=b"and back"))
    assert wait_for(owner) == [Completion(1)]
    assert wait_for(steady.verbs[REQUESTER]) == [Received(OWNER, b"and back")]


def test_a_send_that_nobody_receives_ends_in_an_error() -> None:
    with NicPair(receives=0) as pair:
        assert statuses(post(pair, Send(1, OWNER, data=b"hello"))) == ["RNR_RETRY_EXCEEDED"]


@pytest.mark.parametrize(
    "verb",
    [
        Write(1, OWNER, remote=RemoteAddress(REGION.address, REGION.key + 1), data=b"x"),
        Write(1, OWNER, remote=RemoteAddress(REGION.address + REGION.size, REGION.key), data=b"x"),
        Read(1, OWNER, remote=RemoteAddress(REGION.address - 1, REGION.key), length=2),
        FetchAdd(1, OWNER, remote=RemoteAddress(REGION.address + REGION.size, REGION.key), addend=1),
    ],
)
def test_memory_that_was_not_lent_is_an_access_error_and_ends_the_queue_pair(pair: NicPair, verb: Verb) -> None:
    after = Write(2, OWNER, remote=pair.remote, data=b"too late")
    assert statuses(post(pair, verb, after)) == ["REMOTE_ACCESS_ERROR", "FLUSHED"]
    assert not any(pair.memory.view[:8])


# --- the desk -----------------------------------------------------------------------------------------------------


def test_the_desk_declines_what_does_not_fit(steady: NicPair) -> None:
    with pytest.raises(NicDeclined, match=r"gpu0 has software already \(pid \d+\)"):
        steady.connect(OWNER)
    with pytest.raises(NicDeclined, match="NIC of gpu0, not of dpu0"):
        Verbs.connect(steady.socket(OWNER), steady.plan.node(REQUESTER))
    with pytest.raises(NicDeclined, match="no region 'other'; it has ring"):
        steady.verbs[OWNER].register(_region(name="other"))
    with pytest.raises(NicDeclined, match=r"region ring has 4194304 bytes in the plan, not 8192"):
        steady.verbs[OWNER].register(_region(size=8192))
    with pytest.raises(NoNic, match="nowhere"):
        Verbs.connect(steady.folder / "nowhere", steady.plan.node(OWNER), timeout_s=0.05)
    assert statuses(post(steady, Read(1, OWNER, remote=steady.remote, length=8))) == ["SUCCESS"]


def _region(**changes: object) -> type(REGION):  # type: ignore[valid-type]
    fields = {field: getattr(REGION, field) for field in REGION.__struct_fields__}
    return type(REGION)(**{**fields, **changes})


def test_babble_at_the_socket_harms_nobody(steady: NicPair) -> None:
    for noise in (b"", b"{", b"x" * 9000, b'{"type":"hello"}', b'{"type":"agreed"}'):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as babbler:
            babbler.connect(str(steady.socket(OWNER)))
            babbler.settimeout(2)
            babbler.send(noise)
            assert b"agreed" not in babbler.recv(4096)
    assert statuses(post(steady, Read(1, OWNER, remote=steady.remote, length=8))) == ["SUCCESS"]


def test_a_forged_work_request_is_refused_and_a_forged_counter_ends_the_software(pair: NicPair) -> None:
    software = pair.verbs[REQUESTER]
    requests = software._requests
    for number, fields in enumerate(
        [
            (1, 0, 0, 0x100, 0, REGION.address, REGION.key, 100, software._area.size, 0, 0),
            (2, 0, 0, 0x100, 0, REGION.address, REGION.key, 2**32 - 1, 0, 0, 0),
            (1, 0, 0, 0x999, 0, REGION.address, REGION.key, 8, 0, 0, 0),
            (77, 0, 0, 0x100, 0, REGION.address, REGION.key, 8, 0, 0, 0),
        ]
    ):
        number += 1000
        requests.put(*fields[:4], number, *fields[5:])
        software._in_flight[number] = (number, 0, 0)
    software._unpublished = True
    software.ring_doorbell()
    found = wait_for(software, 4)
    assert found == [Completion(1000 + number, CompletionStatus.LOCAL_PROTECTION_ERROR) for number in range(4)]

    software.post(Read(1, OWNER, remote=pair.remote, length=8), more=True)
    software._unpublished = False
    software._queues.memory.store(64, 2**40)
    software._doorbell.ring()
    assert wait_for(software) == [Completion(1, CompletionStatus.FLUSHED)]
    software.close()
    pair.verbs[REQUESTER] = pair.connect(REQUESTER)
    assert statuses(post(pair, Read(1, OWNER, remote=pair.remote, length=8))) == ["SUCCESS"]


# --- start, end and log -------------------------------------------------------------------------------------------


def test_a_nic_that_is_told_to_end_leaves_nothing(pair: NicPair) -> None:
    process = pair.processes[OWNER]
    mapped = Path(f"/proc/{process.pid}/maps").read_text()
    assert "/memfd:" in mapped
    assert "/dev/shm" not in mapped, "what it maps has a name that outlives it"
    process.terminate()
    assert process.wait(timeout=5) == 0
    assert not pair.socket(OWNER).exists()
    pair.start(OWNER)
    pair.verbs.pop(OWNER).close()
    pair.verbs[OWNER] = pair.connect(OWNER)


def test_a_killed_nics_path_is_taken_over_and_a_living_ones_is_not(pair: NicPair) -> None:
    process = pair.processes[OWNER]
    process.kill()
    process.wait()
    assert pair.socket(OWNER).exists()
    pair.start(OWNER)
    pair.verbs.pop(OWNER).close()
    pair.verbs[OWNER] = pair.connect(OWNER)
    command = [sys.executable, "-m", "emulators.rnic", "--run", str(pair.folder), "--node", OWNER]
    second = subprocess.run([*command, "--socket", str(pair.folder / "other")], capture_output=True, text=True)
    assert second.returncode == 3
    assert "gpu0: the soft RNIC cannot start" in second.stderr
    assert second.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--node", "gpu7"], "no node 'gpu7'; the plan has dpu0, gpu0"),
        (["--node", "gpu0", "--drop", "1.5"], "drop is 1.5; allowed is 0 to 1"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(steady: NicPair, arguments: list[str], message: str) -> None:
    paths = ["--run", str(steady.folder), "--socket", str(steady.folder / "other")]
    command = [sys.executable, "-m", "emulators.rnic", *paths, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"interface": "eth7"}, "node gpu0: queue pair 0x200 is on eth7, no RoCE port"),
        ({"initial_psn": 1 << 24}, "node gpu0: queue pair 0x200: initial_psn is 16777216; allowed is 0 to 16777215"),
    ],
)
def test_a_plan_that_no_nic_can_follow_is_one_line_and_exit_2(
    steady: NicPair, tmp_path: Path, changes: dict[str, object], message: str
) -> None:
    plan = steady.plan
    owner = plan.nodes[1]
    pair = msgspec.structs.replace(owner.queue_pairs[0], **changes)
    owner = msgspec.structs.replace(owner, queue_pairs=(pair,))
    (tmp_path / "plan.json").write_bytes(write_plan(msgspec.structs.replace(plan, nodes=(plan.nodes[0], owner))))
    paths = ["--run", str(tmp_path), "--socket", str(tmp_path / "nic")]
    command = [sys.executable, "-m", "emulators.rnic", *paths, "--node", OWNER]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_log_is_in_true_time_and_complete(pair: NicPair) -> None:
    epoch = time.monotonic_ns()
    (pair.folder / "control" / "draft").write_text(f'{{"epoch_monotonic_ns": {epoch}, "dilation": 10.0}}')
    (pair.folder / "control" / "draft").rename(pair.folder / "control" / "start.json")
    post(pair, Write(1, OWNER, remote=pair.remote, data=bytes(40_000)))
    time.sleep(1.3)
    post(pair, Write(2, OWNER, remote=pair.remote, data=bytes(40_000)))
    pair.processes[OWNER].terminate()
    assert pair.processes[OWNER].wait(timeout=5) == 0
    wall = time.monotonic_ns() - epoch
    records = list(read_log(pair.folder / "events" / "gpu0-nic.jsonl"))
    kinds = [type(record.event).__name__ for record in records]
    assert kinds.count("NodeHeartbeat") >= 5
    assert kinds.count("RnicMeasured") >= 2
    assert kinds[-1] == "NodeStopped"
    assert [record.seq for record in records] == list(range(len(records)))
    assert 0 < records[-1].t <= wall // 10
    measured = [record.event for record in records if type(record.event).__name__ == "RnicMeasured"]
    assert sum(event.packets_received for event in measured) == 20  # type: ignore[attr-defined]


# --- lanes and pace -----------------------------------------------------------------------------------------------


def test_the_uplink_is_never_faster_than_its_rate() -> None:
    with NicPair(rate_bits_per_s=100_000_000) as pair:
        start = time.monotonic_ns()
        assert statuses(post(pair, Write(1, OWNER, remote=pair.remote, data=bytes(MIB)))) == ["SUCCESS"]
        # 256 packets of 4,096 + 58 bytes, less the first, which leaves at once, and what may be made up for.
        assert time.monotonic_ns() - start >= 255 * 4154 * 80 - MAKE_UP


def test_backlogged_lanes_share_the_uplink_by_the_tables_weights() -> None:
    table = LaneTable(max_vls=2, high_limit=255, vlarb_high="0:195,1:65", vlarb_low="0:1", sl2vl="0,1")
    with NicPair(rate_bits_per_s=100_000_000, lanes=table, service_levels=(0, 1)) as pair:
        software = pair.verbs[REQUESTER]
        for ticket in range(60):
            for level in (0, 1):
                verb = Write(2 * ticket + level, OWNER, level, remote=pair.remote, data=bytes(64 * 1024))
                software.post(verb, more=True)
        software.ring_doorbell()
        # While both lanes are backlogged: the first 60 messages that end.
        ended = [message.ticket % 2 for message in wait_for(software, 60)[:60] if isinstance(message, Completion)]
        share = ended.count(0) / len(ended)
        assert 0.68 <= share <= 0.82, f"lane 0 had {share:.0%}, its weight is 75 %"


def test_a_table_changed_live_arbitrates_what_waits_and_loses_nothing() -> None:
    """SIGHUP with other tables in control/: shares change over, all verbs of a level complete in order; nonsense in
    the file changes nothing.
    """
    first = LaneTable(max_vls=2, high_limit=255, vlarb_high="0:195,1:65", vlarb_low="0:1", sl2vl="0,1")
    other = LaneTable(max_vls=3, high_limit=255, vlarb_high="1:65,2:195", vlarb_low="1:1,0:1", sl2vl="1,2")
    with NicPair(rate_bits_per_s=100_000_000, lanes=first, service_levels=(0, 1)) as pair:
        software, path = pair.verbs[REQUESTER], tables_path(pair.folder, REQUESTER)
        for ticket in range(160):
            for level in (0, 1):
                verb = Write(2 * ticket + level, OWNER, level, remote=pair.remote, data=bytes(16 * 1024))
                software.post(verb, more=True)
        software.ring_doorbell()
        done = wait_for(software, 60)
        write_tables(path, {"cnic0": other, "of another": first})
        pair.processes[REQUESTER].send_signal(signal.SIGHUP)
        while path.exists() or claimed_path(path).exists():
            time.sleep(0.001)
        done += software.poll()
        changed = len(done)
        done += (after := wait_for(software, 80))
        done += wait_for(software, 320 - len(done))
        assert changed < 200
        for level in (0, 1):
            ours = [one for one in done if isinstance(one, Completion) and one.ticket % 2 == level]
            assert ours == [Completion(2 * ticket + level) for ticket in range(160)]
        share = sum(message.ticket % 2 == 0 for message in after if isinstance(message, Completion)) / len(after)
        assert 0.15 <= share <= 0.35, f"level 0 had {share:.0%}, its weight is 25 % now"
        path.write_text("{")
        pair.processes[REQUESTER].send_signal(signal.SIGHUP)
        assert statuses(post(pair, Write(999, OWNER, remote=pair.remote, data=b"x"))) == ["SUCCESS"]
        pair.processes[REQUESTER].terminate()
        pair.processes[REQUESTER].wait()
        events = [record.event for record in read_log(pair.folder / "events" / f"{REQUESTER}-nic.jsonl")]
        said = [event.text for event in events if isinstance(event, LineLogged)]
        # A packet that was lost, or overtaken by a later one of its queue pair, would have been sent again.
        counted = [event for event in events if isinstance(event, RnicMeasured)]
        assert sum(event.resent + event.sequence_errors + event.naks for event in counted) == 0
    assert "lanes of cnic0 are those of another table" in said
    assert any(text.startswith("dpu0.lanes.json: ") for text in said)


# --- in network namespaces ----------------------------------------------------------------------------------------

CAPTURE = """
import socket, sys
packets = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
packets.bind(("p0", 0))
packets.settimeout(10)
print("ready", flush=True)
seen = 0
while seen < int(sys.argv[1]):
    frame = packets.recv(9000)
    if frame[12:14] == b"\\x08\\x00" and frame[23] == 17:
        print(frame.hex(), flush=True)
        seen += 1
"""


@pytest.mark.root
def test_packets_on_the_wire_are_rocev2_with_id_0_and_the_levels_dscp(namespaces: LinkedNamespaces) -> None:
    from scapy.contrib.roce import BTH
    from scapy.layers.l2 import Ether

    with NicPair(namespaces, service_levels=(0, 2)) as pair:
        command = ["ip", "netns", "exec", namespaces.switch, sys.executable, "-c", CAPTURE, "14"]
        capture = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert capture.stdout is not None
        assert capture.stdout.readline() == "ready\n"
        try:
            post(
                pair,
                Write(1, OWNER, 2, remote=pair.remote, data=os.urandom(10_001)),
                Read(2, OWNER, 2, remote=pair.remote, length=9_001),
                CompareSwap(3, OWNER, 2, remote=pair.remote, expected=0, desired=1),
                FetchAdd(4, OWNER, 2, remote=pair.remote, addend=1),
                Write(5, OWNER, 2, remote=pair.remote, data=b"odd"),
                Read(6, OWNER, 2, remote=pair.remote, length=1),
            )
            output, _ = capture.communicate(timeout=20)
        finally:
            capture.kill()
            capture.wait()
    frames = [bytes.fromhex(line) for line in output.split()]
    assert len(frames) == 14
    for frame in frames:
        packet = Ether(frame)
        assert packet["IP"].id == 0
        assert packet["IP"].flags == "DF"
        assert packet["IP"].tos == 2 << 4
        assert packet["UDP"].dport == 4791
        assert packet["UDP"].sport == (0xC101 if packet["IP"].src == pair.addresses[0] else 0xC201)
        stored = frame[-4:]
        assert packet[BTH].compute_icrc(bytes(packet[BTH])[:-4]) == stored, "scapy finds another ICRC"


@pytest.mark.root
def test_a_link_that_is_deleted_ends_verbs_with_an_error(namespaces: LinkedNamespaces) -> None:
    with NicPair(namespaces) as pair:
        assert statuses(post(pair, Write(1, OWNER, remote=pair.remote, data=b"x"))) == ["SUCCESS"]
        for ticket in range(50):
            pair.verbs[REQUESTER].post(Write(ticket, OWNER, remote=pair.remote, data=bytes(MIB)))
        namespaces.cut(0)
        ended = wait_for(pair.verbs[REQUESTER], 50)
        names = [message.status.name for message in ended if isinstance(message, Completion)]
        assert len(names) == 50
        assert names[-1] == "FLUSHED"
        assert names.count("RETRY_EXCEEDED") == 1
        assert pair.processes[REQUESTER].poll() is None, "the NIC died with its link"


@pytest.mark.root
def test_it_becomes_hardware_where_the_host_permits() -> None:
    with NicPair(options=["--fifo", "7", "--cores", "0"]) as pair:
        for process in pair.processes.values():
            assert os.sched_getscheduler(process.pid) == os.SCHED_FIFO
            assert os.sched_getparam(process.pid).sched_priority == 7
            assert os.sched_getaffinity(process.pid) == {0}
        assert statuses(post(pair, Write(1, OWNER, remote=pair.remote, data=b"x"))) == ["SUCCESS"]


@pytest.mark.root
def test_namespaces_are_gone_after_use() -> None:
    def listed() -> str:
        return subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout

    with LinkedNamespaces() as namespaces:
        assert all(name in listed() for name in namespaces.names)
    assert not any(name in listed() for name in namespaces.names)


