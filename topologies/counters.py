"""What the kernel and the processor count of the server's host processes: switches, migrations, faults, misses.

The paper's Table 1 has IPC, misses of the last-level cache and of the TLB, from perf. Where the machine has such
counters they are read through perf_event_open(2), one for each thread; a virtual machine mostly has none, and then the
event names them as absent. Switches, migrations and page faults are in /proc on every machine.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

from testbed.events.host_events import CountersMeasured

_HARDWARE, _CACHE = 0, 3
_LLC, _DTLB = 2, 3
_ACCESS, _MISS = 0, 1
PROCESSOR: dict[str, tuple[int, int]] = {
    "cycles": (_HARDWARE, 0),
    "instructions": (_HARDWARE, 1),
    "stalled-cycles-backend": (_HARDWARE, 8),
    "LLC-loads": (_CACHE, _LLC | _ACCESS << 16),
    "LLC-load-misses": (_CACHE, _LLC | _MISS << 16),
    "dTLB-loads": (_CACHE, _DTLB | _ACCESS << 16),
    "dTLB-load-misses": (_CACHE, _DTLB | _MISS << 16),
}
"""By perf's names: type and config of perf_event_attr."""
KERNEL = ("context-switches", "preemptions", "cpu-migrations", "page-faults")
"""From /proc; `preemptions` are the involuntary switches."""
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_ATTRIBUTES = 64
"""Bytes of the first version of perf_event_attr."""
_EXCLUDE_KERNEL_AND_HYPERVISOR = 1 << 5 | 1 << 6
_libc = ctypes.CDLL(None, use_errno=True)


class CounterMeter:
    """Reads the counters of `pids`, by process; each `measure` tells what has been since the one before."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self.absent = absent()
        self._files: dict[str, dict[str, list[int]]] = {}
        for process, pid in self._pids.items():
            self._files[process] = {name: _open_all(pid, name) for name in PROCESSOR if name not in self.absent}
        self._last = {process: self._read(process) for process in self._pids}
        self._read_at = time.monotonic_ns()

    def measure(self) -> Iterator[CountersMeasured]:
        """One event for each process; one that has ended has no more counts."""
        now = time.monotonic_ns()
        interval, self._read_at = now - self._read_at, now
        for process in self._pids:
            before, counts = self._last[process], self._read(process)
            self._last[process] = counts
            names = tuple(name for name in counts if name in before)
            since = tuple(max(0, counts[name] - before[name]) for name in names)
            yield CountersMeasured(process, interval, names, since, self.absent)

    def close(self) -> None:
        """Closes the counters."""
        for files in self._files.values():
            for descriptors in files.values():
                for descriptor in descriptors:
                    os.close(descriptor)
        self._files.clear()

    def _read(self, process: str) -> dict[str, int]:
        found = _of_the_kernel(self._pids[process])
        for name, descriptors in self._files.get(process, {}).items():
            if descriptors:
                found[name] = sum(struct.unpack("Q", os.read(each, 8))[0] for each in descriptors)
        return found


def absent() -> tuple[str, ...]:
    """Counters of `PROCESSOR` that this machine does not let us read."""
    missing = []
    for name in PROCESSOR:
        descriptor = _open(os.getpid(), name)
        if descriptor < 0:
            missing.append(name)
        else:
            os.close(descriptor)
    return tuple(missing)


def _open_all(pid: int, name: str) -> list[int]:
    with suppress(FileNotFoundError):
        opened = [_open(int(thread), name) for thread in os.listdir(f"/proc/{pid}/task")]
        return [descriptor for descriptor in opened if descriptor >= 0]
    return []


def _open(thread: int, name: str) -> int:
    """A counter of one thread in user space, on any core; negative where there is none."""
    number = _PERF_EVENT_OPEN.get(platform.machine())
    if number is None:
        return -1
    kind, config = PROCESSOR[name]
    attributes = struct.pack("IIQQQQQ", kind, _ATTRIBUTES, config, 0, 0, 0, _EXCLUDE_KERNEL_AND_HYPERVISOR)
    data = ctypes.create_string_buffer(attributes.ljust(_ATTRIBUTES, b"\0"), _ATTRIBUTES)
    return int(_libc.syscall(number, data, thread, -1, -1, 0))


def _of_the_kernel(pid: int) -> dict[str, int]:
    switches = preemptions = migrations = 0
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        faults = int(fields[7]) + int(fields[9])
        for thread in os.listdir(f"/proc/{pid}/task"):
            folder = Path(f"/proc/{pid}/task/{thread}")
            words = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines() if ":" in line)
            preemptions += int(words["nonvoluntary_ctxt_switches"])
            switches += int(words["voluntary_ctxt_switches"]) + int(words["nonvoluntary_ctxt_switches"])
            migrations += _migrations(folder / "sched")
    except (OSError, IndexError, KeyError):  # it has ended
        return {}
    return dict(zip(KERNEL, (switches, preemptions, migrations, faults), strict=True))


def _migrations(path: Path) -> int:
    with suppress(OSError):  # a kernel without CONFIG_SCHED_DEBUG
        for line in path.read_text().splitlines():
            if line.startswith("se.nr_migrations"):
                return int(line.partition(":")[2])
    return 0
