"""The topologies of the shipped experiments: nodes, ports, fabrics and lanes, each kind once, with who uses it.

They come from the planner (`webui.catalogue.planned`), as the picture on the launch page does: what is listed is
what would be built. Rates are those of the modelled hardware; what an emulation makes of them is its own scaling.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from testbed.experiment.plan import FabricPlan, NodePlan, Plan
from testbed.experiment.reading import spec_from_bytes
from webui.catalogue.drawing import describe, lane_weights
from webui.catalogue.planned import first_plan
from webui.catalogue.selectors import Experiment
from webui.runs.models import Backend


@dataclass(frozen=True)
class Port:
    """An interface of a node."""

    interface: str
    fabric: str
    rate_bits_per_s: int


@dataclass(frozen=True)
class Node:
    """A node."""

    name: str
    role: str
    attached: tuple[str, ...]
    """Nodes at the other end of a PCIe link of its own."""
    ports: tuple[Port, ...]


@dataclass(frozen=True)
class Lane:
    """A virtual lane with its weights, in units of 64 bytes, in both arbitration tables."""

    number: int
    high: int
    low: int


@dataclass(frozen=True)
class Fabric:
    """A network."""

    name: str
    protocol: str
    mtu: int
    high_limit: int | None
    """Units of 4,096 bytes that the high table may send before one low packet; 255: no limit. None without lanes."""
    lanes: tuple[Lane, ...]


@dataclass(frozen=True)
class Use:
    """A system of an experiment."""

    experiment: str
    system: str
    kind: str


@dataclass(frozen=True)
class Shape:
    """What is built, whoever lives in it."""

    summary: str
    nodes: tuple[Node, ...]
    fabrics: tuple[Fabric, ...]


@dataclass(frozen=True)
class Topology:
    """A shape that is shipped. Its name is that of its first use."""

    name: str
    shape: Shape
    used_by: tuple[Use, ...]


def topologies_of(experiments: list[Experiment]) -> list[Topology]:
    """Those of `experiments`, in the order of their first use, each once."""
    uses: dict[Shape, list[Use]] = {}
    for experiment in experiments:
        if not experiment.fault:
            for use, shape in _of_text(experiment.name, experiment.text):
                uses.setdefault(shape, []).append(use)
    return [Topology(f"{users[0].experiment}:{users[0].system}", shape, tuple(users)) for shape, users in uses.items()]


@lru_cache(maxsize=256)
def _of_text(name: str, text: str) -> tuple[tuple[Use, Shape], ...]:
    """One for each system, of its first trial under the simulated clock, which can carry out every experiment."""
    spec = spec_from_bytes(text.encode(), name)
    plans = [(system, first_plan(spec, system, Backend.SIM)) for system in spec.systems]
    return tuple((Use(name, system, plan.kind), _shape(plan)) for system, plan in plans)


def _shape(plan: Plan) -> Shape:
    used = {port.fabric for node in plan.nodes for port in node.ports}
    return Shape(
        summary=describe(plan),
        nodes=tuple(_node(node) for node in plan.nodes),
        fabrics=tuple(_fabric(fabric) for fabric in plan.fabrics if fabric.name in used),
    )


def _node(node: NodePlan) -> Node:
    ports = tuple(Port(port.interface, port.fabric, port.rate_bits_per_s) for port in node.ports)
    return Node(node.name, node.role, node.attached, ports)


def _fabric(fabric: FabricPlan) -> Fabric:
    lanes = tuple(Lane(number, high, low) for number, high, low in lane_weights(fabric))
    protocol = "RoCEv2" if fabric.roce else "TCP"
    return Fabric(fabric.name, protocol, fabric.mtu, fabric.lanes.high_limit if fabric.lanes else None, lanes)
