"""A whole system under the simulated clock, from agents to storage, whose machines and memories a test can see."""

from __future__ import annotations

from collections.abc import Callable

from testbed.baselines.pool_client import PooledStorage
from testbed.baselines.pool_scheduler import PooledScheduler
from testbed.clocks.simulated import Simulation
from testbed.dualpath.local_messages import SCHEDULER, STORAGE
from testbed.events.kv_events import BlockRejected, TransferFinished, TurnPlaced
from testbed.experiment.assembly import assemble_node
from testbed.experiment.outlines import Surroundings
from testbed.experiment.planning import compile_plan
from testbed.experiment.reading import spec_from_bytes
from testbed.experiment.simulation import make_front_network, make_wire
from testbed.experiment.sweep import Place
from testbed.machine import Event, Machine
from testbed.network.memory_region import LocalMemory, PlainMemory
from testbed.network.wires import FlowWire
from testbed.units import SECOND, Nanoseconds
from testbed.workload.agents import AGENTS, Agents

SPEC = """
name = "x"
title = "X"
byte_scale = 1000
[systems.s]
kind = "{kind}"
model = "ds-27b"
layers = 4
block_tokens = 16
prefill_nodes = 2
engines_per_node = 2
hbm_kv_bytes = 400_000_000
prefill_buffer_bytes = 400_000_000
decode_buffer_bytes = 400_000_000
compute_scale = 0.05
{parameters}
[workload.trajectories]
kind = "fixed"
agents = {agents}
turns = 5
first = 160
append = 32
generate = 16
"""


class PoolWorld:
    """See the head of this file. `parameters` are lines of the system's table."""

    def __init__(self, *parameters: str, agents: int = 4, kind: str = "dram_pool") -> None:
        spec = spec_from_bytes(
            SPEC.format(parameters="\n".join(parameters), agents=agents, kind=kind).encode(), "x.toml"
        )
        self.plan = compile_plan(
            spec, Place("s", (), 0), run="20260101-000000-0a1b2c", label="0a1b2c", clock="simulated"
        )
        self.memories: dict[tuple[str, str], LocalMemory] = {
            (node.name, region.name): PlainMemory(region.size) for node in self.plan.nodes for region in node.regions
        }
        wire = make_wire(self.plan, self.memories)
        assert isinstance(wire, FlowWire)
        self.wire = wire
        self.simulation = Simulation(self.wire, make_front_network(self.plan))
        self.events: list[tuple[Nanoseconds, str, Event]] = []
        self.machines: dict[str, dict[str, Machine]] = {}
        for node in self.plan.nodes:
            own = {name: memory for (owner, name), memory in self.memories.items() if owner == node.name}
            assembly = assemble_node(self.plan, node.name, Surroundings(own))
            self.machines[node.name] = {machine.name: machine for machine in assembly.machines}
            self.simulation.add_node(node.name, assembly.machines, self._log(node.name), assembly.accelerator)

    def _log(self, node: str) -> Callable[[Nanoseconds, Event], None]:
        return lambda now, event: self.events.append((now, node, event))

    @property
    def agents(self) -> Agents:
        found = self.machines["client0"][AGENTS]
        assert isinstance(found, Agents)
        return found

    @property
    def scheduler(self) -> PooledScheduler:
        found = self.machines["sched0"][SCHEDULER]
        assert isinstance(found, PooledScheduler)
        return found

    def clients(self, *without: str) -> dict[str, PooledStorage]:
        found = {node: machines.get(STORAGE) for node, machines in self.machines.items() if node not in without}
        return {node: machine for node, machine in found.items() if isinstance(machine, PooledStorage)}

    def run(self, until: Nanoseconds = 60 * SECOND, done: Callable[[], bool] | None = None) -> bool:
        """Until all agents are done, or `done`; then until what they left is released."""
        ended = self.simulation.run(until, done or (lambda: self.agents.done))
        if done is None:
            self.simulation.run(self.simulation.now + SECOND // 5, lambda: False)
        return ended

    def of(self, kind: type[Event]) -> list[Event]:
        return [event for _, _, event in self.events if isinstance(event, kind)]

    def blocks(self, hop: str, turn: str = "") -> int:
        """Blocks that a hop has carried, of one turn or of all."""
        return sum(
            event.blocks
            for event in self.of(TransferFinished)
            if isinstance(event, TransferFinished) and event.hop == hop and turn in ("", event.turn)
        )

    def placed(self) -> list[TurnPlaced]:
        return [event for event in self.of(TurnPlaced) if isinstance(event, TurnPlaced)]

    def rejected(self) -> list[BlockRejected]:
        return [event for event in self.of(BlockRejected) if isinstance(event, BlockRejected)]
