"""Captures at switch ports: the first packet and the last, in order, readable by others (fault G11, A11)."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path

import bench_plans
import pytest
from bench_tree import BenchTree, finish, result, wait_for
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether
from scapy.utils import rdpcap

from emulators.capture import Capture, real_minus_monotonic
from testbed.events.fidelity_events import CaptureFinished
from testbed.events.log import read_log
from topologies.fabric import Fabric, SwitchPort
from topologies.namespaces import network_of

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("unchanged_host")]


def port(fabric: Fabric) -> SwitchPort:
    return next(port for port in fabric.ports() if port.name == "gpu0.cnic0")


def sender(fabric: Fabric) -> socket.socket:
    with network_of(fabric.pid_of("dpu0")):
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.IPPROTO_IP, 11, 0)  # IP_RECVERR off: nobody listens there, and that is all right
    return opened


def packets(path: Path) -> list[bytes]:
    """Frames of a pcap file; fails if the file is cut."""
    data = path.read_bytes()
    magic, major, minor, _, _, _, link = struct.unpack_from("=IHHiIII", data)
    assert (magic, major, minor, link) == (0xA1B23C4D, 2, 4, 1)
    found, offset = [], 24
    while offset < len(data):
        seconds, nanoseconds, kept, whole = struct.unpack_from("=IIII", data, offset)
        assert kept == whole
        # What comes in is stamped before it waits for the bridge, so times of both directions may cross a little.
        assert abs(seconds + nanoseconds / 1e9 - time.time()) < 60
        found.append(data[offset + 16 : offset + 16 + kept])
        offset += 16 + kept
    assert offset == len(data)
    return found


def test_one_packet_a_hundred_times(fabric: Fabric, tmp_path: Path) -> None:
    with sender(fabric) as out:
        for number in range(100):
            path = tmp_path / f"{number}.pcap"
            with network_of(port(fabric).pid):
                capture = Capture(port(fabric).device, path)
            out.sendto(b"packet %d" % number, ("10.61.0.3", 9))
            capture.finish()
            # The port unreachable that gpu0 answers with may be in it as well.
            found = [frame for frame in packets(path) if b"packet %d" % number in frame and frame[23] == 17]
            assert len(found) == 1
            assert capture.lost == 0


def test_every_packet_of_a_burst_in_order_and_of_full_size(fabric: Fabric, tmp_path: Path) -> None:
    path = tmp_path / "burst.pcap"
    with network_of(port(fabric).pid):
        capture = Capture(port(fabric).device, path)
    with sender(fabric) as out:
        for number in range(2000):
            out.sendto(number.to_bytes(4, "big").ljust(4172, b"."), ("10.61.0.3", 9))
    capture.finish()
    frames = [frame for frame in packets(path) if frame[23] == 17 and len(frame) == 4214]
    assert [int.from_bytes(frame[42:46], "big") for frame in frames] == list(range(2000))
    assert capture.lost == 0
    decoded = rdpcap(str(path))
    assert decoded[0][Ether][IP].dst == "10.61.0.3"
    assert abs(float(decoded[0].time) - time.time()) < 60


def test_the_process_says_when_it_sees_and_what_it_has(fabric: Fabric, tmp_path: Path, soak: bool) -> None:
    for number in range(100 if soak else 3):
        path, state = tmp_path / f"{number}.pcap", tmp_path / f"{number}.json"
        words = ["--device", port(fabric).device, "--file", path, "--state", state]
        with network_of(port(fabric).pid):
            process = subprocess.Popen([sys.executable, "-m", "emulators.capture", *map(str, words)], text=True)
        wait_for(state, process)
        assert json.loads(state.read_text()) == {"state": "ready"}
        with sender(fabric) as out:
            out.sendto(b"the only one", ("10.61.0.3", 9))
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        said = json.loads(state.read_text())
        assert (said["state"], said["lost"]) == ("finished", 0)
        assert said["packets"] == len(packets(path))
        assert abs(said["clock_drift_ns"]) < 50_000_000  # nobody sets the clock meanwhile
        assert sum(b"the only one" in frame and frame[23] == 17 for frame in packets(path)) == 1


def test_frames_stand_on_the_runs_time_by_the_clocks_offset(fabric: Fabric, tmp_path: Path) -> None:
    path = tmp_path / "timed.pcap"
    with network_of(port(fabric).pid):
        capture = Capture(port(fabric).device, path)
    with sender(fabric) as out:
        before = time.monotonic_ns()
        out.sendto(b"now", ("10.61.0.3", 9))
        after = time.monotonic_ns() + 50_000_000  # the bridge may take its time
    capture.finish()
    seconds, nanoseconds = struct.unpack_from("=II", path.read_bytes(), 24)
    drift = real_minus_monotonic() - capture.clock_offset_ns
    slack = abs(drift) + 100_000  # two readings of two clocks
    assert before - slack <= seconds * 1_000_000_000 + nanoseconds - capture.clock_offset_ns <= after + slack


def test_frames_that_find_no_room_are_counted(fabric: Fabric, tmp_path: Path) -> None:
    """The capture's drop counter is the kernel's: a socket with no room to speak of loses frames and says how many."""
    path = tmp_path / "small.pcap"
    with network_of(port(fabric).pid):
        capture = Capture(port(fabric).device, path, buffer_bytes=8_192)
    with sender(fabric) as out:
        for number in range(100):
            out.sendto(number.to_bytes(4, "big").ljust(4172, b"."), ("10.61.0.3", 9))
    time.sleep(0.2)
    capture.finish()
    kept = [frame for frame in packets(path) if frame[23] == 17 and len(frame) == 4214]
    assert len(kept) < 100
    assert capture.lost >= 100 - len(kept)


@pytest.mark.parametrize("number", range(2))
def test_an_idle_link_is_silent(fabric: Fabric, tmp_path: Path, soak: bool, number: int) -> None:
    """Fault B12: IPv6 is off before the first link is there, so an idle port carries no frame at all."""
    port = fabric.ports()[number]
    with network_of(port.pid):
        capture = Capture(port.device, tmp_path / "idle.pcap")
    time.sleep(60 if soak else 2.5)
    capture.finish()
    assert (capture.packets, capture.lost) == (0, 0)


def test_a_device_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    words = ["--device", "none0", "--file", tmp_path / "x", "--state", tmp_path / "y"]
    command = [sys.executable, "-m", "emulators.capture", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 4
    assert done.stderr.startswith("capture of none0: ")
    assert not (tmp_path / "y").exists()


def test_a_runs_captures_have_every_packet(tmp_path: Path, label: str) -> None:
    tree = BenchTree(tmp_path)
    captures = (bench_plans.capture("gpu0", "cnic0"), bench_plans.capture("client0", "front0"))
    plan = bench_plans.demo_plan(label, captures=captures, parameters={"datagrams": 300, "seconds": 0.5})
    folder = tree.make(plan)
    code, _, err = tree.run("run", folder, "--nodes", "namespace")
    assert code == 0, err
    frames = packets(folder / "captures" / "gpu0.cnic0.pcap")
    numbers = [int.from_bytes(frame[42:46], "big") for frame in frames if frame[23] == 17]
    assert numbers == list(range(300))
    assert packets(folder / "captures" / "client0.front0.pcap") == []  # an idle link is silent (fault B12)
    told = [record.event for record in read_log(folder / "events" / "bench.jsonl")]
    finished = {event.port: event for event in told if isinstance(event, CaptureFinished)}
    assert finished["gpu0.cnic0"].file == "captures/gpu0.cnic0.pcap"
    assert finished["gpu0.cnic0"].packets == len(frames)
    assert finished["client0.front0"].packets == 0


def test_kill_9_of_the_bench_leaves_no_capture_behind(tmp_path: Path, label: str) -> None:
    tree = BenchTree(tmp_path)
    captures = (bench_plans.capture("gpu0", "cnic0"),)
    folder = tree.make(bench_plans.demo_plan(label, captures=captures, parameters={"client0": "endless"}))
    process = tree.start("run", folder, "--nodes", "namespace")
    wait_for(folder / "control" / "start.json", process)
    finish(process, signal.SIGKILL)
    assert tree.run("clean")[0] == 0
    assert result(folder)["outcome"] == "lost"
    packets(folder / "captures" / "gpu0.cnic0.pcap")  # whole frames as far as it goes


def test_a_capture_at_its_limit_stands_and_costs_no_more(fabric: Fabric, tmp_path: Path) -> None:
    path, state = tmp_path / "limited.pcap", tmp_path / "limited.json"
    words = ["--device", port(fabric).device, "--file", path, "--state", state, "--limit-mib", "1"]
    with network_of(port(fabric).pid):
        process = subprocess.Popen([sys.executable, "-m", "emulators.capture", *map(str, words)], text=True)
    wait_for(state, process)
    with sender(fabric) as out:
        for number in range(1000):
            out.sendto(number.to_bytes(4, "big").ljust(4172, b"."), ("10.61.0.3", 9))
    process.send_signal(signal.SIGTERM)
    assert process.wait(10) == 0
    said = json.loads(state.read_text())
    assert said["state"] == "finished"
    assert not said["whole"]
    assert said["packets"] == len(packets(path))
    assert path.stat().st_size <= 1 << 20
