"""Control groups of a run: /looplane/<label>/<node> in a hierarchy that this host lets us write.

A node that is no container gets a cell, so that its processes, and all that they start, are one group: to be listed,
stopped or killed as a whole (the host role's cell is what "CPU-free" is shown with). Grouping needs no controller, so
cgroup v2 is used wherever it is mounted, also beside v1; else the first v1 hierarchy of a harmless kind.
cpuset and memory limits of namespace nodes are not taken from here: see `topologies.processes`. cgroups(7).
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

_V1_HARMLESS = ("pids", "freezer", "cpuacct")
"""v1 controllers in whose groups a process runs as it did before. `cpu` is not: an own group has no SCHED_FIFO time."""
FOLDER = "looplane"


class CellError(Exception):
    """A cell could not be made or emptied."""


def mounts() -> list[tuple[str, Path, tuple[str, ...]]]:
    """(`cgroup` or `cgroup2`, mount point, options) of every mounted hierarchy."""
    found = []
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options, *_ = line.split(" ")
        if kind in ("cgroup", "cgroup2"):
            found.append((kind, Path(point), tuple(options.split(","))))
    return found


def version() -> str:
    """`v2`, `v1`, or `hybrid` when v2 is mounted beside v1; `none` without any."""
    names = {"cgroup": "v1", "cgroup2": "v2"}
    kinds = sorted({names[kind] for kind, _, _ in mounts()})
    return {0: "none", 1: kinds[0] if kinds else "", 2: "hybrid"}[len(kinds)]


def hierarchy() -> Path | None:
    """Where cells are made, or None where no hierarchy can be written."""
    rows = mounts()
    candidates = [point for kind, point, _ in rows if kind == "cgroup2"]
    candidates += [
        point for name in _V1_HARMLESS for kind, point, options in rows if kind == "cgroup" and name in options
    ]
    return next((point for point in candidates if os.access(point, os.W_OK)), None)


class Cells:
    """The cells of one run. Without a hierarchy every method is a no-op, and `processes` knows none."""

    def __init__(self, label: str) -> None:
        root = hierarchy()
        self.folder = None if root is None else root / FOLDER / label

    def make(self, name: str) -> Path | None:
        """The cell `name`, made if it is not there. Returns its folder. Raises `CellError`."""
        if self.folder is None:
            return None
        cell = self.folder / name
        try:
            cell.mkdir(parents=True, exist_ok=True)
        except OSError as fault:
            raise CellError(f"{cell}: {fault.strerror}") from fault
        return cell

    def processes(self, name: str | None = None) -> list[int]:
        """Pids in the cell `name`, or in all cells of the run."""
        if self.folder is None or not self.folder.is_dir():
            return []
        top = self.folder if name is None else self.folder / name
        pids: set[int] = set()
        for path in top.rglob("cgroup.procs"):
            try:
                pids.update(int(line) for line in path.read_text().split())
            except (FileNotFoundError, OSError):  # removed meanwhile
                continue
        return sorted(pids)

    def remove(self, patience_s: float = 5.0) -> None:
        """Kills all that is in the cells and removes them. Raises `CellError` when something outlives it."""
        if self.folder is None or not self.folder.is_dir():
            return
        end = time.monotonic() + patience_s
        while self.processes():
            _kill_all(self.folder, self.processes())
            if time.monotonic() > end:
                raise CellError(f"{self.folder}: still holds {self.processes()}")
            time.sleep(0.01)
        for path in sorted(self.folder.rglob("*/"), reverse=True):
            _remove(path, end)
        _remove(self.folder, end)
        parent = self.folder.parent
        if not any(path.is_dir() for path in parent.iterdir()):
            _remove(parent, end)


def join(cell: Path | None) -> None:
    """Puts the calling process into `cell`; for a child between fork and exec, so it is never outside."""
    if cell is not None:
        (cell / "cgroup.procs").write_text(str(os.getpid()))


def group_members(pid: int) -> list[int]:
    """All processes in the control group of `pid` and below it: a container's, counted as the host counts.

    Of several hierarchies the one that sets it apart best is meant; the others may group it with strangers.
    """
    best: list[int] = []
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if path == "/":  # the root group holds strangers
            continue
        for kind, point, options in mounts():
            named = kind == "cgroup" and set(controllers.split(",")) <= set(options)
            fits = kind == "cgroup2" if number == "0" else named
            folder = point / path.lstrip("/")
            if fits and (folder / "cgroup.procs").is_file():
                members: set[int] = set()
                for procs in folder.rglob("cgroup.procs"):
                    members.update(int(word) for word in procs.read_text().split())
                if pid in members and (not best or len(members) < len(best)):
                    best = sorted(members)
    return best


def cpu_time(pid: int) -> int | None:
    """CPU nanoseconds that the control group of `pid` has used, with what has ended in it; None where none counts."""
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if path == "/":  # the root group's time is everybody's
            continue
        for kind, point, options in mounts():
            folder = point / path.lstrip("/")
            with suppress(OSError, ValueError, IndexError):
                if kind == "cgroup" and number != "0" and "cpuacct" in options and "cpuacct" in controllers.split(","):
                    return int((folder / "cpuacct.usage").read_text())
                if kind == "cgroup2" and number == "0":
                    return 1000 * int((folder / "cpu.stat").read_text().split()[1])
    return None


def remove_empty(name: str) -> None:
    """Removes the empty groups `name` at the root, or in this process's own group, of every hierarchy."""
    for group in _groups_called(name):
        with suppress(OSError):
            for below in sorted(group.rglob("*/"), reverse=True):
                below.rmdir()
            group.rmdir()


def kill_group(name: str, patience_s: float = 5.0) -> None:
    """Kills all that is in the groups `name`, found as `remove_empty` finds them. Raises CellError."""
    end = time.monotonic() + patience_s
    for group in _groups_called(name):
        while pids := {int(word) for procs in group.rglob("cgroup.procs") for word in procs.read_text().split()}:
            if time.monotonic() > end:
                raise CellError(f"{group}: still holds {sorted(pids)}")
            _kill_all(group, sorted(pids))
            time.sleep(0.01)


def _groups_called(name: str) -> list[Path]:
    own = {line.split(":", 2)[2].strip("/") for line in Path("/proc/self/cgroup").read_text().splitlines()}
    found = [point / above / name for _, point, _ in mounts() for above in sorted({"", *own})]
    return [group for group in found if group.is_dir()]


def labels() -> list[str]:
    """Labels that have cells."""
    root = hierarchy()
    top = None if root is None else root / FOLDER
    return sorted(path.name for path in top.iterdir() if path.is_dir()) if top is not None and top.is_dir() else []


def _kill_all(folder: Path, pids: list[int]) -> None:
    try:
        (folder / "cgroup.kill").write_text("1")  # v2: the whole tree at once, whatever forks meanwhile
    except OSError:
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def _remove(cell: Path, end: float) -> None:
    while True:
        try:
            cell.rmdir()
        except FileNotFoundError:
            return
        except OSError as fault:  # EBUSY: the last process is not buried yet
            if time.monotonic() > end:
                raise CellError(f"{cell}: {fault.strerror}") from fault
            time.sleep(0.01)
        else:
            return
