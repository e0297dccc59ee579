"""The store on the fluid wire, with mail and traffic manager as in every run: full ports, dead nodes, both hops."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import pytest

from testbed.clocks.simulated import Simulation
from testbed.dualpath.blocks import check_full, full_image
from testbed.dualpath.local_messages import BlockArrived, BlocksRead, BlocksWritten, ReadBlocks, WriteBlocks
from testbed.dualpath.mail import Mail
from testbed.dualpath.modelled_disk import ModelledDisk
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.storage import StorageServer
from testbed.dualpath.storage_client import StorageClient
from testbed.dualpath.traffic_manager import TrafficManager
from testbed.events.kv_events import BlockRejected, NodeLost, TransferFinished
from testbed.experiment.dualpath_nodes import STAGING, plan_nodes, shape_of
from testbed.machine import NOTHING, Deliver, Effects, Event, Machine, Message, RemoteAddress
from testbed.network.memory_region import LocalMemory, PlainMemory
from testbed.network.wires import FlowWire
from testbed.units import SECOND, Nanoseconds
from tests.testbed.dualpath.small_plans import plan_of

RATE = 400_000_000_000
SCALE = 1_000


class Asker:
    """Stands for a leader engine: asks one thing after another, each when the one before it is answered."""

    name = "leader"

    def __init__(self) -> None:
        self.script: deque[ReadBlocks | WriteBlocks] = deque()
        self.began: list[Nanoseconds] = []
        self.answers: list[tuple[Nanoseconds, BlocksRead | BlocksWritten]] = []
        self.arrived = 0

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        if isinstance(message, BlockArrived):
            self.arrived += message.blocks
            return NOTHING
        assert isinstance(message, BlocksRead | BlocksWritten)
        self.answers.append((now, message))
        return self.wake(now)

    def wake(self, now: Nanoseconds) -> Effects:
        if not self.script:
            return NOTHING
        self.began.append(now)
        return (Deliver("storage", self.script.popleft()),)

    def deadline(self) -> Nanoseconds | None:
        return 0 if self.script and not self.began else None


class World:
    """pe0, de0 and the storage nodes of a small DualPath, from the outlines that every plan is made of."""

    def __init__(self, storage_nodes: int = 2, replicas: int = 2, disk_gbyte_s: float = 60.0) -> None:
        parameters = DualPathParameters(
            storage_nodes=storage_nodes, replicas=replicas, engines_per_node=1, layers=4,
            hbm_kv_bytes=1_000_000_000, prefill_buffer_bytes=2_000_000_000, decode_buffer_bytes=2_000_000_000,
        )  # fmt: skip
        self.shape = shape = shape_of(parameters, SCALE)
        outlines = plan_nodes(parameters)
        plan = plan_of(outlines, rate=RATE, byte_scale=SCALE)
        memories: dict[tuple[str, str], LocalMemory] = {
            (node.name, region.name): PlainMemory(region.size) for node in plan.nodes for region in node.regions
        }
        self.memories = memories
        self.wire = FlowWire(plan, memories)
        self.simulation = Simulation(self.wire)
        self.events: list[tuple[Nanoseconds, str, Event]] = []
        self.machines: dict[str, tuple[Machine, ...]] = {}
        self.askers = {name: Asker() for name in ("pe0", "de0")}
        names = [node.name for node in plan.nodes if node.role == "storage"]
        for node in plan.nodes:
            own = {region: memory for (owner, region), memory in memories.items() if owner == node.name}
            where = {region.name: RemoteAddress(region.address, region.key) for region in node.regions}
            traffic = TrafficManager(node.name, parameters, shape=shape, memories=own, regions=node.regions)
            if node.role == "storage":
                disk = ModelledDisk(shape, bytes_per_s=round(disk_gbyte_s * 10**9), latency=100_000)
                server = StorageServer(
                    node.name, shape, nodes=names, replicas=replicas,
                    staging=own.get(STAGING), where=where.get(STAGING, RemoteAddress(0, 0)),
                )  # fmt: skip
                self.simulation.add_node(node.name, (Mail(), traffic, server), self.emit(node.name), disk)
            elif node.name in self.askers:
                client = StorageClient(node.name, shape, nodes=names, replicas=replicas, regions=where, memories=own)
                self.machines[node.name] = (Mail(), traffic, client)

    def write(self, node: str, blocks: list[int]) -> None:
        """To be asked next, of `node`: blocks at the beginning of its buffer."""
        size = self.shape.full_image
        view = self.memories[node, "buffer"].view
        for place, block in enumerate(blocks):
            view[place * size : (place + 1) * size] = full_image(self.shape, block, self.shape.tokens)
        offsets = tuple(place * size for place in range(len(blocks)))
        ask = WriteBlocks(
            owner="leader", ticket=1, request="t0", blocks=tuple(blocks), parents=(0,) * len(blocks), region="buffer",
            offsets=offsets,
        )  # fmt: skip
        self.askers[node].script.append(ask)

    def read(self, node: str, hop: str, blocks: list[int]) -> None:
        """To be asked next, of `node`: into its buffer, behind what was written."""
        offsets = tuple(self.place(place) for place in range(len(blocks)))
        ask = ReadBlocks(
            owner="leader", ticket=2, request="t1", hop=hop, blocks=tuple(blocks), region="buffer", offsets=offsets
        )
        self.askers[node].script.append(ask)

    def place(self, number: int) -> int:
        return (1_000 + number) * self.shape.full_image

    def run(self, node: str, answers: int, cut: str = "", after: Nanoseconds = 0) -> Asker:
        """Runs until `node` has so many answers; `cut` is off the wire from `after` the begin of its last question."""
        asker = self.askers[node]
        self.simulation.add_node(node, (*self.machines[node], asker), self.emit(node))
        if cut:
            assert self.simulation.run(until=60 * SECOND, done=lambda: len(asker.began) == answers)
            self.simulation.run(until=asker.began[-1] + after)
            self.wire.cut(cut)
        assert self.simulation.run(until=60 * SECOND, done=lambda: len(asker.answers) == answers)
        return asker

    def check(self, node: str, blocks: list[int]) -> None:
        """What was read is what it should be."""
        view = self.memories[node, "buffer"].view
        for number, block in enumerate(blocks):
            check_full(self.shape, view[self.place(number) : self.place(number + 1)], block)

    def emit(self, node: str) -> Callable[[Nanoseconds, Event], None]:
        return lambda now, event: self.events.append((now, node, event))

    def transfers(self) -> list[TransferFinished]:
        return [event for event in self.seen(TransferFinished) if isinstance(event, TransferFinished)]

    def seen(self, kind: type[Event]) -> list[Event]:
        return [event for _, _, event in self.events if isinstance(event, kind)]


@pytest.mark.parametrize("hop", ["pe1-2", "de1-2"])
def test_the_store_fills_a_storage_port_of_400_gbit(hop: str) -> None:
    """Two storage nodes, one reader: its SNIC is busy for at least 90 % of the time, disk and letters included."""
    world, node = World(), f"{hop[:2]}0"
    blocks = list(range(1, 401))
    world.write(node, blocks)
    world.read(node, hop, blocks)
    asker = world.run(node, 2)
    assert [answer for _, answer in asker.answers] == [BlocksWritten(1), BlocksRead(2)]
    at_line_rate = len(blocks) * world.shape.full_bytes * 8 * SECOND // RATE
    assert at_line_rate / (asker.answers[1][0] - asker.began[1]) >= 0.9
    assert asker.arrived == len(blocks)
    read = [event for event in world.transfers() if event.hop == hop]
    assert sum(event.bytes for event in read) == len(blocks) * world.shape.true_bytes(world.shape.full_image)
    assert {event.target for event in read} == {f"{node}.snic0"}
    world.check(node, blocks)


def test_a_slow_disk_is_what_a_read_waits_for() -> None:
    world = World(1, 1, disk_gbyte_s=5.0)
    blocks = list(range(1, 101))
    world.write("pe0", blocks)
    world.read("pe0", "pe1-2", blocks)
    asker = world.run("pe0", 2)
    by_disk = len(blocks) * world.shape.full_bytes * SECOND // (5 * 10**9)
    assert by_disk <= asker.answers[1][0] - asker.began[1] < 1.1 * by_disk


def test_hops_of_a_write_are_one_from_the_writer_and_one_for_each_further_replica() -> None:
    world = World(3, 3)
    world.write("de0", list(range(1, 31)))
    world.run("de0", 1)
    count = {hop: sum(event.hop == hop for event in world.transfers()) for hop in ("persist-write", "replicate")}
    assert count == {"persist-write": 30, "replicate": 60}


@pytest.mark.parametrize("moment", [20_000, 4_000_000])
def test_a_storage_node_that_goes_silent_costs_its_timeouts_and_no_block(moment: Nanoseconds) -> None:
    world = World(3, 2)
    blocks = list(range(1, 401))
    world.write("pe0", blocks)
    world.read("pe0", "pe1-2", blocks)
    asker = world.run("pe0", 2, cut="storage1", after=moment)
    assert asker.answers[1][1] == BlocksRead(2)
    world.check("pe0", blocks)
    lost = [event for event in world.seen(NodeLost) if isinstance(event, NodeLost)]
    assert "pe0" in {event.found_by for event in lost if event.lost == "storage1"}
    rejected = [event for event in world.seen(BlockRejected) if isinstance(event, BlockRejected)]
    assert {event.where for event in rejected} <= {"storage1"}


def test_writes_under_way_when_a_node_goes_silent_are_kept_by_the_others() -> None:
    world = World(3, 3)
    blocks = list(range(1, 101))
    world.write("pe0", blocks)
    world.read("pe0", "pe1-2", blocks)
    asker = world.run("pe0", 1, cut="storage2", after=1_500_000)
    assert asker.answers[0][1] == BlocksWritten(1)
    assert world.simulation.run(until=60 * SECOND, done=lambda: len(asker.answers) == 2)
    assert asker.answers[1][1] == BlocksRead(2)
    world.check("pe0", blocks)
