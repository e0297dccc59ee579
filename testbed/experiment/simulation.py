"""One trial under the simulated clock: assembles the plan's nodes, runs them in this process, writes their events.

The files are those of an emulation, events/<node>.jsonl and events/bench.jsonl, and hold nothing that depends on
this process or the time of day: the same plan twice gives the same bytes (known fault 37). Heartbeats come every
100 ms of true time. It decides nothing that a machine decides. What goes wrong on purpose is `simulated_faults`.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import NamedTuple, Protocol, runtime_checkable

import msgspec

from testbed.clocks.front_network import FrontNetwork
from testbed.clocks.pcie import PcieLinks
from testbed.clocks.simulated import Simulation
from testbed.events.log import EventWriter
from testbed.events.run_events import (
    LineLogged,
    NodeHeartbeat,
    NodeReady,
    NodeStopped,
    RunFinished,
    RunStarted,
    StageEntered,
)
from testbed.experiment.assembly import CLIENTS, SYSTEMS, assemble_node, owner_of, provisions_of
from testbed.experiment.outlines import NodeAssembly, Surroundings
from testbed.experiment.plan import Plan
from testbed.experiment.run_folder import Outcome, RunFolder
from testbed.experiment.simulated_faults import KILLED, SimulatedFaults
from testbed.machine import Event
from testbed.network.connection import local_ack_timeout
from testbed.network.memory_region import LocalMemory, PlainMemory
from testbed.network.wires import FlowWire, PacketWire, WireSettings
from testbed.serving.tokens import Vocabulary, deepseek_vocabulary
from testbed.units import MILLISECOND, SECOND, Nanoseconds
from testbed.workload.streams import stream

HEARTBEAT: Nanoseconds = 100 * MILLISECOND
DRAIN: Nanoseconds = 20 * MILLISECOND
"""True time after the last answer in which servers release what it held."""
BENCH = "bench"
_CHUNK = 2_000
"""Wakes between two looks at whether the run is to be cancelled."""


@runtime_checkable
class Finite(Protocol):
    """A machine whose work has an end, as clients' and agents' has: a trial ends when all of them are done."""

    @property
    def done(self) -> bool:
        """Nothing is left."""
        ...

    @property
    def ended(self) -> int:
        """Requests that have finished or failed."""
        ...

    @property
    def remaining(self) -> int:
        """Requests that have not."""
        ...


class SimulationEnd(NamedTuple):
    """How a simulated trial ended."""

    outcome: Outcome
    """passed (it ran to its end; figures are judged later), errored or cancelled."""
    detail: str
    t: Nanoseconds
    """True time at the end."""
    wakes: int
    """How many appointments were kept: the work that it was."""


class Progress(NamedTuple):
    """How far a simulation is."""

    t: Nanoseconds
    ended: int
    """Requests that have finished or failed."""
    requests: int


def simulate(
    plan: Plan,
    folder: RunFolder,
    *,
    vocabulary: Vocabulary | None = None,
    progress: Callable[[Progress], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
) -> SimulationEnd:
    """Runs the trial and writes its events into `folder`. A fault of a machine ends it as errored, traceback kept."""
    with ExitStack() as stack:
        names = [node.name for node in plan.nodes]
        writers = {
            name: stack.enter_context(EventWriter(folder.events / f"{name}.jsonl", name)) for name in (*names, BENCH)
        }
        trial = _Trial(plan, writers)
        try:
            speaks = SYSTEMS[plan.kind].clients == "text"
            trial.prepare((vocabulary or deepseek_vocabulary()) if speaks else None)
            outcome, detail = trial.run(progress, cancelled)
        except Exception as fault:  # noqa: BLE001  # whatever a machine does, the run must say how it ended
            trial.bench(LineLogged(traceback.format_exc(), severity="error"))
            outcome, detail = "errored", f"{type(fault).__name__}: {fault}"
        trial.finish(outcome, detail)
        return SimulationEnd(outcome, detail, trial.now, trial.wakes)


def make_wire(plan: Plan, memories: Mapping[tuple[str, str], LocalMemory]) -> FlowWire | PacketWire:
    """The simulated wire that the plan asks for."""
    settings = WireSettings(latency=plan.wire_latency)
    if plan.ack_timeout is not None:
        settings = msgspec.structs.replace(settings, retransmission_timeout=local_ack_timeout(plan.ack_timeout))
    if plan.wire == "packet":
        return PacketWire(plan, memories, settings=settings, rng=stream(plan.seed, "wire"))
    return FlowWire(plan, memories, settings=settings)


def make_front_network(plan: Plan) -> FrontNetwork:
    """The front network between the plan's clients and its server."""
    ports = {node.name: port for node in plan.nodes for port in node.ports if port.fabric == "front"}
    row = SYSTEMS[plan.kind]
    return FrontNetwork(
        row.server,
        {node.name: CLIENTS[row.clients] for node in plan.nodes if node.role == "client"},
        rates_bits_per_s={name: port.rate_bits_per_s for name, port in ports.items()},
        delay=plan.front_delay,
        answer_delay=plan.answer_delay,
    )


def make_links(plan: Plan) -> PcieLinks:
    """The PCIe links between the plan's nodes."""
    return PcieLinks((node.name, peer) for node in plan.nodes for peer in node.attached)


class _Trial:
    """The nodes, their logs and the heartbeats between them."""

    def __init__(self, plan: Plan, writers: Mapping[str, EventWriter]) -> None:
        self._plan = plan
        self._writers = writers
        self._clients: list[Finite] = []
        self._simulation: Simulation | None = None
        self._faults: SimulatedFaults | None = None
        self._next_beat = HEARTBEAT

    @property
    def now(self) -> Nanoseconds:
        """The moment that was reached."""
        return self._simulation.now if self._simulation else 0

    @property
    def wakes(self) -> int:
        """How many appointments were kept."""
        return self._simulation.wakes if self._simulation else 0

    def bench(self, event: Event) -> None:
        """An event of the bench itself."""
        self._writers[BENCH].write(self.now, event)

    def prepare(self, vocabulary: Vocabulary | None) -> None:
        """Builds memories, wire and nodes; the host provisions."""
        plan = self._plan
        self.bench(StageEntered("preparing"))
        memories: dict[tuple[str, str], LocalMemory] = {
            (node.name, region.name): PlainMemory(region.size) for node in plan.nodes for region in node.regions
        }

        def own(node: str) -> dict[str, LocalMemory]:
            return {name: memory for (owner, name), memory in memories.items() if owner == node}

        def assemble(node: str) -> NodeAssembly:
            return assemble_node(plan, node, Surroundings(own(node), vocabulary))

        def write_for(node: str, t: Nanoseconds, event: Event) -> None:
            self._writers[node].write(t, event)

        wire = make_wire(plan, memories)
        simulation = Simulation(wire, make_front_network(plan), make_links(plan))
        for node in plan.nodes:
            write = self._writers[node.name].write
            if node.role == "host":
                write(0, provisions_of(plan))
            assembly = assemble(node.name)
            self._clients += [machine for machine in assembly.machines if isinstance(machine, Finite)]
            simulation.add_node(node.name, assembly.machines, write, assembly.accelerator)
            # There is no process of its own: 0, so that the log is the same wherever it was written.
            write(0, NodeReady(role=node.role, pid=0))
        self._simulation = simulation
        owners = {node.name: owner for node in plan.nodes if (owner := owner_of(plan, node, own(node.name)))}
        self._faults = SimulatedFaults(plan.faults, owners, simulation, wire, write_for, BENCH, assemble)

    def run(self, progress: Callable[[Progress], None], cancelled: Callable[[], bool]) -> tuple[Outcome, str]:
        """Runs until every request has ended and its resources are released."""
        plan = self._plan
        requests = self._requests()
        self.bench(
            RunStarted(
                system=plan.system,
                clock=plan.clock,
                dilation=plan.dilation,
                byte_scale=plan.byte_scale,
                seed=plan.seed,
                requests=requests,
                nodes=tuple(node.name for node in plan.nodes),
            )
        )
        self.bench(StageEntered("running"))
        limit = round(plan.time_limit_s * SECOND)
        ended = self._advance(limit, self._done, progress, cancelled)
        if cancelled():
            return "cancelled", "cancelled on request"
        if not ended:
            left = sum(client.remaining for client in self._clients)
            late = self.now_reaches(limit)
            why = f"the time limit of {plan.time_limit_s:g} s" if late else "nothing is due any more"
            return "errored", f"{why}, and {left} of {requests} requests have not ended"
        self._advance(self.now + DRAIN, lambda: False, progress, cancelled)
        return "passed", ""

    def now_reaches(self, limit: Nanoseconds) -> bool:
        """Whether something is still due, but only beyond `limit`."""
        moment = self._simulation.next() if self._simulation else None
        return moment is not None and moment > limit

    def finish(self, outcome: Outcome, detail: str) -> None:
        """The last words of every node and of the bench."""
        faults = self._faults
        for name, writer in self._writers.items():
            if name == BENCH or (faults is not None and name in faults.gone):
                continue
            writer.write(self.now, NodeStopped(code=KILLED if faults is not None and name in faults.silent else 0))
        self.bench(StageEntered("finalising"))
        self.bench(RunFinished(outcome, detail))

    def _requests(self) -> int:
        return sum(client.ended + client.remaining for client in self._clients)

    def _done(self) -> bool:
        return all(client.done for client in self._clients)

    def _advance(
        self,
        until: Nanoseconds,
        done: Callable[[], bool],
        progress: Callable[[Progress], None],
        cancelled: Callable[[], bool],
    ) -> bool:
        """Steps up to `until`; True once `done`, False if time or work ran out or the run was cancelled."""
        simulation, faults = self._simulation, self._faults
        assert simulation is not None
        assert faults is not None
        steps = 0
        while not done():
            moment = simulation.next()
            if moment is None or moment > until:
                return False
            due = faults.next
            if due is not None and due <= min(moment, self._next_beat):
                faults.attend(moment)
                continue
            if moment >= self._next_beat:
                self._beat(progress)
                continue
            simulation.step()
            steps += 1
            if steps % _CHUNK == 0 and cancelled():
                return False
        return True

    def _beat(self, progress: Callable[[Progress], None]) -> None:
        for name, writer in self._writers.items():
            if self._faults is not None and name in self._faults.silent:
                continue
            writer.write(self._next_beat, NodeHeartbeat())
            writer.flush()
        ended = sum(client.ended for client in self._clients)
        progress(Progress(self._next_beat, ended, self._requests()))
        self._next_beat += HEARTBEAT
