"""Processes of a run: each starts inside its cell, CPU set and network namespace, is noted for the reaper at once, and
is ended by its mark. CPU map and priorities are those of architecture §7.

A child dies with the bench (PR_SET_PDEATHSIG), so that `kill -9` of the bench leaves as little as the kernel allows;
what is left then is the reaper's.
"""

from __future__ import annotations

import compileall
import ctypes
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

from testbed.experiment.plan import Plan
from topologies import cells, silicon
from topologies.namespaces import network_of
from topologies.registry import ProcessMark, RunRegistry

SOURCE = Path(__file__).absolute().parents[1]
"""The tree that holds `testbed`, `emulators` and this package; containers see it read-only at the same place."""
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)


class Placement(NamedTuple):
    """Where a process runs."""

    network: int | None = None
    """A process whose network namespace it joins; None for the host's own."""
    cell: str | None = None
    """Its control group, by name."""
    cpus: tuple[int, ...] = ()
    """Cores it may use; empty for all."""
    fifo: bool = False
    """SCHED_FIFO, for what stands for silicon."""


class Started:
    """A process of the run."""

    def __init__(self, what: str, popen: subprocess.Popen[bytes], mark: ProcessMark | None, log: Path) -> None:
        self.what = what
        self.log = log
        self._popen = popen
        self._mark = mark

    @property
    def pid(self) -> int:
        """The process that was started; it may have children."""
        return self._popen.pid

    def code(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        return self._popen.poll()

    def last_words(self, lines: int = 12) -> str:
        """The end of what it printed."""
        try:
            data = self.log.read_bytes()[-16_384:]
        except FileNotFoundError:
            return ""
        return "\n".join(data.decode(errors="replace").splitlines()[-lines:])

    def signal(self, number: int) -> None:
        """Sends a signal, if it still runs."""
        if self._mark is not None and self.code() is None:
            self._mark.signal(number)

    def wait(self, timeout_s: float) -> int | None:
        """Waits for its end; None if it has not ended in time."""
        try:
            return self._popen.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None


class ProcessTable:
    """The processes of one run."""

    def __init__(self, registry: RunRegistry, run_cells: cells.Cells, log_folder: Path) -> None:
        self._registry = registry
        self._cells = run_cells
        self._log_folder = log_folder
        self._started: list[Started] = []
        log_folder.mkdir(parents=True, exist_ok=True)

    def start(
        self, what: str, argv: Sequence[str], placement: Placement, environment: Mapping[str, str] | None = None
    ) -> Started:
        """Starts a program; its output goes to `<what>.log`. Raises OSError, CellError or SubprocessError."""
        cell = self._cells.make(placement.cell) if placement.cell is not None else None
        log = self._log_folder / f"{what.replace(' ', '-')}.log"
        inside = nullcontext() if placement.network is None else network_of(placement.network)
        with log.open("wb") as output, inside:
            popen = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd="/",
                env=dict(os.environ if environment is None else environment),
                start_new_session=True,
                preexec_fn=_preparation(placement, cell),
            )
        started = Started(what, popen, self._registry.note(popen.pid, what), log)
        self._started.append(started)
        return started

    def end_all(self, patience_s: float) -> None:
        """SIGTERM to all that still run, SIGKILL to those that outlive `patience_s`; buries them."""
        end(self._started, patience_s)


def end(started: Iterable[Started], patience_s: float) -> None:
    """SIGTERM (and SIGCONT, for one that was stopped), then SIGKILL after `patience_s`; waits for each."""
    running = [process for process in started if process.code() is None]
    for process in running:
        process.signal(signal.SIGTERM)
        process.signal(signal.SIGCONT)
    limit = time.monotonic() + patience_s
    for process in running:
        process.wait(max(0.0, limit - time.monotonic()))
    for process in running:
        process.signal(signal.SIGKILL)
    for process in running:
        process.wait(5.0)


def python_environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of a node's Python: our tree and our libraries, nothing of the caller's."""
    paths = dict.fromkeys([str(SOURCE), *site_packages()])
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LANG": "C.UTF-8",
        "PYTHONPATH": ":".join(paths),
        "PYTHONSAFEPATH": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        # One thread for numpy's linear algebra: a pool would spin on the cores that the run measures.
        "OPENBLAS_NUM_THREADS": "1",
        "OMP_NUM_THREADS": "1",
        **(extra or {}),
    }


def compile_source() -> None:
    """Byte-compiles our tree where that is missing, since containers see it read-only and would each do it again."""
    for package in ("testbed", "emulators"):
        compileall.compile_dir(SOURCE / package, quiet=2)


def site_packages() -> list[str]:
    """Where the libraries of this interpreter's environment lie."""
    return list(dict.fromkeys(sysconfig.get_path(name) for name in ("purelib", "platlib")))


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs one of our modules under this interpreter."""
    return [sys.executable, "-m", module, *arguments]


class CpuSets(NamedTuple):
    """Cores by what may use them."""

    host: tuple[int, ...]
    """Of the host's own software, its neighbours and the bench."""
    reserved: tuple[int, ...]
    """Of host software that no neighbour may disturb. On two cores they are the hardware's, which goes first."""
    hardware: tuple[int, ...]
    """Of what stands for silicon of its own."""


def cpu_sets(plan: Plan, cores: Sequence[int]) -> CpuSets:
    """How the machine's cores are shared out.

    One core: all share it. Two: core 0 is the host's, core 1 the hardware's. More: each hardware node gets one of its
    own from the far end as long as one is left for the hosts, and one for reserved nodes, if there are any; these get
    half of what hardware leaves.
    """
    if len(cores) == 1:
        return CpuSets(*3 * (tuple(cores),))
    hardware = sum(node.cores == "hardware" for node in plan.nodes)
    apart = any(node.cores == "reserved" for node in plan.nodes) and len(cores) > 2
    own = max(1, min(hardware, len(cores) - 1 - apart))
    left = len(cores) - own
    reserved = max(1, left // 2) if apart else 0
    host, rest, last = cores[: left - reserved], cores[left - reserved : left], cores[left:]
    return CpuSets(tuple(host), tuple(rest or last), tuple(last))


def cpu_map(plan: Plan, cores: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """Cores of each node by its CPU set (`cpu_sets`): hardware nodes have one each, the others all of theirs."""
    sets = cpu_sets(plan, cores)
    hardware = [node.name for node in plan.nodes if node.cores == "hardware"]
    shared = {"host": sets.host, "reserved": sets.reserved}
    return {
        **{name: (sets.hardware[place % len(sets.hardware)],) for place, name in enumerate(hardware)},
        **{node.name: shared[node.cores] for node in plan.nodes if node.cores in shared},
    }


def fifo_allowed() -> bool:
    """Whether a child of this process may use SCHED_FIFO (a control group may forbid it even to root)."""
    pid = os.fork()
    if pid == 0:
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(silicon.NIC))
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(pid, 0)[1] == 0


def die_with_parent(number: int = signal.SIGKILL) -> None:
    """Asks the kernel to signal this process when the thread that started it ends (prctl(2))."""
    _libc.prctl(_PR_SET_PDEATHSIG, number)


def _preparation(placement: Placement, cell: Path | None) -> Callable[[], None]:
    bench = os.getpid()

    def prepare() -> None:
        die_with_parent()
        if os.getppid() != bench:  # it died before the line above
            os._exit(1)
        cells.join(cell)
        if placement.cpus:
            os.sched_setaffinity(0, placement.cpus)
        if placement.fifo:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(silicon.NIC))

    return prepare
