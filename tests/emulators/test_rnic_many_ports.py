"""A soft RNIC of several ports and many queue pairs: verbs leave by the port that they name, also to the node."""

from __future__ import annotations

import os
import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from emulators.nic_pair import UNSHAPED, wait_for
from emulators.rnic import FEW_PORTS, Rnic
from emulators.rnic_journal import Journal
from emulators.shared_memory import SharedMemory
from emulators.verbs import DEFAULT_SIZES, UnknownPeer, Verbs, room_for
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.service_levels import CONTROL, KV
from testbed.experiment.addresses import Pairs, Ports, regions
from testbed.experiment.dualpath_nodes import plan_nodes
from testbed.experiment.plan import FabricPlan, NodePlan, Plan
from testbed.machine import Completion, Received, RemoteAddress, Send, Write

SCALE = 1000
PARAMETERS = DualPathParameters(
    engines_per_node=3,
    storage_nodes=1,
    replicas=1,
    layers=4,
    hbm_kv_bytes=500_000_000,
    prefill_buffer_bytes=500_000_000,
    decode_buffer_bytes=500_000_000,
)


def small_plan(parameters: DualPathParameters = PARAMETERS) -> Plan:
    """DualPath's own nodes, on addresses of the loopback."""
    outlines = plan_nodes(parameters)
    ports = Ports(outlines, dict.fromkeys(("front", "compute", "storage"), UNSHAPED), "0a0b0c", 1, 1.0)
    pairs = Pairs(outlines, ports, 7)
    network = f"127.{1 + secrets.randbelow(250)}"

    def moved(address: str) -> str:
        fabric, last = address.split(".")[1:4:2]
        return f"{network}.{fabric}.{last}"

    nodes = []
    for outline in outlines:
        own = tuple(msgspec.structs.replace(port, address=moved(port.address)) for port in ports.of(outline.name))
        there = tuple(
            msgspec.structs.replace(pair, peer_address=moved(pair.peer_address)) for pair in pairs.of(outline.name)
        )
        lent = regions(outline, 7, SCALE)
        nodes.append(NodePlan(outline.name, outline.role, outline.cores, 256, own, there, lent))
    fabrics = tuple(FabricPlan(name, f"{network}.0.0/24", 4200, roce=True) for name in ("compute", "storage"))
    return Plan(
        run="ports", label="0a0b0c", clock="wall", system="s", kind="dualpath", seed=7, dilation=1.0,
        byte_scale=SCALE, path_mtu=4096, fabrics=fabrics, nodes=tuple(nodes), parameters={}, workload={},
    )  # fmt: skip


class RunningNode:
    """One NIC in a thread of its own, so that its ports can be looked at, and the node's software."""

    def __init__(self, plan: Plan, name: str, folder: Path) -> None:
        self.node = plan.node(name)
        self.journal = Journal(folder, name)
        self.rnic = Rnic(plan, self.node, folder / f"{name}.nic", self.journal)
        self.thread = threading.Thread(target=self.rnic.run, daemon=True)
        self.thread.start()
        receives, sizes = room_for(self.node)
        self.verbs = Verbs.connect(folder / f"{name}.nic", self.node, sizes=sizes, receives=receives)
        self.memories: dict[str, SharedMemory] = {
            region.name: self.verbs.register(region, populate=False) for region in self.node.regions
        }

    def sent(self) -> dict[str, int]:
        """Bytes that have left by each port."""
        return {port.plan.interface: port.counters.bytes_sent for port in self.rnic.ports}

    def sent_since(self, before: dict[str, int]) -> dict[str, int]:
        """What has left by each port since, once something has: the NIC counts a moment after it has sent."""
        limit = time.monotonic() + 5
        while True:
            left = {name: size - before[name] for name, size in self.sent().items() if size != before[name]}
            if left or time.monotonic() > limit:
                return left
            time.sleep(0.001)

    def place(self, region: str, offset: int = 0) -> RemoteAddress:
        (there,) = (plan for plan in self.node.regions if plan.name == region)
        return RemoteAddress(there.address + offset, there.key)

    def close(self) -> None:
        self.verbs.close()
        self.rnic.stop()
        self.thread.join(10)
        self.rnic.close()
        self.journal.close(0)
        for memory in self.memories.values():
            memory.close()


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, RunningNode]]:
    folder = tmp_path_factory.mktemp("ports")
    (folder / "control").mkdir()
    plan = small_plan()
    running: dict[str, RunningNode] = {}
    try:
        for name in ("pe0", "de0"):
            running[name] = RunningNode(plan, name, folder)
        yield running
    finally:
        for node in running.values():
            node.close()


def write(source: RunningNode, interface: str, peer: str, remote: RemoteAddress, data: bytes) -> dict[str, int]:
    """Posts one WRITE and returns what each port of `source` has sent for it."""
    before = source.sent()
    source.verbs.post(Write(1, peer, KV, interface, remote=remote, data=data))
    (completion,) = wait_for(source.verbs)
    assert isinstance(completion, Completion)
    assert completion.status.name == "SUCCESS"
    return source.sent_since(before)


def test_the_node_has_more_ports_than_are_asked_one_by_one(nodes: dict[str, RunningNode]) -> None:
    assert [port.plan.interface for port in nodes["pe0"].rnic.ports] == ["cnic0", "cnic1", "cnic2", "snic0"]
    assert len(nodes["pe0"].rnic.ports) > FEW_PORTS


@pytest.mark.parametrize("own", ["cnic0", "cnic1", "cnic2"])
@pytest.mark.parametrize("far", [0, 1, 2])
def test_a_verb_leaves_by_the_port_it_names_and_lands_at_the_port_it_names(
    nodes: dict[str, RunningNode], own: str, far: int
) -> None:
    data = os.urandom(20_000)
    back = nodes["de0"].sent()
    left = write(nodes["pe0"], own, f"de0.cnic{far}", nodes["de0"].place(f"hbm{far}", 64), data)
    assert bytes(nodes["de0"].memories[f"hbm{far}"].view[64 : 64 + len(data)]) == data
    assert list(left) == [own]
    assert left[own] > len(data)
    # The acknowledgement leaves by the port that was written to.
    assert list(nodes["de0"].sent_since(back)) == [f"cnic{far}"]


@pytest.mark.parametrize("own", ["cnic0", "cnic1", "cnic2"])
def test_loop_back_goes_through_the_named_port_of_the_node_itself(nodes: dict[str, RunningNode], own: str) -> None:
    """A copy from the host's memory to the device's: one NIC sends, receives and acknowledges."""
    node, data = nodes["pe0"], os.urandom(20_000)
    left = write(node, own, f"pe0.{own}", node.place(f"hbm{own[-1]}", 128), data)
    assert bytes(node.memories[f"hbm{own[-1]}"].view[128 : 128 + len(data)]) == data
    assert list(left) == [own]
    assert left[own] > len(data)


def test_letters_have_a_queue_pair_of_their_own_level(nodes: dict[str, RunningNode]) -> None:
    nodes["pe0"].verbs.post(Send(2, "de0", CONTROL, data=b"a letter"))
    assert wait_for(nodes["de0"].verbs) == [Received("pe0", b"a letter")]
    wait_for(nodes["pe0"].verbs)


def test_a_port_that_there_is_none_of_is_told(nodes: dict[str, RunningNode]) -> None:
    with pytest.raises(UnknownPeer, match=r"de0\.cnic7"):
        nodes["pe0"].verbs.post(Write(3, "de0.cnic7", KV, remote=nodes["de0"].place("hbm0"), data=b"x"))


def test_only_unanswered_queue_pairs_have_timers_to_look_at(nodes: dict[str, RunningNode]) -> None:
    rnic = nodes["pe0"].rnic
    assert len(rnic.endpoints) > 12
    write(nodes["pe0"], "cnic0", "de0.cnic0", nodes["de0"].place("hbm0"), b"12345678")
    rnic.stop()
    nodes["pe0"].thread.join(10)
    rnic._look_at_timers(0)
    assert not rnic._unanswered


def test_queues_hold_the_receives_of_hundreds_of_queue_pairs(tmp_path: Path) -> None:
    """Eight engines a node that exchange tokens with four nodes: more receives than a default ring has places."""
    parameters = msgspec.structs.replace(PARAMETERS, engines_per_node=8, decode_nodes=4, collectives="role")
    plan = small_plan(parameters)
    node = plan.node("de0")
    assert sum(pair.messages for pair in node.queue_pairs) * 16 > DEFAULT_SIZES.requests
    receives, sizes = room_for(node)
    (tmp_path / "control").mkdir()
    running = RunningNode(plan, "de0", tmp_path)
    try:
        assert {endpoint.pair.receives for endpoint in running.rnic.endpoints} <= {0, receives}
        assert sizes.requests < 1 << 14
    finally:
        running.close()
