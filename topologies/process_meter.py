"""How long each process of a run stood ready to run and had no CPU, and whether somebody has stopped it.

Pressure stall information counts every task of the machine, also neighbours that the run's SCHED_FIFO processes never
wait for. The kernel's own account of a thread (/proc/PID/task/TID/schedstat: ns run, ns waited in a run queue) says
whether *our* processes waited. A stopped process waits in no queue, so its state is looked at too, and whether it still
goes first (`topologies.silicon`). Source: kernel documentation, scheduler/sched-stats.rst; proc_pid_stat(5), sched(7).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from testbed.events.fidelity_events import WaitMeasured

_ACCOUNT = Path("/proc/self/schedstat").exists()
"""Whether this kernel keeps one."""


class _Account(NamedTuple):
    ran: int
    waited: int


class ProcessMeter:
    """Reads the accounts of a run's processes. `pids` has those of each by the name under which events call it."""

    def __init__(self, pids: Mapping[str, Sequence[int]]) -> None:
        self._pids = {name: tuple(each) for name, each in pids.items() if each}
        self._last: dict[Path, _Account] = {}
        self._looks = 0
        self._stopped = dict.fromkeys(self._pids, 0)
        self._read_at = time.monotonic_ns()
        for each in self._pids.values():
            self._spent(each)

    def follow(self, pids: Mapping[str, Sequence[int]]) -> None:
        """Processes may have been replaced: from now on these. What the old ones spent until the last reading stays."""
        self._pids = {name: tuple(each) for name, each in pids.items() if each}
        self._stopped = {name: self._stopped.get(name, 0) for name in self._pids}

    def look(self) -> None:
        """Notes which processes are stopped at this moment."""
        self._looks += 1
        for name, pids in self._pids.items():
            self._stopped[name] += any(map(_stopped, pids))

    def measure(self) -> Iterator[WaitMeasured]:
        """One event for each process since the last call; one that has ended has what it spent until it was read."""
        now = time.monotonic_ns()
        interval, self._read_at = max(1, now - self._read_at), now
        looks, self._looks = self._looks, 0
        for name, pids in self._pids.items():
            spent = self._spent(pids)
            stopped, self._stopped[name] = self._stopped[name], 0
            first = all(map(_goes_first, pids))
            yield WaitMeasured(name, interval, spent.waited if _ACCOUNT else -1, spent.ran, looks, stopped, first)

    def _spent(self, pids: Sequence[int]) -> _Account:
        ran = waited = 0
        for path, account in _accounts(pids):
            before = self._last.get(path, _Account(0, 0))
            self._last[path] = account
            ran += account.ran - before.ran
            waited += account.waited - before.waited
        return _Account(ran, waited)


def _accounts(pids: Sequence[int]) -> Iterator[tuple[Path, _Account]]:
    for pid in pids:
        try:
            threads = os.listdir(f"/proc/{pid}/task")
        except OSError:  # it has ended
            continue
        for thread in threads:
            path = Path(f"/proc/{pid}/task/{thread}/schedstat")
            try:
                ran, waited, _ = path.read_text().split()
            except (OSError, ValueError):  # it has ended, or this kernel keeps no account
                continue
            yield path, _Account(int(ran), int(waited))


def _goes_first(pid: int) -> bool:
    """Whether it is under SCHED_FIFO; also where it has ended, since then nobody goes before it."""
    try:
        return os.sched_getscheduler(pid) == os.SCHED_FIFO
    except ProcessLookupError:
        return True


def _stopped(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except (OSError, IndexError):
        return False
