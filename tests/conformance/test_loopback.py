"""A node that speaks to itself through its own NIC: one queue pair whose two ends are the same, on every wire.

DualPath copies between a host's memory and its devices in this way.
"""

from __future__ import annotations

import msgspec
import pytest

from emulators.nic_pair import OWNER, REQUESTER, LinkedNamespaces, NicPair, wait_for
from testbed.experiment.plan import NodePlan, Plan, QueuePairPlan
from testbed.machine import CompareSwap, Completion, FetchAdd, Message, Read, Received, RemoteAddress, Send, Verb, Write
from testbed.network.memory_region import LocalMemory, PlainMemory
from testbed.network.wires import FlowWire, PacketWire
from tests.conformance.test_simulated_wires import ADDRESS, KEY, RATE, two_nodes
from tests.conformance.wire_contract import MEMORY_BYTES

SIZES = (0, 1, 4095, 4096, 4097, 65536)


def looped(plan: Plan, name: str) -> Plan:
    """The plan with one more queue pair, from a node to itself."""

    def with_loop(node: NodePlan) -> NodePlan:
        port = node.ports[0]
        pair = QueuePairPlan(name, port.interface, 0x700, 0x700, port.address, 0xFFFFF8, 0xFFFFF8)
        return msgspec.structs.replace(node, queue_pairs=(*node.queue_pairs, pair))

    nodes = tuple(with_loop(node) if node.name == name else node for node in plan.nodes)
    return msgspec.structs.replace(plan, nodes=nodes)


def verbs(name: str, start: RemoteAddress) -> tuple[list[Verb], list[Message]]:
    """What the node posts to itself, and what it hears in all, in the order of posting."""
    posted: list[Verb] = []
    heard: list[Message] = []
    for turn, size in enumerate(SIZES):
        data, ticket = bytes([turn + 1]) * size, 5 * turn
        # A place each: without a fence a READ may see a WRITE that was posted after it (IBA 10.8.3.3).
        place = start.at(64 + turn * (1 << 17))
        posted += [
            Write(ticket, name, remote=place, data=data),
            Read(ticket + 1, name, remote=place, length=size),
            FetchAdd(ticket + 2, name, remote=start, addend=2),
            CompareSwap(ticket + 3, name, remote=start, expected=turn + 2, desired=turn + 1),
            Send(ticket + 4, name, data=data[:4096]),
        ]
        heard += [
            Completion(ticket), Completion(ticket + 1, data=data), Completion(ticket + 2, original=turn),
            Completion(ticket + 3, original=turn + 2), Received(name, data[:4096]), Completion(ticket + 4),
        ]  # fmt: skip
    return posted, heard


def check(found: list[Message], wanted: list[Message]) -> None:
    """Completions in order, and messages in order; how the two interleave is the wire's business."""
    for kind in (Completion, Received):
        assert [each for each in found if isinstance(each, kind)] == [each for each in wanted if isinstance(each, kind)]


@pytest.mark.parametrize("kind", [FlowWire, PacketWire])
def test_a_simulated_node_reaches_itself(kind: type[FlowWire] | type[PacketWire]) -> None:
    memories: dict[tuple[str, str], LocalMemory] = {(node, "memory"): PlainMemory(MEMORY_BYTES) for node in "ab"}
    wire = kind(looped(two_nodes(4096), "a"), memories)
    posted, wanted = verbs("a", RemoteAddress(ADDRESS, KEY))
    for verb in posted:
        wire.post(0, "a", verb)
    found: list[Message] = []
    for _ in range(100_000):
        moment = wire.deadline()
        if moment is None:
            break
        for node, message in wire.wake(moment):
            assert node == "a"
            found.append(message)
    check(found, wanted)
    assert memories["a", "memory"].load(0) == len(SIZES)
    assert not any(memories["b", "memory"].view)


@pytest.mark.root
def test_a_soft_rnic_reaches_itself() -> None:
    with LinkedNamespaces() as namespaces:
        pair = NicPair(namespaces)
        pair.plan = looped(pair.plan, REQUESTER)
        with pair:
            posted, wanted = verbs(REQUESTER, pair.remote)
            software = pair.verbs[REQUESTER]
            for verb in posted:
                software.post(verb)
            check(wait_for(software, len(wanted)), wanted)
            assert pair.memories[REQUESTER].load(0) == len(SIZES)
            assert not any(pair.memory.view)
            # The connection to the other node goes on beside it.
            software.post(Write(1000, OWNER, remote=pair.remote, data=b"over there"))
            assert wait_for(software) == [Completion(1000)]
            assert bytes(pair.memory.view[:10]) == b"over there"


@pytest.mark.parametrize("kind", [FlowWire, PacketWire])
def test_loop_back_takes_the_uplinks_time_once(kind: type[FlowWire] | type[PacketWire]) -> None:
    """A copy to itself has its turn at the uplink's arbiter and does not come back through the switch."""
    memories: dict[tuple[str, str], LocalMemory] = {(node, "memory"): PlainMemory(MEMORY_BYTES) for node in "ab"}
    wire = kind(looped(two_nodes(4096), "a"), memories)
    wire.post(0, "a", Write(1, "a", remote=RemoteAddress(ADDRESS, KEY), data=bytes(MEMORY_BYTES)))
    now = 0
    while not wire.wake(now):
        moment = wire.deadline()
        assert moment is not None
        now = moment
    at_rate = MEMORY_BYTES * 8 * 10**9 // RATE
    assert at_rate < now < at_rate * 1.05 + 10_000
