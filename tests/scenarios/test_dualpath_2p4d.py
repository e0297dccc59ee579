"""The paper's 2P4D with 48 engines on one machine: starts, answers a hundred turns, leaves nothing (issue DualPath)."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from testbed.events.client_events import RequestFinished
from testbed.events.kv_events import BlockRejected, ForwardFinished
from testbed.events.ordering import merge
from testbed.experiment.launch import launch_wall, prepare
from testbed.experiment.reading import read_spec

pytestmark = [pytest.mark.root, pytest.mark.soak]

SPEC = Path(__file__).resolve().parents[2] / "fixtures" / "experiments" / "dualpath" / "2p4d.toml"


def left() -> set[str]:
    """Network namespaces, mounts of runs and loop devices of this host."""
    namespaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout.splitlines()
    mounts = [line for line in Path("/proc/mounts").read_text().splitlines() if "/run/looplane/" in line]
    loops = subprocess.run(["losetup", "--list", "--noheadings"], capture_output=True, text=True, check=True).stdout
    return {*namespaces, *mounts, *loops.splitlines()}


def available_mib() -> int:
    (line,) = (row for row in Path("/proc/meminfo").read_text().splitlines() if row.startswith("MemAvailable"))
    return int(line.split()[1]) >> 10


def test_48_engines_start_answer_and_leave_nothing(
    tmp_path: Path, soak: bool, soak_note: Callable[[str], None]
) -> None:
    """Start in under 20 s of wall time and 8 GiB are the issue's own bounds, far from what was measured."""
    if not soak:
        pytest.skip("a minute and a half of emulation with 58 RoCE ports: only in --soak")
    before, free = left(), available_mib()
    run = prepare(read_spec(SPEC), tmp_path, clock="wall")
    lines: list[str] = []
    least = free

    def hear(line: str) -> None:
        nonlocal least
        least = min(least, available_mib())
        lines.append(line)

    end = launch_wall(run.trials[0], progress=hear)
    assert end.code == 0, end.last_words
    events = [record.event for record in merge(run.trials[0].events)]
    assert sum(isinstance(event, RequestFinished) for event in events) == 100
    assert not any(isinstance(event, BlockRejected) for event in events)
    assert sum(event.verified for event in events if isinstance(event, ForwardFinished)) > 0
    started = next(float(line.split("[")[1].split("s")[0]) for line in lines if line.rstrip().endswith("] running"))
    soak_note(f"2P4D: running after {started:.1f} s, {free - least} MiB more of memory in use")
    assert started < 20
    assert free - least < 8 * 1024
    assert left() == before
