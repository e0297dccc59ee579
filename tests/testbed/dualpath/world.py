"""A small DualPath system for tests: real machines of all roles on a flow wire under the simulated clock.

Only the central scheduler is left out: `Desk` stands at its place, assigns what a test tells it to and keeps what it
hears. Images are small; every region is ordinary memory that a test may look at or damage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol, runtime_checkable

from testbed.clocks.simulated import Simulation
from testbed.dualpath.blocks import BlockShape, block_ids, full_image
from testbed.dualpath.collectives import Collective, Member
from testbed.dualpath.engine_nodes import decode_machines, prefill_machines
from testbed.dualpath.letter import Letter
from testbed.dualpath.letters import AnyLetter
from testbed.dualpath.local_messages import SCHEDULER
from testbed.dualpath.mail import MAIL, Mail, Post
from testbed.dualpath.modelled_disk import ModelledDisk
from testbed.dualpath.node_memory import NodeMemory
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.storage import StorageServer
from testbed.dualpath.storage_client import StorageClient
from testbed.dualpath.traffic_manager import TrafficManager
from testbed.dualpath.turn_letters import Assign, FetchWork, Produced, ProducedMany, TurnEnded
from testbed.experiment.dualpath_nodes import SCHEDULER_NODE, STAGING, names, plan_nodes, shape_of, tokens_region
from testbed.experiment.dualpath_system import step_group
from testbed.experiment.outlines import NodeOutline
from testbed.machine import NOTHING, Deliver, Effects, Event, Machine, Message, RemoteAddress
from testbed.network.memory_region import PlainMemory
from testbed.network.wires import FlowWire
from testbed.serving.step_times import StepTimes
from testbed.serving.timed_device import TimedDevice
from testbed.serving.turns import TokenRun, Turn
from testbed.units import MICROSECOND, SECOND, Nanoseconds, image_bytes
from tests.testbed.dualpath.small_plans import plan_of

SCALE = 1000
DEFAULTS = DualPathParameters(
    model="ds-27b", layers=4, engines_per_node=2, storage_nodes=2, replicas=1, hbm_kv_bytes=60_000_000,
    prefill_buffer_bytes=40_000_000, decode_buffer_bytes=60_000_000, block_tokens=16, chunk_tokens=16,
    fetch_period=SECOND,
)  # fmt: skip
"""Full Blocks of 16 tokens are 378,240 true bytes."""


class Desk:
    """The central scheduler's place: assigns at given times, and keeps all letters."""

    name = SCHEDULER

    def __init__(self) -> None:
        self.letters: list[tuple[Nanoseconds, AnyLetter]] = []
        self.orders: list[tuple[Nanoseconds, str, AnyLetter]] = []

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        assert isinstance(message, Letter)
        self.letters.append((now, message))  # type: ignore[arg-type]
        return NOTHING

    def wake(self, now: Nanoseconds) -> Effects:
        due = [order for order in self.orders if order[0] <= now]
        self.orders = [order for order in self.orders if order[0] > now]
        return [Deliver(MAIL, Post(node, "leader", letter)) for _, node, letter in due]

    def deadline(self) -> Nanoseconds | None:
        return min((moment for moment, _, _ in self.orders), default=None)

    def ended(self, name: str) -> dict[str, str]:
        """Failure by node of all that have ended a turn."""
        return {
            each.node: each.failure for _, each in self.letters if isinstance(each, TurnEnded) and each.name == name
        }

    def tokens(self, name: str) -> list[Nanoseconds]:
        """When each token of a turn's answer came."""
        found: list[Nanoseconds] = []
        for now, letter in self.letters:
            if isinstance(letter, Produced) and letter.name == name:
                found += [now] * letter.tokens
            elif isinstance(letter, ProducedMany):
                found += [now] * sum(part.tokens for part in letter.turns if part.name == name)
        return found

    def fetches(self, node: str) -> list[FetchWork]:
        """All of a node."""
        return [letter for _, letter in self.letters if isinstance(letter, FetchWork) and letter.node == node]


@runtime_checkable
class Holder(Protocol):
    """A machine that accounts for memory."""

    @property
    def held_bytes(self) -> int:
        """True bytes."""
        ...


class World:
    """See the head of this file."""

    def __init__(self, parameters: DualPathParameters = DEFAULTS, rate: int = 400_000_000_000) -> None:
        self.parameters = parameters
        self.shape: BlockShape = shape_of(parameters, SCALE)
        outlines = [_in_images(each) for each in plan_nodes(parameters) if each.role != "client"]
        self.plan = plan_of([each._replace(ports=_rdma(each.ports)) for each in outlines], rate=rate, byte_scale=SCALE)
        self.memories = {
            (node.name, region.name): PlainMemory(region.size) for node in self.plan.nodes for region in node.regions
        }
        self.wire = FlowWire(self.plan, self.memories)
        self.simulation = Simulation(self.wire)
        self.events: list[tuple[Nanoseconds, str, Event]] = []
        self.machines: dict[str, dict[str, Machine]] = {}
        self.disks: dict[str, ModelledDisk] = {}
        self.desk = Desk()
        self._stored: dict[int, bytes] = {}
        self._started = False

    def _start(self) -> None:
        """Everybody gets machines; what the desk was told before is in its diary."""
        self._started = True
        for node in self.plan.nodes:
            if node.role == "scheduler":
                self._add(node.name, (Mail(), self.desk), None)
            elif node.role == "storage":
                disk = ModelledDisk(self.shape, bytes_per_s=100_000_000_000, latency=20 * MICROSECOND)
                disk.chunks.update({block: (1, image) for block, image in self._stored.items()})
                self.disks[node.name] = disk
                self._add(node.name, self._storage(node.name), disk)
            else:
                self._add(node.name, self._engines(node.name, node.role), TimedDevice(self.parameters.engines_per_node))

    def _add(self, node: str, machines: tuple[Machine, ...], device: TimedDevice | ModelledDisk | None) -> None:
        self.machines[node] = {machine.name: machine for machine in machines}
        self.simulation.add_node(
            node, machines, lambda now, event: self.events.append((now, node, event)), accelerator=device
        )

    def _storage(self, node: str) -> tuple[Machine, ...]:
        staging = self.memories.get((node, STAGING))
        server = StorageServer(
            node, self.shape, nodes=names(self.parameters, "storage"), replicas=self.parameters.replicas,
            staging=staging, where=self._where(node, STAGING) if staging else RemoteAddress(0, 0),
            committed=self.disks[node].committed(),
        )  # fmt: skip
        return (Mail(), self._traffic(node), server)

    def _engines(self, node: str, role: str) -> tuple[Machine, ...]:
        memories = {region: memory for (name, region), memory in self.memories.items() if name == node}
        storage = StorageClient(
            node, self.shape, nodes=names(self.parameters, "storage"), replicas=self.parameters.replicas,
            regions={region: self._where(node, region) for region in memories}, memories=memories,
            overhead=self.parameters.retrieval_overhead,
        )  # fmt: skip
        addresses = {f"{name}.{region}": self._where(name, region) for name, region in self.memories}
        build = prefill_machines if role == "prefill" else decode_machines
        own = build(
            NodeMemory(node, memories, addresses), self.parameters, shape=self.shape,
            times=StepTimes.of(self.parameters.model, self.parameters.layers, self.parameters.compute_scale),
            scheduler=SCHEDULER_NODE, group=step_group(self.parameters, role, node),
        )  # fmt: skip
        return (Mail(), self._traffic(node), storage, *own, *self._collectives(node, role))

    def _collectives(self, node: str, role: str) -> Iterator[Machine]:
        if not self.parameters.steps_together:
            return
        group = step_group(self.parameters, role, node)
        engines = [(name, engine) for name in group for engine in range(self.parameters.engines_per_node)]
        members = [
            Member(name, engine, f"cnic{engine}", self._where(name, region), self.memories[name, region].size)
            for name, engine in engines
            for region in [tokens_region(engine)]
        ]
        for engine in range(self.parameters.engines_per_node):
            place, memory = engines.index((node, engine)), self.memories[node, tokens_region(engine)]
            yield Collective(members, place, memory=memory, path_mtu=4096, scale=SCALE)

    def _traffic(self, node: str) -> TrafficManager:
        memories = {region: memory for (name, region), memory in self.memories.items() if name == node}
        return TrafficManager(
            node, self.parameters, shape=self.shape, memories=memories, regions=self.plan.node(node).regions
        )

    def _where(self, node: str, region: str) -> RemoteAddress:
        (found,) = (each for each in self.plan.node(node).regions if each.name == region)
        return RemoteAddress(found.address, found.key)

    # --- what a test does ---

    def store(self, turn: Turn, blocks: int) -> None:
        """The first blocks of a turn's prompt lie in storage, on every node, from the start."""
        for block in block_ids(turn.prompt, self.shape.tokens)[:blocks]:
            self._stored[block] = full_image(self.shape, block, self.shape.tokens)

    def assign(
        self, turn: Turn, hit: int, here: int, *, at: Nanoseconds = 0, pe: tuple[str, int] = ("pe0", 0),
        de: tuple[str, int] = ("de0", 0),
    ) -> None:  # fmt: skip
        """The desk gives a turn to its engines: `hit` blocks in storage, the first `here` read by the prefill side."""
        letter = Assign(turn, *pe, *de, here, hit)
        self.desk.orders += [(at, pe[0], letter), (at, de[0], letter)]

    def say(self, letter: AnyLetter, at: Nanoseconds, *nodes: str) -> None:
        """The desk sends a letter to leaders."""
        self.desk.orders += [(at, node, letter) for node in nodes]

    def run(self, until: Nanoseconds = 60 * SECOND, done: Callable[[], bool] = lambda: False) -> bool:
        """Runs until `done` (True), or until a moment. What the desk is to do must be said before the first run."""
        if not self._started:
            self._start()
        return self.simulation.run(until, done)

    def finish(self, *turns: Turn, until: Nanoseconds = 60 * SECOND) -> bool:
        """Runs until both sides have ended these turns."""
        return self.run(until, lambda: all(len(self.desk.ended(each.name)) == 2 for each in turns))

    def held(self, without: str = "") -> dict[str, int]:
        """True bytes or pages that any leader, engine or staging still holds, by place."""
        found: dict[str, int] = {}
        for node, machines in self.machines.items():
            for name, machine in machines.items():
                if node != without and isinstance(machine, Holder):
                    found[f"{node}.{name}"] = machine.held_bytes
        return {place: held for place, held in found.items() if held}

    def of(self, kind: type[Event]) -> list[tuple[Nanoseconds, str, Event]]:
        """Events of one type."""
        return [each for each in self.events if isinstance(each[2], kind)]


def turn(name: str = "a0000.t000", prompt: int = 100, answer: int = 5, context: int = 0, stream: int = 1) -> Turn:
    """A turn whose prompt is the beginning of a stream, and whose answer goes on with it."""
    return Turn(name, 0, 0, (TokenRun(stream, 0, prompt),), context, (TokenRun(stream, prompt, answer),))


def _rdma(ports: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(port for port in ports if not port.startswith("front"))


def _in_images(outline: NodeOutline) -> NodeOutline:
    """Regions as large as the images of what they hold, as a plan has them."""
    regions = tuple(
        each._replace(size=-(-each.size // each.grain) * image_bytes(each.grain, SCALE) if each.bulk else each.size)
        for each in outline.regions
    )
    return outline._replace(regions=regions)
