"""Names of everything that a run makes on the host. Each carries the run's label, so that the reaper removes by label.

Kernel names of interfaces have 15 characters; two nodes whose names begin alike must still get different ones (fault
B2). Names are therefore made from a number of the plan's own order, never by cutting a node's name short.
"""

from __future__ import annotations

import re
from pathlib import Path

from testbed.experiment.plan import Plan

RUN_ROOT = Path("/run/looplane")
"""Everything of live runs that is not in the run folder: records, sockets of the soft RNICs."""

INTERFACE_LIMIT = 15
"""IFNAMSIZ - 1."""
CONTAINER_LABEL = "looplane"
"""Key of the Docker label whose value is the run's label."""

_LABEL = re.compile(r"[0-9a-f]{6}")
_NODE_RULE = "1 to 63 letters, digits, '_', '.', '-', the first a letter or digit"
_NODE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")
_INTERFACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}")


class BadName(ValueError):
    """A name of the plan that the host could not carry."""

    def __init__(self, path: str, value: str, allowed: str) -> None:
        self.path = path
        self.value = value
        self.allowed = allowed
        super().__init__(f"plan.json: {path}: {value!r} is not {allowed}")


class Names:
    """The host's names for the parts of one plan. Raises `BadName` for a plan whose names no host could carry."""

    def __init__(self, plan: Plan) -> None:
        _check(plan)
        self.label = plan.label
        self._ports = {
            (node.name, port.interface): f"l{plan.label}p{number}"
            for number, (node, port) in enumerate((node, port) for node in plan.nodes for port in node.ports)
        }
        self._bridges = {fabric.name: f"l{plan.label}b{number}" for number, fabric in enumerate(plan.fabrics)}

    def bridge(self, fabric: str) -> str:
        """The Linux bridge of a fabric, inside the fabric's own namespace."""
        return self._bridges[fabric]

    def uplink(self, fabric: str) -> str:
        """A real interface while it is a port of a fabric's switch. No name that the reaper deletes: it is not ours."""
        return f"{self.bridge(fabric)}u"

    def switch_port(self, node: str, interface: str) -> str:
        """The switch's end of the link to `interface` of `node`."""
        return self._ports[node, interface]

    def host(self, node: str) -> str:
        """Mininet's name of a node; distinct from every `switch`."""
        return f"{self.label}.n.{node}"

    def switch(self, fabric: str) -> str:
        """Mininet's name of a fabric's switch."""
        return f"{self.label}.s.{fabric}"

    def container(self, node: str) -> str:
        """The Docker container of a node."""
        return f"{CONTAINER_LABEL}-{self.label}-{node}"

    def neighbour(self, name: str, number: int) -> str:
        """The Docker container of a neighbour, or its cell; no node's, since no node's name begins with a hyphen."""
        return f"{CONTAINER_LABEL}-{self.label}--{name}-{number}"

    def neighbour_folder(self, name: str, number: int) -> Path:
        """Where a neighbour says what it has done; all that its container may write to of the run's."""
        return self.folder / "neighbours" / f"{name}-{number}"

    @property
    def folder(self) -> Path:
        """The run's folder under `RUN_ROOT`."""
        return RUN_ROOT / self.label

    def node_folder(self, node: str) -> Path:
        """What a container sees of `folder`: its own part and no other node's."""
        return self.folder / "nodes" / node

    def nic_socket(self, node: str) -> Path:
        """Where the node's soft RNIC listens."""
        return self.node_folder(node) / "nic"


def port_name(node: str, interface: str) -> str:
    """How events, captures and people name a switch port: by what it leads to."""
    return f"{node}.{interface}"


def is_label(text: str) -> bool:
    """Whether `text` is a run's label: six hex digits."""
    return _LABEL.fullmatch(text) is not None


def _check(plan: Plan) -> None:
    _check_nodes(plan)
    ports = {(node.name, port.interface) for node in plan.nodes for port in node.ports}
    for place, capture in enumerate(plan.captures):
        if (capture.node, capture.interface) not in ports:
            known = ", ".join(sorted(port_name(*port) for port in ports))
            raise BadName(f"captures[{place}]", port_name(capture.node, capture.interface), f"one of {known}")


def _check_nodes(plan: Plan) -> None:
    if not is_label(plan.label):
        raise BadName("label", plan.label, "six hex digits")
    fabrics = [fabric.name for fabric in plan.fabrics]
    if len(set(fabrics)) < len(fabrics):
        raise BadName("fabrics", ", ".join(fabrics), "a list without repeats")
    seen: set[str] = set()
    for place, node in enumerate(plan.nodes):
        path = f"nodes[{place}]"
        if not _NODE.fullmatch(node.name):
            raise BadName(f"{path}.name", node.name, _NODE_RULE)
        if node.name in seen or node.name == "bench":
            raise BadName(f"{path}.name", node.name, "a name of its own ('bench' is taken by the runner)")
        seen.add(node.name)
        interfaces: set[str] = set()
        for number, port in enumerate(node.ports):
            where = f"{path}.ports[{number}]"
            if not _INTERFACE.fullmatch(port.interface) or port.interface == "lo":
                rule = f"an interface name of at most {INTERFACE_LIMIT} characters"
                raise BadName(f"{where}.interface", port.interface, rule)
            if port.interface in interfaces:
                raise BadName(f"{where}.interface", port.interface, "the node's only interface of that name")
            interfaces.add(port.interface)
            if port.fabric not in fabrics:
                raise BadName(f"{where}.fabric", port.fabric, f"one of {', '.join(fabrics)}")
