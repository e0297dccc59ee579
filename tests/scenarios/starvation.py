"""Ways to starve a live run of its CPU, each bounded in time and ended by pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

LONGEST_S = 40
HOG = """
import os, sys, time
core, priority, busy_ms, idle_ms, end = int(sys.argv[1]), int(sys.argv[2]), *map(float, sys.argv[3:6])
os.sched_setaffinity(0, [core])
if priority:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))
end += time.monotonic()
while time.monotonic() < end:
    until = time.monotonic() + busy_ms / 1000
    while time.monotonic() < until:
        pass
    if idle_ms:
        time.sleep(idle_ms / 1000)
"""
Way = Callable[[Path], "Iterator[None]"]


def rnic_pids(folder: Path) -> list[int]:
    """Soft RNICs of a run, known by their command lines."""
    return [pid for pid, words in _commands() if "emulators.rnic" in words and str(folder) in words]


def software_pids(folder: Path) -> list[int]:
    """Software of a run's nodes but the host's."""
    roles = {"emulators.client", "emulators.dpu", "emulators.gpu"}
    return [pid for pid, words in _commands() if roles & set(words) and str(folder) in words and words[0] != "docker"]


def hardware_core() -> int:
    """Where a machine of two cores has all that is hardware of its own."""
    return sorted(os.sched_getaffinity(0))[-1]


@contextmanager
def hogs(priority: int, busy_ms: float, idle_ms: float, *, cores: int = 1, each: int = 1) -> Iterator[None]:
    """Endless loops at a SCHED_FIFO priority (0: an ordinary process), the hardware's core first."""
    chosen = sorted(os.sched_getaffinity(0), reverse=True)[:cores]
    words = [str(priority), str(busy_ms), str(idle_ms), str(LONGEST_S)]
    started = [subprocess.Popen([sys.executable, "-c", HOG, str(core), *words]) for core in chosen for _ in range(each)]
    try:
        yield
    finally:
        for process in started:
            process.kill()
            process.wait(10)


@contextmanager
def bursts(pids: list[int], stopped_ms: float, running_ms: float) -> Iterator[None]:
    """SIGSTOP and SIGCONT in turns."""
    over = threading.Event()

    def go_on() -> None:
        end = time.monotonic() + LONGEST_S
        while not over.is_set() and time.monotonic() < end:
            _signal(pids, signal.SIGSTOP)
            time.sleep(stopped_ms / 1000)
            _signal(pids, signal.SIGCONT)
            time.sleep(running_ms / 1000)

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def refuse_fifo(pids: list[int]) -> None:
    """As a host that allows no SCHED_FIFO leaves them: ordinary processes."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setscheduler(int(thread.name), os.SCHED_OTHER, os.sched_param(0))


def squeeze(pids: list[int], core: int) -> None:
    """All on one core."""
    for pid in pids:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            os.sched_setaffinity(int(thread.name), [core])


def _commands() -> Iterator[tuple[int, list[str]]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            except OSError:
                continue
            yield int(folder.name), words


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue
