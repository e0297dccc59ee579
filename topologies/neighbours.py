"""The tenants beside a run on the host's CPU set: each in containers of its own, started warm, measured, ended.

A container is one thing that the kernel's scheduler is fair to, however many threads are in it (platform.md §6): so an
experiment says among how many containers the threads of a neighbour are shared. Where nodes are namespaces a
neighbour is a session of its own, which autogroup makes such a thing too. A neighbour is real work
(`emulators.interference`); nobody slows the server on its behalf. It ends with the run, by its container's label, its
cell and its registered process, and by itself after the run's time limit.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from testbed.events.host_events import NeighbourEnded, NeighbourMeasured, NeighbourStarted
from testbed.experiment.plan import NeighbourPlan, Plan
from topologies import cells
from topologies.bench_nodes import NodeDied
from topologies.docker_host import ContainerSpec, Docker, Mount
from topologies.naming import Names
from topologies.processes import (
    SOURCE,
    Placement,
    ProcessTable,
    Started,
    end,
    module_command,
    python_environment,
    site_packages,
)

WARM_PATIENCE_S = 60.0
MEASURE_S = 1.0
GRACE_S = 60.0
"""How long a neighbour outlives the run's time limit at most, should nobody end it."""
_TERM_PATIENCE_S = 3.0
_POLL_S = 0.05
_OWN_MIB = 160
"""Of each container, beside what its threads work on: Python, the program, generated files."""
_PER_THREAD_MIB = 16
"""pbzip2 -9 has 8 MB a thread, gcc -O2 less than 16."""


def memory_lacking(plan: Plan) -> str:
    """Why this machine has no room for what the plan's neighbours work on; empty where it has."""
    asked = sum(
        _container_mib(neighbour, threads) for neighbour in plan.neighbours for threads in neighbour.shares()
    )
    rows = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    there = next(int(row[1]) for row in rows if row[0] == "MemAvailable:") >> 10
    names = ", ".join(neighbour.name for neighbour in plan.neighbours)
    return f"neighbours {names} ask for {asked} MiB of memory, and {there} MiB are free" if asked > there else ""


def _container_mib(neighbour: NeighbourPlan, threads: int) -> int:
    return _OWN_MIB + threads * (neighbour.working_set_mib + _PER_THREAD_MIB)


class _Tenant(NamedTuple):
    """One container of one neighbour."""

    started: Started
    report: Path
    container: str | None


class _Report(msgspec.Struct, frozen=True):
    """As `emulators.interference` writes it."""

    program: str = ""
    unit: str = ""
    done: float = 0.0


class _Count(NamedTuple):
    done: float
    cpu: int
    at: int


class Neighbours:
    """The neighbours of one plan. `cpus` is the host's CPU set; without an engine they are namespace processes."""

    def __init__(self, plan: Plan, names: Names, table: ProcessTable, cpus: tuple[int, ...]) -> None:
        self.plan = plan
        self._names = names
        self._table = table
        self._cpus = cpus
        self._docker: Docker | None = None
        self._pids: dict[str, list[int]] = {}
        """The first process of each container, or the work itself where there is none, by neighbour."""
        self._tenants: dict[str, list[_Tenant]] = {}
        self._counts: dict[str, _Count] = {}
        self._due = 0.0

    def prepare(self, docker: Docker | None, image: str) -> None:
        """Makes their containers, which sleep until `start`. Raises ProgramFailed or DockerFault."""
        for neighbour in self.plan.neighbours:
            for number, threads in enumerate(neighbour.shares()):
                folder = self._names.neighbour_folder(neighbour.name, number)
                folder.mkdir(parents=True)
                if docker is not None:
                    pid = docker.start_container(self._spec(neighbour, number, threads, image))
                    self._pids.setdefault(neighbour.name, []).append(pid)
        self._docker = docker

    def start(self, check: Callable[[], None]) -> Iterator[NeighbourStarted]:
        """Starts their work and returns once all have begun to get something done. Raises NodeDied, TimeoutError."""
        for neighbour in self.plan.neighbours:
            self._tenants[neighbour.name] = [
                self._start(neighbour, number, threads) for number, threads in enumerate(neighbour.shares())
            ]
        limit = time.monotonic() + WARM_PATIENCE_S
        for neighbour in self.plan.neighbours:
            while any(_read(tenant).done == 0 for tenant in self._tenants[neighbour.name]):
                check()
                self.check_all_run()
                if time.monotonic() > limit:
                    raise TimeoutError(f"neighbour {neighbour.name} has done nothing after {WARM_PATIENCE_S:.0f} s")
                time.sleep(_POLL_S)
            program = _read(self._tenants[neighbour.name][0]).program
            yield NeighbourStarted(
                neighbour.name, neighbour.kind, neighbour.threads, len(neighbour.shares()), self._cpus, program
            )
        for neighbour in self.plan.neighbours:
            self._counts[neighbour.name] = self._count(neighbour.name)
        self._due = time.monotonic() + MEASURE_S

    def check_all_run(self) -> None:
        """Raises NodeDied for the first that has ended: the run would go on without what it is about."""
        for tenants in self._tenants.values():
            for tenant in tenants:
                code = tenant.started.code()
                if code is not None:
                    raise NodeDied(tenant.started.what, code, tenant.started.last_words(), tenant.started.log)

    def measure(self, *, now: bool = False) -> Iterator[NeighbourMeasured]:
        """What each has done since the last time, once a second or `now`."""
        if time.monotonic() < self._due and not now:
            return
        self._due = time.monotonic() + MEASURE_S
        for name, tenants in self._tenants.items():
            before, count = self._counts[name], self._count(name)
            self._counts[name] = count
            yield NeighbourMeasured(
                name, count.at - before.at, round(count.done - before.done, 3), _read(tenants[0]).unit,
                count.cpu - before.cpu,
            )  # fmt: skip

    def end(self) -> Iterator[NeighbourEnded]:
        """Ends all; one event each."""
        for name, tenants in self._tenants.items():
            reports = [_read(tenant) for tenant in tenants]
            yield NeighbourEnded(name, round(sum(report.done for report in reports), 3), reports[0].unit)
        for tenants in self._tenants.values():
            for tenant in tenants:
                if tenant.container is not None and self._docker is not None and tenant.started.code() is None:
                    self._docker.signal(tenant.container, 9)
        end([tenant.started for tenants in self._tenants.values() for tenant in tenants], _TERM_PATIENCE_S)
        self._tenants.clear()

    # --- inside ---

    def _start(self, neighbour: NeighbourPlan, number: int, threads: int) -> _Tenant:
        report = self._names.neighbour_folder(neighbour.name, number) / "report.json"
        arguments = [
            "--kind", neighbour.kind, "--threads", str(threads),
            "--working-set-mib", str(neighbour.working_set_mib), "--report", str(report),
            "--limit-s", str(self.plan.time_limit_s + GRACE_S),
        ]  # fmt: skip
        what = f"neighbour {neighbour.name} {number}"
        if self._docker is not None:
            container = self._names.neighbour(neighbour.name, number)
            inside = ["python3", "-m", "emulators.interference", *arguments]
            started = self._table.start(what, self._docker.exec_command(container, inside), Placement())
            return _Tenant(started, report, container)
        command = module_command("emulators.interference", *arguments)
        placement = Placement(cell=self._names.neighbour(neighbour.name, number), cpus=self._cpus)
        started = self._table.start(what, command, placement, python_environment())
        self._pids.setdefault(neighbour.name, []).append(started.pid)
        return _Tenant(started, report, None)

    def _spec(self, neighbour: NeighbourPlan, number: int, threads: int, image: str) -> ContainerSpec:
        folder = self._names.neighbour_folder(neighbour.name, number)
        libraries = [Mount(Path(path)) for path in site_packages() if not Path(path).is_relative_to(SOURCE)]
        return ContainerSpec(
            name=self._names.neighbour(neighbour.name, number),
            label=self.plan.label,
            image=image,
            hostname=f"{neighbour.name}-{number}",
            cpus=self._cpus,
            memory_mib=_container_mib(neighbour, threads),
            mounts=(Mount(SOURCE), *libraries, Mount(folder, writable=True)),
            environment=python_environment(),
        )

    def _count(self, name: str) -> _Count:
        done = sum(_read(tenant).done for tenant in self._tenants[name])
        cpu = sum(cells.cpu_time(pid) or 0 for pid in self._pids[name] if os.path.exists(f"/proc/{pid}"))
        return _Count(done, cpu, time.monotonic_ns())


def _read(tenant: _Tenant) -> _Report:
    with suppress(FileNotFoundError):
        return msgspec.json.decode(tenant.report.read_bytes(), type=_Report)
    return _Report()
