"""The node's loop on the wall clock: barrier, deadlines, beats, the ways to end. Real processes, a real run folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulators.barrier import BadRunFolder
from emulators.node import NodeRun
from testbed.clocks.wall import Epoch
from testbed.events.log import Record, read_log
from testbed.experiment.plan import NodePlan, Plan, write_plan
from testbed.units import MILLISECOND

NODE = NodePlan(name="gpu0", role="gpu", cores="hardware", memory_mib=64)
PLAN = Plan(
    run="20260101-000000-abcdef", label="abcdef", clock="wall", system="ticker", kind="ticker", seed=1,
    dilation=2.0, byte_scale=1, path_mtu=4096, fabrics=(), nodes=(NODE,), parameters={}, workload={},
)  # fmt: skip

PROGRAM = '''
import sys
from emulators.node import NodeRun
from emulators.node_life import run_node
from testbed.events.run_events import LineLogged
from testbed.machine import Emit

class Ticker:
    """Wakes every 5 ms of true time and says so; dies at its tenth wake if told to."""
    name = "ticker"
    def __init__(self, dies):
        self.dies, self.due, self.ticks = dies, 5_000_000, 0
    def receive(self, now, message):
        return ()
    def deadline(self):
        return self.due
    def wake(self, now):
        self.ticks += 1
        if self.dies and self.ticks == 10:
            raise RuntimeError("tick ten is unlucky")
        self.due += 5_000_000
        return (Emit(LineLogged(text=f"tick {self.ticks} due {self.due - 5_000_000}")),)

def build(run: NodeRun):
    run.attach([Ticker(DIES)])

raise SystemExit(run_node(build))
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / PLAN.run
    (folder / "control").mkdir(parents=True)
    (folder / "plan.json").write_bytes(write_plan(PLAN))
    return folder


@pytest.fixture
def start_node(folder: Path) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    processes: list[subprocess.Popen[str]] = []

    def start(*, dies: bool = False, node: str = "gpu0") -> subprocess.Popen[str]:
        program = PROGRAM.replace("DIES", str(dies))
        command = [sys.executable, "-c", program, "--run", str(folder), "--node", node]
        processes.append(subprocess.Popen(command, stderr=subprocess.PIPE, text=True))
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    for _ in range(1000):
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError(f"in 10 s there was no {what}")


def _open_barrier(folder: Path) -> int:
    _wait_for((folder / "control" / "gpu0.ready").exists, "gpu0.ready")
    epoch = time.monotonic_ns() + 50 * MILLISECOND
    draft = folder / "control" / "draft"
    draft.write_text(json.dumps({"epoch_monotonic_ns": epoch, "dilation": PLAN.dilation}))
    draft.rename(folder / "control" / "start.json")
    return epoch


def _records(folder: Path) -> list[Record]:
    return list(read_log(folder / "events" / "gpu0.jsonl"))


def _types(folder: Path) -> list[str]:
    return [type(record.event).__name__ for record in _records(folder)]


def _ticks(folder: Path) -> list[Record]:
    return [record for record in _records(folder) if getattr(record.event, "text", "").startswith("tick")]


def test_machines_wake_at_their_true_time_and_stop_ends_the_node(
    folder: Path, start_node: Callable[..., subprocess.Popen[str]]
) -> None:
    node = start_node()
    _open_barrier(folder)
    _wait_for(lambda: len(_ticks(folder)) >= 25, "25 ticks")
    (folder / "control" / "stop").touch()
    assert node.wait(timeout=10) == 0

    records = _records(folder)
    assert _types(folder)[0] == "NodeReady"
    assert records[0].t == 0
    assert _types(folder)[-1] == "NodeStopped"
    assert records[-1].event.code == 0  # type: ignore[attr-defined]
    assert "NodeHeartbeat" in _types(folder)
    ticks = _ticks(folder)
    due = [int(record.event.text.split()[-1]) for record in ticks]  # type: ignore[attr-defined]
    assert due == [5_000_000 * (index + 1) for index in range(len(ticks))]
    assert all(record.t >= moment for record, moment in zip(ticks, due, strict=True)), "a wake came early"


def test_lateness_is_measured_in_wall_time_and_includes_work_that_overran(folder: Path) -> None:
    run = NodeRun(folder, "gpu0")
    run.attach([_Slow()])
    run.start(_epoch_now())
    time.sleep(0.004)
    run.turn()
    run.finish(0)
    measured = [record.event for record in _records(folder) if type(record.event).__name__ == "ClockMeasured"]
    assert [(event.wakes, event.worst >= MILLISECOND) for event in measured] == [(1, True)]  # type: ignore[attr-defined]


def test_sigterm_ends_it_before_the_barrier_and_after(
    folder: Path, start_node: Callable[..., subprocess.Popen[str]]
) -> None:
    for after_barrier in (False, True):
        node = start_node()
        _wait_for((folder / "control" / "gpu0.ready").exists, "gpu0.ready")
        if after_barrier:
            _open_barrier(folder)
            _wait_for(lambda: len(_ticks(folder)) >= 1, "a tick")
        node.send_signal(signal.SIGTERM)
        assert node.wait(timeout=10) == 0
        assert _types(folder)[-1] == "NodeStopped"
        (folder / "control" / "gpu0.ready").unlink()


def test_a_crash_leaves_its_traceback_in_the_log(
    folder: Path, start_node: Callable[..., subprocess.Popen[str]]
) -> None:
    node = start_node(dies=True)
    _open_barrier(folder)
    assert node.wait(timeout=10) == 4
    *_, crash, _measured, stopped = _records(folder)
    assert crash.event.severity == "error"  # type: ignore[attr-defined]
    assert "tick ten is unlucky" in crash.event.text  # type: ignore[attr-defined]
    assert "Traceback" in crash.event.text  # type: ignore[attr-defined]
    assert (stopped.event.code, stopped.event.detail) == (4, "RuntimeError: tick ten is unlucky")  # type: ignore[attr-defined]
    assert [record.seq for record in _records(folder)] == list(range(len(_records(folder))))


def test_a_node_started_again_goes_on_in_the_same_log(
    folder: Path, start_node: Callable[..., subprocess.Popen[str]]
) -> None:
    first = start_node()
    _open_barrier(folder)
    _wait_for(lambda: len(_ticks(folder)) >= 3, "3 ticks")
    first.kill()
    first.wait()
    before = len(_records(folder))
    second = start_node()
    _wait_for(lambda: len(_records(folder)) > before + 5, "more records")
    second.terminate()
    assert second.wait(timeout=10) == 0
    assert [record.seq for record in _records(folder)] == list(range(len(_records(folder))))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda folder: (folder / "plan.json").unlink(), "plan.json: No such file"),
        (lambda folder: (folder / "plan.json").write_text("{}"), "missing required field"),
        (lambda folder: None, "no node 'gpu7'; the plan has gpu0"),
    ],
)
def test_a_bad_run_folder_is_one_line_and_exit_2(
    folder: Path,
    start_node: Callable[..., subprocess.Popen[str]],
    spoil: Callable[[Path], object],
    message: str,
) -> None:
    spoil(folder)
    node = start_node(node="gpu7")
    _, errors = node.communicate(timeout=10)
    assert node.returncode == 2
    assert message in errors
    assert errors.count("\n") == 1


def test_a_barrier_file_that_cannot_be_read_is_named(folder: Path) -> None:
    run = NodeRun(folder, "gpu0")
    (folder / "control" / "start.json").write_text('{"epoch_monotonic_ns": 1, "dilation": 0}')
    with pytest.raises(BadRunFolder, match=r"start\.json.*dilation"):
        run.look_for_epoch()
    run.finish(2)
    with pytest.raises(BadRunFolder, match=r"start\.json.*dilation"):
        NodeRun(folder, "gpu0")


def test_stop_breaks_a_sleep_and_leaves_no_descriptor(folder: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    run = NodeRun(folder, "gpu0")
    run.attach([])
    run.start(_epoch_now())
    run.stop()
    run.loop()
    run.finish(0)
    assert len(os.listdir("/proc/self/fd")) == before


def _epoch_now() -> Epoch:
    return Epoch(time.monotonic_ns(), 1.0)


class _Slow:
    """Due once, 1 ms after the epoch."""

    name = "slow"

    def __init__(self) -> None:
        self.due: int | None = MILLISECOND

    def receive(self, now: int, message: object) -> tuple[()]:
        return ()

    def deadline(self) -> int | None:
        return self.due

    def wake(self, now: int) -> tuple[()]:
        self.due = None
        return ()
