"""Plans of a few nodes for tests of DualPath's machines: outlines in, addresses and queue pairs out, no spec needed."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.dualpath.service_levels import COLLECTIVE, CONTROL, KV
from testbed.experiment.outlines import ConnectionOutline, NodeOutline, RegionOutline
from testbed.experiment.plan import FabricPlan, NodePlan, Plan, PortPlan, QueuePairPlan, RegionPlan, Role
from testbed.machine import RemoteAddress
from testbed.network.lanes import LaneTable

RATE = 100_000_000_000
"""Bits per second of every port: 12.5 bytes a nanosecond."""


def plan_of(
    outlines: Sequence[NodeOutline], *, rate: int = RATE, byte_scale: int = 1, lanes: LaneTable | None = None
) -> Plan:
    """All ports on the compute fabric but snic*, which are on the storage fabric."""
    addresses = {
        (outline.name, port): f"10.{61 + port.startswith('snic')}.{number}.{place + 1}"
        for number, outline in enumerate(outlines)
        for place, port in enumerate(outline.ports)
    }
    table = lanes or LaneTable()
    by_name = {outline.name: outline for outline in outlines}

    def pair(node: NodeOutline, place: int, one: ConnectionOutline) -> QueuePairPlan:
        other = one._replace(interface=one.peer_interface, peer=node.name, peer_interface=one.interface)
        return QueuePairPlan(
            peer=one.peer, interface=one.interface, number=0x100 + place,
            peer_number=0x100 + by_name[one.peer].connections.index(other),
            peer_address=addresses[one.peer, one.peer_interface], initial_psn=7, peer_psn=7,
            service_level=one.service_level, peer_interface=one.peer_interface, messages=one.messages,
        )  # fmt: skip

    nodes = tuple(
        NodePlan(
            name=node.name, role=node.role, cores="hardware", memory_mib=64,
            ports=tuple(
                PortPlan(port, "storage" if port.startswith("snic") else "compute", addresses[node.name, port],
                         "02:00:00:00:00:01", rate, rate)
                for port in node.ports
            ),
            queue_pairs=tuple(pair(node, place, one) for place, one in enumerate(node.connections)),
            regions=tuple(
                RegionPlan(each.name, each.size, (number + 1) << 40 | place << 32, place + 1, each.bulk, each.dram)
                for place, each in enumerate(node.regions)
            ),
            pcie_bits_per_s=node.pcie_bits_per_s, dram_bits_per_s=node.dram_bits_per_s,
            host_design=node.host_design,
        )
        for number, node in enumerate(outlines)
    )  # fmt: skip
    fabrics = tuple(FabricPlan(name, "10.61.0.0/16", 4200, roce=True, lanes=table) for name in ("compute", "storage"))
    return Plan(
        run="test", label="0a0b0c", clock="simulated", system="test", kind="dualpath", seed=1, dilation=1.0,
        byte_scale=byte_scale, path_mtu=4096, fabrics=fabrics, nodes=nodes, parameters={}, workload={},
    )  # fmt: skip


def engine_nodes(*names: str, engines: int = 2, room: int = 1 << 22, pcie: int = 0, dram: int = 0) -> list[NodeOutline]:
    """Engine nodes that have every queue pair with each other: letters, KV, loop-back and collectives."""
    cnics = [f"cnic{number}" for number in range(engines)]
    outlines = []
    for name in names:
        connections = []
        for peer in names:
            if peer != name:
                connections.append(ConnectionOutline("cnic0", peer, "cnic0", CONTROL))
            for own in cnics:
                for far in cnics:
                    if peer != name or far == own:
                        connections.append(ConnectionOutline(own, peer, far, KV, messages=False))
                    if (peer, far) != (name, own):
                        connections.append(ConnectionOutline(own, peer, far, COLLECTIVE))
        regions = [RegionOutline("buffer", room, bulk=True, dram=True)]
        for number in range(engines):
            regions += [RegionOutline(f"hbm{number}", room, bulk=True)]
            regions += [RegionOutline(f"tokens{number}", room, bulk=True)]
        role: Role = "prefill" if name.startswith("pe") else "decode"
        outlines.append(
            NodeOutline(name, role, "hardware", 64, tuple(cnics), tuple(connections), tuple(regions), pcie, dram)
        )
    return outlines


def remote(plan: Plan, node: str, region: str, offset: int = 0) -> RemoteAddress:
    """A place in a node's region."""
    (found,) = (each for each in plan.node(node).regions if each.name == region)
    return RemoteAddress(found.address, found.key).at(offset)
