"""Runs with neighbours: they really run, on the host's cores and nowhere else, and nothing of them is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from whole_run import TOP, BenchProcess, events_of

from testbed.experiment.launch import prepare
from testbed.experiment.plan import Plan, read_plan
from testbed.experiment.reading import read_spec
from topologies.processes import cpu_sets

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "topologies"))

import host_state

pytestmark = pytest.mark.root

EXPERIMENT = """
name = "beside"
title = "Short requests beside neighbours"
dilation = 4.0
byte_scale = 80
time_limit_s = 60
[systems.blink]
kind = "blink"
slots = 128
cores = { dpu = "host" }
neighbours = ["zip", "build", "memory"]
[neighbours.zip]
kind = "pbzip2"
threads = 3
containers = 2
working_set_mib = 4
[neighbours.build]
kind = "compile"
threads = 2
[neighbours.memory]
kind = "memory"
threads = 1
working_set_mib = 4
[workload]
requests = 24
[workload.arrivals]
kind = "poisson"
rate_per_s = 10
[workload.lengths]
kind = "uniform"
prompt_low = 32
prompt_high = 64
output_low = 8
output_high = 16
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A prepared run; afterwards the host must be as before."""
    before = host_state.snapshot()
    (tmp_path / "beside.toml").write_text(EXPERIMENT)
    found = prepare(read_spec(tmp_path / "beside.toml"), tmp_path, clock="wall").folder.path
    yield found
    left = host_state.differences(before, plan_of(found).label)
    assert not left, "\n".join(["left behind or changed:", *left])
    assert neighbours() == []


def plan_of(folder: Path) -> Plan:
    return read_plan((folder / "plan.json").read_bytes())


def neighbours(words: str = "emulators.interference") -> list[int]:
    """Living processes whose command line says what neighbours' does."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if words.encode() in (path / "cmdline").read_bytes() and "Z" not in state(path):
                found.append(int(path.name))
        except OSError:
            continue
    return found


def state(path: Path) -> str:
    return (path / "stat").read_text().rpartition(")")[2].split()[0]


def clean() -> None:
    subprocess.run([sys.executable, "-m", "topologies", "clean"], cwd=TOP, check=True, capture_output=True, timeout=60)


def test_neighbours_work_on_the_hosts_cores_beside_a_dpu_without_silicon_of_its_own(
    folder: Path, start_bench: Callable[..., BenchProcess]
) -> None:
    bench = start_bench(folder, "--nodes", "namespace")
    bench.wait_for("start.json")
    host = set(cpu_sets(plan_of(folder), sorted(os.sched_getaffinity(0))).host)
    works = neighbours()
    assert len(works) >= 4
    assert all(os.sched_getaffinity(pid) <= host for pid in works)
    displaced, silicon = (
        {(os.sched_getscheduler(pid), os.sched_getaffinity(pid) <= host) for pid in bench.pids(node)}
        for node in ("dpu0", "gpu0")
    )
    assert displaced == {(os.SCHED_OTHER, True)}, "on the host's cores it goes before nobody"
    assert os.SCHED_FIFO in {policy for policy, _ in silicon}
    assert bench.end() == 0, bench.said()
    started = {event.name: event for _, event in events_of(folder, "neighbour.started")}
    assert {name: (row.threads, row.containers) for name, row in started.items()} == {
        "zip": (3, 2), "build": (2, 1), "memory": (1, 1),
    }  # fmt: skip
    assert all(set(row.cpus) == host and row.program for row in started.values())
    measured = [event for _, event in events_of(folder, "neighbour.measured")]
    for name in started:
        assert sum(event.done for event in measured if event.name == name) > 0
    assert sum(event.cpu for event in measured) > 0
    assert {event.name for _, event in events_of(folder, "neighbour.ended")} == set(started)
    (run,) = (event for _, event in events_of(folder, "run.started"))
    assert run.displaced == ("dpu0",)


@pytest.mark.docker
def test_a_bench_that_is_killed_leaves_neighbours_that_the_reaper_removes(
    folder: Path, start_bench: Callable[..., BenchProcess]
) -> None:
    """Containers of a dead run go by their label, with all that works in them (faults A1, A8)."""
    bench = start_bench(folder, "--nodes", "docker")
    bench.wait_for("start.json")
    assert len(neighbours("python3\0-m\0emulators.interference")) >= 4
    os.kill(bench.process.pid, signal.SIGKILL)
    bench.process.wait(10)
    clean()


@pytest.mark.soak
@pytest.mark.parametrize("nodes", ["namespace", "docker"])
def test_a_neighbour_that_dies_ends_the_run_and_is_named(
    folder: Path, start_bench: Callable[..., BenchProcess], nodes: str, soak: bool
) -> None:
    if not soak:
        pytest.skip("with --soak")
    bench = start_bench(folder, "--nodes", nodes)
    bench.wait_for("start.json")
    time.sleep(0.2)
    words = "python3\0-m\0emulators.interference" if nodes == "docker" else "emulators.interference"
    os.kill(min(neighbours(words)), signal.SIGKILL)
    assert bench.end() != 0
    assert "neighbour zip" in bench.said()
