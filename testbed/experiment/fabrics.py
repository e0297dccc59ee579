"""The three fabrics: which of a node's interfaces lie on which, and what each network is in the plan.

All of them lie in namespaces of the run, so their subnets are the same in every run. It knows outlines and specs.
"""

from __future__ import annotations

from testbed.experiment.outlines import NodeOutline
from testbed.experiment.plan import FabricPlan
from testbed.experiment.spec import Spec
from testbed.network.traffic_classes import lanes_of

FRONT_MTU = 1500
ROCE_MTU_ROOM = 104
"""Ethernet MTU beyond the path MTU: 4200 for 4096, as architecture §7 sets it; other path MTUs alike."""
FABRICS: tuple[tuple[str, str, str], ...] = (
    ("front", "10.60", "front"),
    ("compute", "10.61", "cnic"),
    ("storage", "10.62", "snic"),
)
"""Fabric, first bytes of its subnet, and how a node's ports on it begin. All lie in namespaces of the run."""
SMALL_FABRIC = 254
"""Ports that share a /24; a larger fabric, which only a simulation has, is a /16."""


def fabric_of(interface: str) -> str:
    """The fabric that an interface's name says. Raises KeyError."""
    return {prefix: name for name, _, prefix in FABRICS}[interface.rstrip("0123456789")]


def members(fabric: str, outlines: tuple[NodeOutline, ...]) -> list[tuple[str, str]]:
    """(node, interface) of every port of a fabric, in the order of the nodes."""
    return [
        (outline.name, interface)
        for outline in outlines
        for interface in outline.ports
        if fabric_of(interface) == fabric
    ]


def fabric_plan(spec: Spec, name: str, prefix: str, outlines: tuple[NodeOutline, ...]) -> FabricPlan:
    """One network of the plan. `prefix` begins its subnet."""
    roce = name != "front"
    mtu = spec.network.compute.path_mtu + ROCE_MTU_ROOM if roce else FRONT_MTU
    network = spec.network
    lanes = {
        "compute": lanes_of(network.compute.lanes, network.compute.classes),
        "storage": lanes_of(network.storage.lanes, network.storage.classes),
    }
    small = len(members(name, outlines)) <= SMALL_FABRIC
    return FabricPlan(
        name=name,
        subnet=f"{prefix}.0.0/{24 if small else 16}",
        mtu=mtu,
        roce=roce,
        lanes=lanes.get(name),
    )
