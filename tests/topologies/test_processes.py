"""Where processes run, and that each is known by more than its number."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import bench_plans
import msgspec
import pytest

from tests.topologies.registered import registered
from topologies.cells import Cells, group_members
from topologies.namespaces import network_of
from topologies.processes import Placement, ProcessTable, cpu_map, cpu_sets, end, fifo_allowed, python_environment
from topologies.registry import ProcessMark, RunRegistry, boot_id, mark_of, start_time


def test_cpu_map_keeps_host_and_hardware_apart(label: str) -> None:
    plan = bench_plans.demo_plan(label)
    assert cpu_map(plan, [3]) == {"client0": (3,), "host0": (3,), "dpu0": (3,), "gpu0": (3,)}
    assert cpu_map(plan, [0, 1]) == {"client0": (0,), "host0": (0,), "dpu0": (1,), "gpu0": (1,)}
    assert cpu_map(plan, [0, 1, 2]) == {"client0": (0,), "host0": (0,), "dpu0": (1,), "gpu0": (2,)}
    host = tuple(range(6))
    assert cpu_map(plan, list(range(8))) == {"client0": host, "host0": host, "dpu0": (6,), "gpu0": (7,)}


def test_reserved_cores_are_nobody_elses_where_there_are_enough(label: str) -> None:
    plan = bench_plans.demo_plan(label)
    *others, host = plan.nodes
    assert host.role == "host"
    plan = msgspec.structs.replace(plan, nodes=(*others, msgspec.structs.replace(host, cores="reserved")))
    assert cpu_map(plan, [3])["host0"] == (3,)
    assert cpu_map(plan, [0, 1]) == {"client0": (0,), "host0": (1,), "dpu0": (1,), "gpu0": (1,)}
    assert cpu_map(plan, [0, 1, 2]) == {"client0": (0,), "host0": (1,), "dpu0": (2,), "gpu0": (2,)}
    eight = cpu_map(plan, list(range(8)))
    assert eight == {"client0": (0, 1, 2), "host0": (3, 4, 5), "dpu0": (6,), "gpu0": (7,)}
    assert cpu_sets(plan, range(8)).host == (0, 1, 2), "where neighbours run"


def test_a_mark_fits_one_process_only() -> None:
    with subprocess.Popen(["sleep", "60"]) as process:
        mark = mark_of(process.pid, "sleep")
        assert mark is not None
        assert mark.alive()
        stranger = ProcessMark(process.pid, mark.start + 1, mark.boot, "another, later")
        stranger.signal(signal.SIGKILL)
        ProcessMark(process.pid, mark.start, "another boot", "before the reboot").signal(signal.SIGKILL)
        assert process.poll() is None
        mark.signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    assert not mark.alive()
    mark.signal(signal.SIGKILL)  # and of the dead nothing is asked


def test_a_zombie_is_not_alive() -> None:
    process = subprocess.Popen(["true"])
    end = time.monotonic() + 5
    while start_time(process.pid) is not None and time.monotonic() < end:
        time.sleep(0.01)
    assert start_time(process.pid) is None
    process.wait()


def test_a_half_written_record_is_no_record(label: str) -> None:
    registry = RunRegistry(label)
    registry.folder = Path("/nonexistent")
    assert registry.record() is None
    assert registry.processes() == []
    assert not registry.live()
    with pytest.raises(ValueError, match="no run label"):
        RunRegistry("../../etc")


@pytest.mark.root
class TestStarted:
    @pytest.fixture
    def table(self, label: str, tmp_path: Path, unchanged_host: None) -> Iterator[ProcessTable]:
        cells = Cells(label)
        with registered(tmp_path, label) as registry:
            table = ProcessTable(registry, cells, tmp_path)
            try:
                yield table
            finally:
                table.end_all(1)
                cells.remove()

    def test_it_runs_where_it_was_placed_and_is_on_record(self, table: ProcessTable, label: str) -> None:
        core = max(os.sched_getaffinity(0))
        with subprocess.Popen(["unshare", "--net", "sleep", "60"]) as there:
            time.sleep(0.3)
            fifo = fifo_allowed()
            placement = Placement(network=there.pid, cell="node-x", cpus=(core,), fifo=fifo)
            program = (
                "import os, time; print(sorted(os.sched_getaffinity(0)), os.sched_getscheduler(0), flush=True)\n"
                "time.sleep(60)"
            )
            started = table.start("placed one", [sys.executable, "-c", program], placement, python_environment())
            log = started.log
            end_ = time.monotonic() + 20
            while not log.read_text() and time.monotonic() < end_:
                time.sleep(0.02)
            scheduler = os.SCHED_FIFO if fifo else os.SCHED_OTHER
            assert log.read_text() == f"[{core}] {scheduler}\n"
            inside = Path(f"/proc/{RunRegistry(label).processes()[0].pid}/ns/net").readlink()
            assert inside == Path(f"/proc/{there.pid}/ns/net").readlink()
            there.kill()
        mark = RunRegistry(label).processes()[0]
        assert (mark.what, mark.boot) == ("placed one", boot_id())
        assert Cells(label).processes("node-x") == [mark.pid]
        assert group_members(mark.pid) == [mark.pid]
        assert log.name == "placed-one.log"

    def test_what_ignores_sigterm_is_killed(self, table: ProcessTable) -> None:
        program = "import signal,time; signal.signal(15, signal.SIG_IGN); print('up', flush=True); time.sleep(60)"
        started = table.start("deaf", [sys.executable, "-c", program], Placement(), python_environment())
        while "up" not in started.last_words():
            assert started.code() is None
            time.sleep(0.02)
        end([started], 0.2)
        assert started.code() == -signal.SIGKILL

    def test_a_cell_takes_children_and_grandchildren_and_kills_them(self, table: ProcessTable, label: str) -> None:
        program = "import subprocess,time; subprocess.Popen(['sleep','60'],start_new_session=True); time.sleep(60)"
        table.start("parent", [sys.executable, "-c", program], Placement(cell="family"), python_environment())
        end_ = time.monotonic() + 20
        while len(Cells(label).processes("family")) < 2 and time.monotonic() < end_:
            time.sleep(0.02)
        pids = Cells(label).processes("family")
        assert len(pids) == 2
        Cells(label).remove()
        assert [pid for pid in pids if start_time(pid) is not None] == []

    def test_a_thread_comes_back_from_where_it_was(self) -> None:
        here = Path("/proc/thread-self/ns/net").readlink()
        with subprocess.Popen(["unshare", "--net", "sleep", "60"]) as there:
            time.sleep(0.3)
            with pytest.raises(KeyError), network_of(there.pid):  # noqa: PT012  # what is between is the point
                assert Path("/proc/thread-self/ns/net").readlink() != here
                raise KeyError
            there.kill()
        assert Path("/proc/thread-self/ns/net").readlink() == here
