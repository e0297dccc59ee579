"""One run on this bench, from plan.json to control/bench.json: build, barrier, watch, tear down, always.

The order is that of `topologies.stages`; whatever happens, the run goes through finalising to cleaned, and what goes
wrong while tearing down is kept apart from how the run went (fault A16). Stages, readings and ends are events in
events/bench.jsonl. This module knows the barrier's files and nothing of what the nodes do.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import msgspec

from testbed.clocks.wall import Epoch, WallTime
from testbed.command.locks import held
from testbed.events.fidelity_events import FaultInjected
from testbed.events.log import EventWriter
from testbed.events.run_events import LineLogged, RunStarted, StageEntered
from testbed.experiment.plan import FaultPlan, Plan, read_plan
from testbed.machine import Event
from testbed.units import MILLISECOND
from topologies import reaper
from topologies.abilities import docker_usable
from topologies.bench_network import BenchNetwork
from topologies.bench_nodes import BenchNodes, NodeDied
from topologies.cells import Cells
from topologies.host_watch import HostWatch
from topologies.last_attempt import put_aside
from topologies.meters import CpuMeter, LinkMeter, packet_budget
from topologies.naming import Names
from topologies.neighbours import memory_lacking
from topologies.process_meter import ProcessMeter
from topologies.processes import ProcessTable, cpu_sets, die_with_parent
from topologies.registry import RunRecord, RunRegistry, mark_of, registered, registry_lock
from topologies.request_count import RequestCount, planned_requests
from topologies.run_ends import BenchFault, BenchResult, FolderTaken, HostCannot, RunCancelled
from topologies.run_storage import storage_fault
from topologies.stages import FOLLOWS, Stage
from topologies.surroundings import Surroundings

EPOCH_AHEAD = 100 * MILLISECOND
READY_PATIENCE_S = 120.0
MEASURE_S = 0.5
TELL_S = 1.0
"""Between two lines of progress while a run is running."""
_POLL_S = 0.02
_STRIKES = {"kill-scheduler": signal.SIGKILL, "hang-scheduler": signal.SIGSTOP}
_LOCK = "bench.lock"
_END_SHOWS_S = 0.2
_ORPHANED = "cancelled, since the process that started it has ended"


class Watch(NamedTuple):
    """What is looked at from before the barrier opens until the run ends."""

    host: HostWatch
    processes: ProcessMeter
    surroundings: Surroundings


class BenchRun:
    """One run. `run` may be called once."""

    def __init__(self, folder: Path, nodes: str | None = None, *, serve: bool = False, starter: int = 0) -> None:
        self.folder = folder.absolute()
        self._starter = starter or os.getppid()
        self.plan: Plan = read_plan((self.folder / "plan.json").read_bytes())
        self.names = Names(self.plan)
        self._kind = nodes or self.plan.nodes_as
        if self._kind == "auto":
            self._kind = "docker" if docker_usable() else "namespace"
        elif self._kind == "docker" and not docker_usable():
            raise HostCannot("nodes as containers: no Docker engine answers and none can be started; "
                             "apt-get install docker.io, or nodes = \"namespace\"")  # fmt: skip
        if lacking := memory_lacking(self.plan):
            raise HostCannot(lacking)
        self._serve = serve
        self._control = self.folder / "control"
        self._registry = RunRegistry(self.plan.label)
        self._stage: Stage | None = None
        self._begun = time.monotonic()
        self._network: BenchNetwork | None = None
        self._asked_to_end = ""
        self._outcome_known = False
        self._wall: WallTime | None = None
        self._latest = 0
        self._struck = False
        self._undo = ExitStack()
        self._teardown_faults: list[str] = []

    def run(self) -> BenchResult:
        """Carries the run out and cleans up after it. Never raises for a fault of the run: see the result.

        Raises `FolderTaken` while another bench has the folder, OSError where nothing can be written into it.
        """
        self._control.mkdir(parents=True, exist_ok=True)
        with held(self._control / _LOCK) as free:
            if not free:
                raise FolderTaken(self.folder)
            return self._run_alone()

    def _run_alone(self) -> BenchResult:
        earlier = put_aside(self.folder)
        previous = {number: signal.signal(number, self._ask_to_end) for number in (signal.SIGTERM, signal.SIGINT)}
        self._log = EventWriter(self.folder / "events" / "bench.jsonl", "bench")
        if earlier is not None:
            self._print(f"the last attempt in this folder is now in {earlier}")
        try:
            outcome, detail = self._outcome()
            self._enter(Stage.FINALISING, detail)
            self._tear_down()
            self._enter(Stage.CLEANED, "; ".join(self._teardown_faults))
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            with suppress(OSError), closing(self._log):
                self._log.flush()
        return self._left_word(outcome, detail)

    def _left_word(self, outcome: str, detail: str) -> BenchResult:
        """The result, written to control/bench.json; a run whose result cannot be kept has not completed."""
        result = BenchResult(outcome, detail, "; ".join(self._teardown_faults))
        try:
            self._write("bench.json", msgspec.json.format(msgspec.json.encode(result), indent=1) + b"\n")
        except OSError as fault:
            words = f"{self._control / 'bench.json'}: {fault.strerror}"
            return BenchResult("errored", result.detail or words, result.teardown)
        return result

    def _outcome(self) -> tuple[str, str]:
        """How it went. From here on what cannot be logged is let go: the tear-down matters more."""
        try:
            self._carry_out()
        except RunCancelled as cancelled:
            return "cancelled", str(cancelled)
        except Exception as fault:  # noqa: BLE001  # whatever it was, the run is torn down and the result says so
            self._outcome_known = True
            words = str(fault) or type(fault).__name__
            if self._network is not None and not isinstance(fault, NodeDied):  # which has looked itself
                words = self._network.ended() or words  # that is the cause, and the fault what it led to
            if storage := storage_fault(self.folder):  # and so is this
                words = f"{storage}; {words.splitlines()[0]}"
            self._emit(LineLogged(text=words, severity="error"))
            return "errored", words
        finally:
            self._outcome_known = True
        return "completed", ""

    def _carry_out(self) -> None:
        self._enter(Stage.PREPARING, f"{self._kind} nodes")
        self._clear_the_dead()
        with registry_lock():
            owner = mark_of(os.getpid(), "bench")
            assert owner is not None
            self._registry.create(RunRecord(self.plan.label, str(self.folder), owner, self._kind))
        self._on_tear_down(self._registry.remove)
        self._warn_of_neighbours()
        cells = Cells(self.plan.label)
        self._on_tear_down(cells.remove)
        table = ProcessTable(self._registry, cells, self._control)
        cores = tuple(sorted(os.sched_getaffinity(0)))
        network = BenchNetwork(self.plan, self.names, self._kind, self._registry, self._say, self._check, cores)
        self._network = network
        nodes = BenchNodes(self.plan, self.names, network, table, cells, self.folder, self._say)
        self._enter(Stage.NETWORK)
        self._on_tear_down(network.close)
        for event in network.build(self.folder):
            self._emit(event)
        asked, carried = packet_budget(self.plan)
        if asked > carried:
            self._say(f"all RoCE ports saturated would be {asked} packets/s, this machine carries {carried}", "warning")
        self._keep_off_hardware(cores)
        surroundings = Surroundings(self.plan, self.names, network, table, cores)
        surroundings.prepare()
        self._enter(Stage.NODES)
        self._on_tear_down(lambda: self._end_nodes(nodes))
        nodes.start_captures()
        nodes.start_rnics(self._check)
        nodes.start_software()
        self._wait_until_ready(nodes)
        nodes.favour_hardware()
        self._on_tear_down(lambda: self._end_surroundings(surroundings))
        for started in surroundings.start(self._check):
            self._emit(started)
        host = network.host_watch()
        self._on_tear_down(host.close)
        processes = ProcessMeter(nodes.pids())
        self._open_barrier()
        if self._serve:
            nodes.start_relay()
        self._enter(Stage.RUNNING)
        self._watch(network, nodes, Watch(host, processes, surroundings))

    def _keep_off_hardware(self, cores: tuple[int, ...]) -> None:
        """The bench, and what it starts without a place of its own, stays on the hosts' cores from here on."""
        os.sched_setaffinity(0, cpu_sets(self.plan, cores).host)

    def _clear_the_dead(self) -> None:
        reaped = reaper.reap()
        for leftover in reaped.removed:
            self._say(f"reaped {leftover}")
        for leftover, fault in reaped.failed:
            self._say(f"could not reap {leftover}: {fault}", "warning")
        record = self._registry.record()
        if record is not None:
            state = "is live" if self._registry.live() else "could not be reaped"
            raise BenchFault(f"label {self.plan.label} is taken: run {record.folder} (pid {record.owner.pid}) {state}")

    def _warn_of_neighbours(self) -> None:
        """Several runs at once are allowed, but their silicon is SCHED_FIFO on the same cores."""
        others = [other.label for other in registered() if other.label != self.plan.label and other.live()]
        if others:
            self._say(
                f"another run is live on this machine ({', '.join(others)}): runs at once disturb each other's times",
                "warning",
            )

    def _wait_until_ready(self, nodes: BenchNodes) -> None:
        limit = time.monotonic() + READY_PATIENCE_S
        while missing := [node.name for node in self.plan.nodes if not self._has(f"{node.name}.ready")]:
            self._check()
            nodes.check_all_run()
            if time.monotonic() > limit:
                raise BenchFault(f"not ready after {READY_PATIENCE_S:.0f} s: {', '.join(missing)}")
            time.sleep(_POLL_S)

    def _open_barrier(self) -> None:
        epoch = Epoch(epoch_monotonic_ns=time.monotonic_ns() + EPOCH_AHEAD, dilation=self.plan.dilation)
        self._wall = WallTime(epoch)
        self._write("start.json", msgspec.json.encode(epoch))
        requests = planned_requests(self.plan) or 0
        self._emit(
            RunStarted(
                system=self.plan.system,
                clock=self.plan.clock,
                dilation=self.plan.dilation,
                byte_scale=self.plan.byte_scale,
                seed=self.plan.seed,
                requests=0 if self._serve else requests,
                nodes=tuple(node.name for node in self.plan.nodes),
                displaced=tuple(node.name for node in self.plan.nodes if node.role != "host" and not node.silicon),
            )
        )

    def _watch(self, network: BenchNetwork, nodes: BenchNodes, watch: Watch) -> None:
        """Measures until the nodes whose work has an end are done; when serving or without any, until asked to end."""
        finite = self.plan.finite_nodes()
        links = LinkMeter(self.plan, network.fabric.switch_ports())
        self._on_tear_down(links.close)
        cpu = CpuMeter()
        desk = network.lane_desk(self.folder, nodes.use_tables)
        limit = time.monotonic() + self.plan.time_limit_s
        due = time.monotonic() + MEASURE_S
        faults = deque(self.plan.faults)
        count, tell = RequestCount(self.folder, self.plan), time.monotonic() + TELL_S
        while True:
            if self._serve and self._asked_to_end and not self._orphaned():
                break
            self._check()
            while faults and self._now() >= faults[0].at and not self._serve:
                self._befall(nodes, faults.popleft())
            nodes.check_all_run(done=[name for name in finite if self._has(f"{name}.done")])
            watch.surroundings.check_all_run()
            for event in desk.look(self._say):
                self._emit(event)
            watch.processes.look()
            now = time.monotonic()
            if now >= due:
                due += MEASURE_S * (1 + int((now - due) / MEASURE_S))
                if not self._control.is_dir():  # what is open could be written to for ever, and nobody would see it
                    raise BenchFault(f"{self.folder}: the run folder was taken away")
                self._measure(links, cpu, watch)
                if self._struck:  # a new scheduler is another process
                    watch.processes.follow(nodes.pids())
            if now >= tell and finite and not self._serve:
                tell = now + TELL_S
                self._print(f"{Stage.RUNNING.value}: {count.look()}")
            if finite and not self._serve and all(self._has(f"{name}.done") for name in finite):
                break
            if now > limit and not self._serve:
                raise BenchFault(f"the time limit of {self.plan.time_limit_s:g} s is over")
            time.sleep(_POLL_S)
        self._measure(links, cpu, watch, last=True)
        for change in watch.host.look_inside():
            self._emit(change)

    def _befall(self, nodes: BenchNodes, fault: FaultPlan) -> None:
        """Carries out a fault that the experiment asks for."""
        if fault.kind == "kill":
            self._emit(FaultInjected(fault.node, fault.kind))
            nodes.kill(fault.node)
        else:
            scheduler = nodes.scheduler(fault.node)  # to find it takes a while: first, so that the moment is right
            if scheduler is None:
                self._say(f"{fault.kind} {fault.node}: there is no scheduler at this moment", "warning")
                return
            self._emit(FaultInjected(fault.node, fault.kind))
            with suppress(ProcessLookupError):
                os.kill(scheduler, _STRIKES[fault.kind])
            self._struck = True
        self._say(f"{fault.kind} {fault.node}: the experiment asks for it", "warning")

    def _measure(self, links: LinkMeter, cpu: CpuMeter, watch: Watch, *, last: bool = False) -> None:
        beside = watch.surroundings.measure(last=last)
        for event in (*links.measure(), cpu.measure(), *watch.processes.measure(), *watch.host.look(), *beside):
            self._emit(event)

    def _end_surroundings(self, surroundings: Surroundings) -> None:
        for event in surroundings.end():
            self._emit(event)

    def _end_nodes(self, nodes: BenchNodes) -> None:
        self._write("stop", b"")
        nodes.end()
        for event in nodes.ends(self._now):
            self._emit(event)

    # --- the end ---

    def _on_tear_down(self, undo: object) -> None:
        def attempt() -> None:
            try:
                undo()  # type: ignore[operator]
            except Exception as fault:  # noqa: BLE001  # what follows must be undone too
                self._teardown_faults.append(str(fault) or type(fault).__name__)
                self._say(f"tear-down: {self._teardown_faults[-1]}", "error")

        self._undo.callback(attempt)

    def _tear_down(self) -> None:
        self._undo.close()

    def _ask_to_end(self, number: int, _frame: FrameType | None) -> None:
        self._asked_to_end = self._asked_to_end or signal.Signals(number).name

    def _check(self) -> None:
        """Raises RunCancelled once the run has been asked to end, or nobody is there any more who has started it."""
        if self._asked_to_end or os.getppid() != self._starter:
            raise RunCancelled(_ORPHANED if self._orphaned() else f"cancelled by {self._asked_to_end}")

    def _orphaned(self) -> bool:
        """Whether our starter has ended. After a signal, which may be the kernel's for that, asked with patience: a
        process of several threads is gone only with the last of them.
        """
        limit = time.monotonic() + _END_SHOWS_S
        while os.getppid() == self._starter and time.monotonic() < limit:
            time.sleep(_POLL_S)
        return os.getppid() != self._starter

    # --- files and events ---

    def _has(self, name: str) -> bool:
        return (self._control / name).exists()

    def _write(self, name: str, data: bytes) -> None:
        temporary = self._control / f"{name}.new"
        temporary.write_bytes(data)
        temporary.replace(self._control / name)

    def _enter(self, stage: Stage, detail: str = "") -> None:
        if stage not in FOLLOWS[self._stage]:
            raise BenchFault(f"{stage.value} cannot follow {self._stage}")
        self._stage = stage
        self._emit(StageEntered(stage=stage.value, detail=detail))
        self._print(stage.value + (f": {detail}" if detail else ""))

    def _say(self, text: str, severity: str = "info") -> None:
        self._emit(LineLogged(text=text, severity=severity))
        self._print(text)

    def _print(self, text: str) -> None:
        with suppress(OSError):  # whoever listened is gone; what is written here is in the log too
            print(f"[{time.monotonic() - self._begun:6.2f} s] {text}", file=sys.stderr, flush=True)

    def _now(self) -> int:
        """True time; 0 until the barrier opens."""
        return 0 if self._wall is None else max(0, self._wall.true(time.monotonic_ns()))

    def _emit(self, event: Event) -> None:
        try:
            self._log.write(self._now(), event)
            self._log.flush()
        except OSError as fault:
            if not self._outcome_known:
                raise BenchFault(f"{self._log.path}: {fault.strerror}") from fault


def execute(folder: Path, nodes: str | None = None, *, serve: bool = False, starter: int = 0) -> BenchResult:
    """Runs the plan in `folder`; the bench ends when the process that started it, or pid `starter`, does."""
    die_with_parent(signal.SIGTERM)
    return BenchRun(folder, nodes, serve=serve, starter=starter).run()
