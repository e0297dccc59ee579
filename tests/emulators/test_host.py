"""The host's process: it provisions, says so, and then only waits; and what the others do with what it left."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from emulators.node import NodeRun
from emulators.provisioning import BadProvisions, read_provisions, wait_for_provisions, write_provisions
from testbed.clocks.wall import Epoch
from testbed.events.log import check_log, read_log
from testbed.experiment.assembly import provisions_of
from testbed.experiment.plan import write_plan

TOP = Path(__file__).resolve().parents[2]


@pytest.fixture
def plan(make_plan, tmp_path):
    found = make_plan(tmp_path)
    (tmp_path / "plan.json").write_bytes(write_plan(found))
    return found


@pytest.fixture
def start_node(tmp_path):
    running = []

    def start(module, node, folder=tmp_path):
        words = [sys.executable, "-m", f"emulators.{module}", "--run", str(folder), "--node", node]
        running.append(subprocess.Popen(words, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
        return running[-1]

    yield start
    for process in running:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_for(path, process):
    end = time.monotonic() + 30
    while not path.exists():
        assert process.poll() is None, process.stdout.read().decode()
        assert time.monotonic() < end
        time.sleep(0.01)


def tags(folder):
    return [str(record.event.__struct_config__.tag) for record in read_log(folder / "events" / "host0.jsonl")]


def test_it_provisions_before_the_barrier_and_sleeps_after_it(plan, tmp_path, start_node):
    host = start_node("host", "host0")
    wait_for(tmp_path / "control" / "host0.ready", host)
    assert read_provisions(tmp_path, plan) == provisions_of(plan)
    assert tags(tmp_path)[:2] == ["host.provisioned", "node.ready"]
    epoch = Epoch(epoch_monotonic_ns=time.monotonic_ns(), dilation=plan.dilation)
    (tmp_path / "control" / "start.json").write_text(
        json.dumps({"epoch_monotonic_ns": epoch.epoch_monotonic_ns, "dilation": epoch.dilation})
    )
    time.sleep(0.5)
    used = sum(map(int, Path(f"/proc/{host.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    time.sleep(1.0)
    after = sum(map(int, Path(f"/proc/{host.pid}/stat").read_text().rpartition(")")[2].split()[11:13]))
    assert after - used < os.sysconf("SC_CLK_TCK") // 10, "a host that has left the path uses next to no CPU"
    host.send_signal(signal.SIGTERM)
    assert host.wait(10) == 0
    check_log(tmp_path / "events" / "host0.jsonl")
    assert tags(tmp_path)[-1] == "node.stopped"


def test_it_ends_when_the_run_is_stopped_before_it_began(plan, tmp_path, start_node):
    host = start_node("host", "host0")
    wait_for(tmp_path / "control" / "host0.ready", host)
    (tmp_path / "control" / "stop").touch()
    assert host.wait(10) == 0


@pytest.mark.parametrize("module", ["host", "dpu", "client"])
def test_no_plan_is_bad_input(module, tmp_path, start_node):
    process = start_node(module, "host0")
    assert process.wait(30) == 2
    assert str(tmp_path / "plan.json") in process.stdout.read().decode()


def test_unknown_node_is_bad_input(plan, start_node):
    process = start_node("host", "host7")
    assert process.wait(30) == 2
    assert "host0" in process.stdout.read().decode()


def test_provisions_for_another_device_are_refused(plan, make_plan, tmp_path):
    assert read_provisions(tmp_path, plan) is None
    write_provisions(tmp_path, "host0", provisions_of(make_plan(tmp_path, model="qwen-3-32b")))
    with pytest.raises(BadProvisions, match="qwen-3-32b"):
        read_provisions(tmp_path, plan)
    (tmp_path / "control" / "host0.provisioned").write_bytes(b"{")
    with pytest.raises(BadProvisions, match=r"host0\.provisioned"):
        read_provisions(tmp_path, plan)


def test_waiting_for_provisions_ends_with_them_or_with_the_run(plan, tmp_path):
    run = NodeRun(tmp_path, "gpu0")
    try:
        write_provisions(tmp_path, "host0", provisions_of(plan))
        assert wait_for_provisions(run)
        (tmp_path / "control" / "host0.provisioned").unlink()
        (tmp_path / "control" / "stop").touch()
        assert not wait_for_provisions(run)
        assert run.stopping
    finally:
        run.finish(0)
