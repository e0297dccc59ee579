"""A real RNIC keeps the wire contract: two queue pairs of the first active RDMA device of this host, if it has one.

Everywhere, the same code keeps it with rdma-core on paper (`tests.emulators.paper_rdma`): that proves posting, polling,
sleeping, staging and translation, and nothing about pyverbs itself or a device.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulators import rdma_device
from emulators.rdma_library import Library, load
from emulators.rdma_verbs import RdmaVerbs
from emulators.verbs_ring import QueueSizes
from testbed.experiment.hardware import RealRnic
from testbed.experiment.plan import NodePlan, QueuePairPlan, RegionPlan
from testbed.machine import Completion, Received, RemoteAddress, Verb
from testbed.network.connection import ConnectionSettings
from testbed.network.memory_region import LocalMemory
from tests.conformance.wire_contract import MEMORY_BYTES, MakeHarness, WireContract
from tests.emulators import paper_rdma
from topologies import rdma

REGION = RegionPlan("memory", MEMORY_BYTES, 0x7F00_0000_0000, 0x1234)
NUMBERS = {"a": 17, "b": 18}
PATH_MTU = 1024
"""What a RoCE port of the usual Ethernet MTU of 1500 carries."""
BOUND_S = 30.0
QUIET_S = 0.02


def node(name: str) -> NodePlan:
    peer = "b" if name == "a" else "a"
    pair = QueuePairPlan(peer, "cnic0", NUMBERS[name], NUMBERS[peer], "", 100 + NUMBERS[name], 100 + NUMBERS[peer])
    return NodePlan(name, "gpu", "host", 64, queue_pairs=(pair,), regions=(REGION,))


class RdmaHarness:
    """This process is the software of both nodes, on one device; `advance` gives a device on paper its turn."""

    path_mtu = PATH_MTU

    def __init__(
        self, library: Library, rnic: RealRnic, control: Path, receives: int, advance: Callable[[], None]
    ) -> None:
        self.library = library
        self._advance = advance
        self.completions: dict[str, list[Completion]] = {"a": [], "b": []}
        self.received: dict[str, list[Received]] = {"a": [], "b": []}
        self.verbs: dict[str, RdmaVerbs] = {}
        self.memories: dict[str, LocalMemory] = {}
        settings = ConnectionSettings(path_mtu=PATH_MTU)
        try:
            for name in "ab":
                verbs = RdmaVerbs(
                    library, rnic, node(name), settings, sizes=QueueSizes(staging=8 << 20), receives=receives,
                    receive_bytes=MEMORY_BYTES // 32,
                )  # fmt: skip
                self.verbs[name] = verbs
                self.memories[name] = verbs.register(REGION)
                verbs.announce(control)
            for verbs in self.verbs.values():
                verbs.join(control, 5)
        except BaseException:
            self.close()
            raise

    def memory(self, node: str) -> LocalMemory:
        return self.memories[node]

    def remote(self, node: str, offset: int = 0) -> RemoteAddress:  # both have the same plan
        return RemoteAddress(REGION.address + offset, REGION.key)

    def post(self, node: str, verb: Verb) -> None:
        self.verbs[node].post(verb)

    def cut(self, node: str) -> None:
        """A queue pair in RESET drops what comes (IBA 10.3.1): its peer hears nothing, as of one that is unplugged."""
        attributes = self.library.qp.QPAttr()
        attributes.qp_state = self.library.enums.IBV_QPS_RESET
        for pair in self.verbs[node]._pairs:
            pair.qp.modify(attributes, self.library.enums.IBV_QP_STATE)

    def run(self, until: Callable[[], bool]) -> None:
        deadline = time.monotonic() + BOUND_S
        while not until():
            assert time.monotonic() < deadline, f"not done after {BOUND_S} s"
            self.step(0.0005)

    def settle(self) -> None:
        deadline = time.monotonic() + QUIET_S
        while time.monotonic() < deadline:
            self.step(QUIET_S)

    def step(self, wait_s: float) -> None:
        if all(verbs.arm() for verbs in self.verbs.values()):
            self._advance()
            select.select([verbs.completion_fd for verbs in self.verbs.values()], (), (), wait_s)
        for name, verbs in self.verbs.items():
            for message in verbs.poll():
                if isinstance(message, Completion):
                    self.completions[name].append(message)
                else:
                    self.received[name].append(message)

    def close(self) -> None:
        for verbs in self.verbs.values():
            verbs.close()


class TestRealRnic(WireContract):
    @pytest.fixture
    def make_harness(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[MakeHarness]:
        if reason := rdma.lacking():
            pytest.skip(f"no real RNIC here: {reason}")
        rnic = rdma.first_active()
        if rnic is None:
            pytest.skip("no real RNIC here: no active port with a RoCE v2 address")
        made: list[RdmaHarness] = []

        def make(receives: int = 8) -> RdmaHarness:
            made.append(RdmaHarness(load(), rnic, tmp_path, receives, lambda: None))
            against_owner = request.node.originalname == "test_atomics_lose_nothing_against_the_owner"
            if against_owner and "atomic among itself, not the CPU" in made[0].verbs["a"].facts:
                pytest.skip(f"{rnic.device} is atomic against itself only (IBV_ATOMIC_HCA)")
            return made[-1]

        yield make
        for harness in made:
            harness.close()


class TestRdmaCoreOnPaper(WireContract):
    @pytest.fixture
    def make_harness(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeHarness]:
        monkeypatch.setattr(rdma_device, "EVENT_FILE", paper_rdma.EVENT_FILE)
        device = paper_rdma.Device()
        made: list[RdmaHarness] = []

        def make(receives: int = 8) -> RdmaHarness:
            made.append(RdmaHarness(device.library(), RealRnic("paper0", 2), tmp_path, receives, device.advance))
            return made[-1]

        yield make
        for harness in made:
            harness.close()
        assert not device.pairs, "queue pairs are given back"
        assert not device.regions, "memory regions are given back"
