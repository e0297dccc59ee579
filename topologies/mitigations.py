"""What protects a run's host processes from its neighbours, put in force on this host, read back, and taken back.

What the host lacks is said by the event (`applied` false, with what is missing) and by `doctor`; nothing is faked.
What each is, and what the paper found of it: `testbed.baselines.mitigations`. cgroups(7), resctrl: the kernel's
Documentation/arch/x86/resctrl.rst; GLIBC_TUNABLES: glibc's manual, "Memory Allocation Tunables".
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from testbed.baselines.mitigations import CACHE_WAYS, NICE, WEIGHT
from testbed.events.host_events import MitigationApplied
from testbed.experiment.plan import Plan
from topologies.cells import mounts

RESCTRL = Path("/sys/fs/resctrl")
THP = Path("/sys/kernel/mm/transparent_hugepage/enabled")
HUGE_PAGES_ENVIRONMENT = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "PYTHONMALLOC": "malloc"}
"""malloc then asks for huge pages with madvise, and all of Python's objects come from malloc."""
_USUAL = {"cpu.shares": 1024, "cpu.weight": 100}
"""Of a group that nobody has given another, by the file of cgroup v1 and v2."""
_MIB = 1 << 20


class Cannot(Exception):
    """The host lacks what a mitigation needs; says what."""


class Mitigations:
    """Those of one plan, for its host processes: `pids` by process, all on `cpus`."""

    def __init__(self, plan: Plan, pids: Mapping[str, int], cpus: Sequence[int], resctrl: Path = RESCTRL) -> None:
        self._plan = plan
        self._pids = dict(pids)
        self._cpus = tuple(cpus)
        self._resctrl = resctrl
        self._undo: list[Callable[[], None]] = []

    def apply(self) -> Iterator[MitigationApplied]:
        """Puts each in force; one event each, with what was read back or what is missing."""
        deeds = {
            "pinning": self._pin,
            "huge_pages": self._huge_pages,
            "cache_partition": self._partition,
            "priority": self._prefer,
        }
        for name in self._plan.mitigations:
            reserved = float(len(self._cpus)) if name == "pinning" else 0.0
            try:
                yield MitigationApplied(name, True, deeds[name](), reserved)
            except Cannot as fault:
                yield MitigationApplied(name, False, str(fault))
            except OSError as fault:
                yield MitigationApplied(name, False, f"{fault.filename or name}: {fault.strerror}")

    def undo(self) -> None:
        """Takes back what outlives the processes."""
        while self._undo:
            self._undo.pop()()

    def _pin(self) -> str:
        """The plan has put the node on reserved cores; here each process gets one of them."""
        if not self._pids:
            raise Cannot("no process of the host serves")
        said = []
        for place, (name, pid) in enumerate(self._pids.items()):
            core = self._cpus[place % len(self._cpus)]
            for thread in _threads(pid):
                os.sched_setaffinity(thread, {core})
            said.append(f"{name} on core {','.join(map(str, sorted(os.sched_getaffinity(pid))))}")
        return "; ".join(said)

    def _huge_pages(self) -> str:
        """Asked for by the environment that the processes were started in (`HUGE_PAGES_ENVIRONMENT`)."""
        if lacking := huge_pages_lacking():
            raise Cannot(lacking)
        sizes = {name: _anonymous_huge(pid) for name, pid in self._pids.items()}
        if not any(sizes.values()):
            raise Cannot("the kernel has given the server no huge page")
        return "; ".join(f"{name} has {size / _MIB:.0f} MiB in huge pages" for name, size in sizes.items())

    def _partition(self) -> str:
        if lacking := cache_partition_lacking(self._resctrl):
            raise Cannot(lacking)
        group = self._resctrl / resctrl_group(self._plan.label)
        server, others = partition((self._resctrl / "schemata").read_text())
        before = (self._resctrl / "schemata").read_text()
        group.mkdir(exist_ok=True)
        self._undo.append(lambda: group.rmdir() if group.is_dir() else None)
        (group / "schemata").write_text(server)
        for pid in self._pids.values():
            for thread in _threads(pid):
                (group / "tasks").write_text(str(thread))
        self._undo.append(lambda: _restore(self._resctrl / "schemata", before))
        (self._resctrl / "schemata").write_text(others)
        return f"server {server.strip()}, others {others.strip()}"

    def _prefer(self) -> str:
        """The weight of the container's group; of the session (autogroup) where the node is no container."""
        said = []
        for name, pid in self._pids.items():
            weight = _own_weight(pid)
            if weight is not None:
                weight.write_text(str(round(WEIGHT * _USUAL[weight.name])))
                said.append(f"{name}: {weight.name} {weight.read_text().strip()}")
                continue
            autogroup = Path(f"/proc/{pid}/autogroup")
            if not autogroup.exists():
                raise Cannot("neither a cpu group of its own nor autogroup (CONFIG_SCHED_AUTOGROUP)")
            autogroup.write_text(str(NICE))
            said.append(f"{name}: {autogroup.read_text().strip()}")
        if not said:
            raise Cannot("no process of the host serves")
        return "; ".join(dict.fromkeys(said))


def resctrl_group(label: str) -> str:
    """Name of a run's group; the reaper knows it by that."""
    return f"looplane-{label}"


def huge_pages_lacking() -> str:
    """Why the server cannot have huge pages here; empty where it can."""
    try:
        mode = THP.read_text()
    except OSError:
        return "this kernel has no transparent huge pages"
    return "transparent huge pages are switched off (never)" if "[never]" in mode else ""


def cache_partition_lacking(resctrl: Path = RESCTRL) -> str:
    """Why the cache cannot be partitioned here; empty where it can."""
    if not resctrl.is_dir():
        return "no resctrl: the CPU has no cache allocation, or the kernel or the hypervisor does not pass it on"
    if not (resctrl / "schemata").is_file():
        return f"resctrl is not mounted (mount -t resctrl resctrl {resctrl})"
    return "" if "L3:" in (resctrl / "schemata").read_text() else "resctrl here does not divide the L3 cache"


def partition(schemata: str) -> tuple[str, str]:
    """(the server's, everybody else's) masks of L3 from the whole, as the paper's largest share has them."""
    line = next(line.strip() for line in schemata.splitlines() if line.strip().startswith("L3:"))
    server, others = [], []
    for cache, mask in re.findall(r"(\d+)=([0-9a-fA-F]+)", line):
        ways = int(mask, 16).bit_length()
        own = max(1, min(ways - 1, round(ways * CACHE_WAYS[0] / CACHE_WAYS[1])))
        server.append(f"{cache}={(1 << own) - 1:x}")
        others.append(f"{cache}={((1 << ways) - 1) ^ ((1 << own) - 1):x}")
    return f"L3:{';'.join(server)}\n", f"L3:{';'.join(others)}\n"


def _restore(path: Path, text: str) -> None:
    line = next(line.strip() for line in text.splitlines() if line.strip().startswith("L3:"))
    path.write_text(line + "\n")


def _threads(pid: int) -> list[int]:
    with suppress(FileNotFoundError):
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    return []


def _anonymous_huge(pid: int) -> int:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("AnonHugePages:"):
            return int(line.split()[1]) << 10
    return 0


def _own_weight(pid: int) -> Path | None:
    """The file with the weight of a process's cpu group; None in the root group, and where no controller is on."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        for kind, point, options in mounts() if path != "/" else ():
            named = kind == "cgroup" and "cpu" in controllers.split(",") and "cpu" in options
            if named or (kind == "cgroup2" and number == "0"):
                group = point / path.lstrip("/")
                for name in _USUAL:
                    if (group / name).is_file():
                        return group / name
    return None
