"""FlowWire and PacketWire keep the wire contract, PacketWire also over links that lose, double, delay and damage."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from testbed.experiment.plan import FabricPlan, NodePlan, Plan, PortPlan, QueuePairPlan, RegionPlan
from testbed.machine import Completion, Received, RemoteAddress, Verb
from testbed.network.memory_region import LocalMemory, PlainMemory
from testbed.network.wires import Faults, FlowWire, PacketWire, Wire, WireSettings
from tests.conformance.wire_contract import MEMORY_BYTES, MakeHarness, WireContract

ADDRESS, KEY = 0x7F00_0000_0000, 0x1234
RATE = 200_000_000_000
PSN = {"a": 0xFFFFF0, "b": 0xFFFFFE}
NUMBER = {"a": 0x11, "b": 0x12}
IP = {"a": "10.61.0.1", "b": "10.61.0.2"}


def two_nodes(path_mtu: int) -> Plan:
    nodes = tuple(
        NodePlan(
            node, "gpu", "hardware", 64,
            (PortPlan("cnic0", "compute", IP[node], f"02:00:00:00:00:0{NUMBER[node] - 0x10}", RATE, RATE),),
            (QueuePairPlan(peer, "cnic0", NUMBER[node], NUMBER[peer], IP[peer], PSN[node], PSN[peer]),),
            (RegionPlan("memory", MEMORY_BYTES, ADDRESS, KEY),),
        )
        for node, peer in (("a", "b"), ("b", "a"))
    )  # fmt: skip
    fabric = FabricPlan("compute", "10.61.0.0/24", 4200, roce=True)
    return Plan("run", "abcdef", "simulated", "x", "x", 1, 1.0, 1, path_mtu, (fabric,), nodes, {}, {})


class SimulatedHarness:
    """Drives a simulated wire from moment to moment."""

    def __init__(self, make: Callable[[Plan, dict[tuple[str, str], LocalMemory]], Wire], path_mtu: int) -> None:
        self.path_mtu = path_mtu
        self._memories: dict[tuple[str, str], LocalMemory] = {
            (node, "memory"): PlainMemory(MEMORY_BYTES) for node in "ab"
        }
        self.wire = make(two_nodes(path_mtu), self._memories)
        self.now = 0
        self.completions: dict[str, list[Completion]] = {"a": [], "b": []}
        self.received: dict[str, list[Received]] = {"a": [], "b": []}

    def memory(self, node: str) -> LocalMemory:
        return self._memories[node, "memory"]

    def remote(self, node: str, offset: int = 0) -> RemoteAddress:
        assert node in "ab"
        return RemoteAddress(ADDRESS + offset, KEY)

    def post(self, node: str, verb: Verb) -> None:
        self.wire.post(self.now, node, verb)

    def cut(self, node: str) -> None:
        assert isinstance(self.wire, FlowWire | PacketWire)
        self.wire.cut(node)

    def run(self, until: Callable[[], bool]) -> None:
        for _ in range(200_000):
            if until():
                return
            assert self._step(), "the wire is quiet, but what was waited for has not happened"
        raise AssertionError("not done after 200,000 steps")

    def settle(self) -> None:
        for _ in range(200_000):
            if not self._step():
                return
        raise AssertionError("never quiet")

    def _step(self) -> bool:
        moment = self.wire.deadline()
        if moment is None:
            return False
        assert moment >= self.now
        self.now = moment
        for node, message in self.wire.wake(moment):
            if isinstance(message, Completion):
                self.completions[node].append(message)
            else:
                assert isinstance(message, Received)
                self.received[node].append(message)
        return True


class TestFlowWire(WireContract):
    @pytest.fixture
    def make_harness(self) -> MakeHarness:
        def make(receives: int = 8) -> SimulatedHarness:
            settings = WireSettings(receives=receives)
            return SimulatedHarness(lambda plan, memories: FlowWire(plan, memories, settings=settings), 4096)

        return make


class TestPacketWire(WireContract):
    @pytest.fixture(params=[256, 1024, 4096])
    def make_harness(self, request: pytest.FixtureRequest) -> MakeHarness:
        def make(receives: int = 8) -> SimulatedHarness:
            settings = WireSettings(receives=receives)
            return SimulatedHarness(
                lambda plan, memories: PacketWire(plan, memories, settings=settings), request.param
            )

        return make


class TestPacketWireWithFaults(WireContract):
    """The same promises over bad links. Corruption, loss and the rest are repaired, never seen."""

    may_lose_naks = True

    @pytest.fixture(
        params=[
            Faults(loss=0.05),
            Faults(duplication=0.3),
            Faults(reordering=0.2),
            Faults(corruption=0.05),
            Faults(loss=0.03, duplication=0.1, reordering=0.1, corruption=0.03),
        ],
        ids=["loss", "duplication", "reordering", "corruption", "all"],
    )
    def make_harness(self, request: pytest.FixtureRequest) -> MakeHarness:
        def make(receives: int = 8) -> SimulatedHarness:
            settings = WireSettings(receives=receives, retransmission_timeout=200_000)
            return SimulatedHarness(
                lambda plan, memories: PacketWire(
                    plan, memories, rng=Random(7), faults=request.param, settings=settings
                ),
                4096,
            )

        return make
