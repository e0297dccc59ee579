"""A node of several processes, attached to another node: real processes, real sockets (faults A1, A13)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from testbed.events.host_events import HostOperation, ProcessorCalibrated
from testbed.events.log import check_log, read_log
from testbed.events.run_events import LineLogged, NodeReady, NodeStopped
from testbed.experiment.plan import NodePlan, Plan, write_plan

HERE = Path(__file__).resolve().parent
PROCESSES = ("api", "core", "worker")
LOGS = ("host0", "host0-core", "host0-worker")


def plan(groups=(("api",), ("core",), ("worker",))):
    return Plan(
        run="20260101-000000-abcdef", label="abcdef", clock="wall", system="relay", kind="relay", seed=1,
        dilation=1.0, byte_scale=1, path_mtu=4096, fabrics=(), parameters={}, workload={},
        nodes=(
            NodePlan("gpu0", "gpu", "hardware", 64, attached=("host0",)),
            NodePlan("host0", "host", "host", 64, attached=("gpu0",), processes=groups),
        ),
    )  # fmt: skip


class Bench:
    """Starts the nodes of a plan and opens their barrier."""

    def __init__(self, folder, made):
        self.folder = folder
        (folder / "control").mkdir(parents=True)
        (folder / "plan.json").write_bytes(write_plan(made))
        self.nodes = {}

    def start(self, node, **environment):
        command = [sys.executable, "-m", "relay_host", "--run", str(self.folder), "--node", node]
        paths = os.pathsep.join((str(HERE), str(HERE.parents[1])))
        environment = {**os.environ, "PYTHONPATH": paths, **environment}
        self.nodes[node] = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        return self.nodes[node]

    def await_(self, what, condition):
        limit = time.monotonic() + 30
        while not condition():
            for name, node in self.nodes.items():
                assert node.poll() is None, f"{name} while waiting for {what}: {node.stderr.read()}"
            assert time.monotonic() < limit, what
            time.sleep(0.01)

    def open_barrier(self):
        control = self.folder / "control"
        self.await_("barrier", lambda: all((control / f"{name}.ready").exists() for name in self.nodes))
        text = json.dumps({"epoch_monotonic_ns": time.monotonic_ns(), "dilation": 1.0})
        (control / ".start.json").write_text(text)
        (control / ".start.json").rename(control / "start.json")

    def events(self, log, kind):
        path = self.folder / "events" / f"{log}.jsonl"
        return [record.event for record in read_log(path) if isinstance(record.event, kind)] if path.exists() else []

    def rounds(self):
        return [line.text for line in self.events("host0", LineLogged)]

    def pids(self):
        return [self.events(log, NodeReady)[0].pid for log in LOGS]

    def stop(self):
        (self.folder / "control" / "stop").touch()
        return {name: node.wait(10) for name, node in self.nodes.items()}


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path / "run", plan())
    yield made
    for node in made.nodes.values():
        node.kill()
        node.communicate()


def running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def await_end(pids):
    limit = time.monotonic() + 5
    while any(map(running, pids)):
        assert time.monotonic() < limit, pids
        time.sleep(0.01)


def test_messages_go_round_three_processes_and_a_device_over_pcie(bench):
    bench.start("gpu0")
    bench.start("host0")
    bench.open_barrier()
    bench.await_("rounds", lambda: len(bench.rounds()) == 20)
    assert bench.rounds() == [f"round {number}" for number in range(1, 21)]
    for log, process, pieces in zip(LOGS, PROCESSES, (20, 20, 40), strict=True):
        done = bench.events(log, HostOperation)
        bench.await_("its log", lambda log=log, pieces=pieces: len(bench.events(log, HostOperation)) >= pieces)
        assert {each.process for each in done} <= {process}
        (calibrated,) = bench.events(log, ProcessorCalibrated)
        assert calibrated.units_per_ms > 0
        assert calibrated.spread >= 1
    pids = bench.pids()
    assert len(set(pids)) == 3, "each process is one of the operating system"
    assert bench.stop() == {"gpu0": 0, "host0": 0}
    await_end(pids)
    for log in (*LOGS, "gpu0"):
        check_log(bench.folder / "events" / f"{log}.jsonl")
        assert bench.events(log, NodeStopped) == [NodeStopped(code=0)], log
    assert not list((bench.folder / "control").glob("*.pcie")), "sockets are gone once the links stand"


def test_machines_of_one_process_need_no_link_and_sigterm_ends_them(tmp_path):
    bench = Bench(tmp_path / "run", plan((("api",), ("core", "worker"))))
    bench.start("gpu0")
    bench.start("host0")
    try:
        bench.open_barrier()
        bench.await_("rounds", lambda: len(bench.rounds()) == 20)
        both = {"core", "worker"}
        bench.await_("its log", lambda: {each.process for each in bench.events("host0-core", HostOperation)} == both)
        assert not (bench.folder / "events" / "host0-worker.jsonl").exists()
        bench.nodes["host0"].terminate()
        assert bench.nodes["host0"].wait(10) == 0, "SIGTERM ends all processes"
        assert bench.events("host0-core", NodeStopped) == [NodeStopped(code=0)]
    finally:
        for node in bench.nodes.values():
            node.kill()
            node.communicate()


def test_nothing_outlives_a_first_process_that_is_killed(bench):
    bench.start("gpu0", RELAY_ROUNDS="1000000")
    host = bench.start("host0", RELAY_ROUNDS="1000000")
    bench.open_barrier()
    bench.await_("rounds", lambda: len(bench.rounds()) > 3)
    pids = bench.pids()
    host.kill()
    host.wait(10)
    await_end(pids)
    # The other end of PCIe says that the link is gone, and leaves the judging to the bench.
    del bench.nodes["host0"]
    bench.await_("the device's log", lambda: bench.events("gpu0", LineLogged))
    assert "over PCIe" in bench.events("gpu0", LineLogged)[0].text
    assert bench.nodes["gpu0"].poll() is None
    host.communicate()


def test_a_run_that_is_stopped_before_it_began_ends_everywhere(bench):
    host = bench.start("host0")  # and no device: its link is waited for
    bench.await_("start", lambda: (bench.folder / "events" / "host0-core.jsonl").exists())
    (bench.folder / "control" / "stop").touch()
    assert host.wait(15) in (0, 4)


def test_another_process_that_is_killed_is_the_nodes_death_in_one_line(bench):
    bench.start("gpu0", RELAY_ROUNDS="1000000")
    host = bench.start("host0", RELAY_ROUNDS="1000000")
    bench.open_barrier()
    bench.await_("rounds", lambda: len(bench.rounds()) > 3)
    api, core, worker = bench.pids()
    os.kill(core, signal.SIGKILL)
    assert host.wait(10) == 4
    await_end([api, core, worker])
    assert host.stderr.read() == "process core was killed by SIGKILL\n"
    assert bench.events("host0", NodeStopped) == [NodeStopped(code=4, detail="process core was killed by SIGKILL")]
    del bench.nodes["host0"]
    host.communicate()
