"""What the kernel and the processor count of the server's host processes: switches, migrations, faults, misses.

The paper's Table 1 has IPC, misses and stalls of the last-level cache, misses and page walks of the TLB, from perf.
Where the machine has such counters they are read through perf_event_open(2), one for each thread; a virtual machine
mostly has none, and then the event names them as absent. Switches, migrations and page faults are in /proc on every
machine. A processor has fewer counters than are asked for here, so the kernel lets them take turns; what is read is
scaled to the whole time, as perf does.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path

from testbed.events.host_events import CountersMeasured

_HARDWARE, _CACHE, _RAW = 0, 3, 4
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
_SKYLAKE_SP, _ICE_LAKE_SP, _SAPPHIRE_RAPIDS = (0x55,), (0x6A, 0x6C), (0x8F, 0xCF)
"""Models of Intel's family 6; the first also Cascade Lake, the last also Emerald Rapids. The paper's is the second."""


def _raw(event: int, mask: int, least: int) -> int:
    """A raw event of x86 as `config`: event code, unit mask, counter mask."""
    return event | mask << 8 | least << 24


OF_MODELS: dict[str, dict[int, int]] = {
    "page-walk-cycles": {
        **dict.fromkeys((*_SKYLAKE_SP, *_ICE_LAKE_SP), _raw(0x08, 0x10, 1)),
        **dict.fromkeys(_SAPPHIRE_RAPIDS, _raw(0x12, 0x10, 1)),
    },
    "L3-stall-cycles": dict.fromkeys((*_SKYLAKE_SP, *_ICE_LAKE_SP, *_SAPPHIRE_RAPIDS), _raw(0xA3, 0x06, 6)),
}
"""What perf has no name for on all machines, by Intel's model: DTLB_LOAD_MISSES.WALK_ACTIVE and
CYCLE_ACTIVITY.STALLS_L3_MISS (Linux tools/perf/pmu-events/arch/x86). Other processors count it otherwise or not."""
COUNTED = (*PROCESSOR, *OF_MODELS)
"""Everything that is asked of the processor."""
KERNEL = ("context-switches", "preemptions", "cpu-migrations", "page-faults")
"""From /proc; `preemptions` are the involuntary switches."""
_PERF_EVENT_OPEN = {"x86_64": 298, "aarch64": 241, "riscv64": 241}
_ATTRIBUTES = 64
"""Bytes of the first version of perf_event_attr."""
_EXCLUDE_KERNEL_AND_HYPERVISOR = 1 << 5 | 1 << 6
_TIMES = 1 | 2
"""Read with a count: nanoseconds that it was wanted, and that it was on a counter."""
_libc = ctypes.CDLL(None, use_errno=True)


class CounterMeter:
    """Reads the counters of `pids`, by process; each `measure` tells what has been since the one before."""

    def __init__(self, pids: Mapping[str, int]) -> None:
        self._pids = dict(pids)
        self.absent = absent()
        self._files: dict[str, dict[str, list[int]]] = {}
        for process, pid in self._pids.items():
            self._files[process] = {name: _open_all(pid, name) for name in COUNTED if name not in self.absent}
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
                found[name] = sum(scaled(*struct.unpack("QQQ", os.read(each, 24))) for each in descriptors)
        return found


def absent() -> tuple[str, ...]:
    """Counters of `COUNTED` that this machine does not let us read."""
    missing = []
    for name in COUNTED:
        descriptor = _open(os.getpid(), name)
        if descriptor < 0:
            missing.append(name)
        else:
            os.close(descriptor)
    return tuple(missing)


def scaled(count: int, wanted: int, on: int) -> int:
    """What was counted in the `on` of `wanted` nanoseconds, as if it had been counted in all of them."""
    return count * wanted // on if on else 0


def intel_model(cpuinfo: str) -> int | None:
    """The model of the first processor in /proc/cpuinfo's text, if it is of Intel's family 6."""
    first = cpuinfo.partition("\n\n")[0]
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in first.splitlines())}
    of_family = facts.get("vendor_id") == "GenuineIntel" and facts.get("cpu family") == "6"
    return int(facts["model"]) if of_family and facts.get("model", "").isdecimal() else None


@cache
def _event(name: str) -> tuple[int, int] | None:
    """Type and config; None where this processor has no such event."""
    if name in PROCESSOR:
        return PROCESSOR[name]
    with suppress(OSError):
        config = OF_MODELS[name].get(intel_model(Path("/proc/cpuinfo").read_text()) or 0)
        return None if config is None else (_RAW, config)
    return None


def _open_all(pid: int, name: str) -> list[int]:
    with suppress(FileNotFoundError):
        opened = [_open(int(thread), name) for thread in os.listdir(f"/proc/{pid}/task")]
        return [descriptor for descriptor in opened if descriptor >= 0]
    return []


def _open(thread: int, name: str) -> int:
    """A counter of one thread in user space, on any core; negative where there is none."""
    number, event = _PERF_EVENT_OPEN.get(platform.machine()), _event(name)
    if number is None or event is None:
        return -1
    attributes = struct.pack(
        "IIQQQQQ", event[0], _ATTRIBUTES, event[1], 0, 0, _TIMES, _EXCLUDE_KERNEL_AND_HYPERVISOR
    )
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
