"""The [hardware] table: which real parts take the place of emulated ones, and what of it fits the experiment's nodes.

Architecture §1: hardware in the loop is no mode, it is another network interface, another wire, another accelerator,
another storage target. This file knows names and which of them go together; whether a host has the parts is looked
at by `topologies.hardware` when a run starts. It reads nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, TypeAlias

import msgspec

from testbed.experiment.complaints import Complaint, joined, one_of, shown

InterfaceName: TypeAlias = Annotated[str, msgspec.Meta(pattern=r"^[^\s/:]{1,15}$")]
AbsolutePath: TypeAlias = Annotated[str, msgspec.Meta(pattern="^/", max_length=200)]
SocketPath: TypeAlias = Annotated[str, msgspec.Meta(pattern="^/", max_length=100)]
"""Shorter than sun_path of unix(7)."""

COMPUTING = frozenset({"gpu", "prefill", "decode"})
"""Roles of nodes that have an accelerator."""


class LentInterface(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A network interface of the host that the run borrows."""

    interface: InterfaceName
    """Its name on the host, as enp1s0f0."""
    force: bool = False
    """Takes it even if it has an address or a route; both are put back at the end."""


class RealRnic(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An RDMA device for a node's verbs, in place of its soft RNIC. Its peers need one too."""

    device: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_.-]{1,63}$")]
    """As `rdma link` names it: mlx5_0, rxe0."""
    gid_index: Annotated[int, msgspec.Meta(ge=0, le=255)]
    """Row of the port's GID table: that of a RoCE v2 address of the port."""
    port: Annotated[int, msgspec.Meta(ge=1, le=255)] = 1
    """Port of the device."""


class DeviceAccelerator(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A process that computes a node's graphs and measures how long they take: one of `socket` and `command`."""

    socket: SocketPath | None = None
    """Unix socket of a process that runs already."""
    command: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=64)] | None = None
    """Program and arguments; the bench starts and ends it. `{socket}` stands for the socket at which it is to listen,
    `{python}` for Looplane's interpreter.
    """
    patience_s: Annotated[float, msgspec.Meta(gt=0, le=600)] = 10.0
    """Wall seconds without an answer after which the device is lost."""

    def __post_init__(self) -> None:
        if (self.socket is None) == (self.command is None):
            raise ValueError("one of socket and command, not both and not neither")


class StorageMount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A folder of a mounted file system in which a storage node keeps its chunks."""

    path: AbsolutePath
    """The folder; on a file system that takes O_DIRECT, and not the host's own root."""


class Hardware(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Real parts, by the name of what they stand for. A simulation models all of them."""

    ports: dict[str, LentInterface] = {}
    """By port, as "gpu0.cnic0": the interface becomes that node's port; its cable leads where you have put it."""
    uplinks: dict[str, LentInterface] = {}
    """By fabric: the interface becomes a port of that fabric's switch, towards what lies outside."""
    rnics: dict[str, RealRnic] = {}
    """By node."""
    accelerators: dict[str, DeviceAccelerator] = {}
    """By node."""
    storage: dict[str, StorageMount] = {}
    """By node."""

    def interfaces(self) -> tuple[tuple[str, LentInterface], ...]:
        """Every interface of the host with the path of its line in the file, ports first."""
        return (
            *((joined("hardware.ports", name), lent) for name, lent in self.ports.items()),
            *((joined("hardware.uplinks", name), lent) for name, lent in self.uplinks.items()),
        )

    def __bool__(self) -> bool:
        return any((self.ports, self.uplinks, self.rnics, self.accelerators, self.storage))


class HardwareNode(msgspec.Struct, frozen=True):
    """What of a node matters here."""

    name: str
    role: str
    ports: Mapping[str, str]
    """Fabric of each port, by the port's name."""
    peers: Sequence[str]
    """Nodes to which it has a queue pair."""


def misfits(
    hardware: Hardware, nodes: Sequence[HardwareNode], nodes_as: str, captured: Sequence[str]
) -> list[Complaint]:
    """Entries that do not fit these nodes; `nodes_as` is the spec's `nodes`, `captured` the ports of its captures."""
    return [
        *_wrong_interfaces(hardware),
        *_wrong_ports(hardware, nodes),
        *_wrong_uplinks(hardware, nodes),
        *_wrong_captures(hardware, captured),
        *_wrong_rnics(hardware, nodes, nodes_as),
        *_wrong_nodes("accelerators", hardware.accelerators, nodes, COMPUTING),
        *_wrong_nodes("storage", hardware.storage, nodes, frozenset({"storage"})),
    ]


def hardware_notes(hardware: Hardware, clock: str) -> list[str]:
    """What a reader of the run must know about its real parts, a line each."""
    if not hardware:
        return []
    if clock == "simulated":
        return ["simulated clock: [hardware] is not touched, every part of it is modelled"]
    notes = [f"{name} is the host's interface {lent.interface}, not a virtual link" for name, lent in
             hardware.ports.items()]  # fmt: skip
    notes += [f"the {name} switch has an uplink through the host's interface {lent.interface}; what lies behind is "
              "neither shaped nor measured here" for name, lent in hardware.uplinks.items()]  # fmt: skip
    notes += [f"{name}'s verbs go to the RDMA device {rnic.device}, GID index {rnic.gid_index}, not to a soft RNIC: "
              "its wire is neither paced, dilated nor put into our lanes"
              for name, rnic in hardware.rnics.items()]  # fmt: skip
    notes += [f"{name}'s graphs are computed by a process ({_where(device)}): their time is measured there, not "
              "modelled; tokens are synthetic all the same" for name, device in hardware.accelerators.items()]
    notes += [f"{name} keeps its chunks in {mount.path}" for name, mount in hardware.storage.items()]
    return notes


def _where(device: DeviceAccelerator) -> str:
    return f"socket {device.socket}" if device.socket else " ".join(device.command or ())


def _wrong_interfaces(hardware: Hardware) -> list[Complaint]:
    first: dict[str, str] = {}
    faults = []
    for path, lent in hardware.interfaces():
        other = first.setdefault(lent.interface, path)
        if other != path:
            faults.append(Complaint(f"{path}.interface", shown(lent.interface), f"taken by {other} already"))
    return faults


def _wrong_ports(hardware: Hardware, nodes: Sequence[HardwareNode]) -> list[Complaint]:
    known = [f"{node.name}.{port}" for node in nodes for port in node.ports]
    return [_unknown("ports", name, known) for name in hardware.ports if name not in known]


def _wrong_uplinks(hardware: Hardware, nodes: Sequence[HardwareNode]) -> list[Complaint]:
    fabrics = {f"{node.name}.{port}": fabric for node in nodes for port, fabric in node.ports.items()}
    faults = [_unknown("uplinks", name, sorted(set(fabrics.values()))) for name in hardware.uplinks
              if name not in fabrics.values()]  # fmt: skip
    for name in hardware.ports:
        fabric = fabrics.get(name)
        inside = [port for port, there in fabrics.items() if there == fabric and port not in hardware.ports]
        if fabric is not None and inside and fabric not in hardware.uplinks:
            words = f"{inside[0]} stays on the {fabric} switch and could not reach it: add hardware.uplinks.{fabric}"
            faults.append(Complaint(joined("hardware.ports", name), shown(hardware.ports[name].interface), words))
    return faults


def _wrong_captures(hardware: Hardware, captured: Sequence[str]) -> list[Complaint]:
    words = "a capture is taken at the switch, and a port of hardware.ports has none here: capture its peer's port"
    return [
        Complaint(f"captures[{number}]", shown(name), words)
        for number, name in enumerate(captured)
        if name in hardware.ports
    ]


def _wrong_rnics(hardware: Hardware, nodes: Sequence[HardwareNode], nodes_as: str) -> list[Complaint]:
    able = {node.name: node for node in nodes if node.peers}
    faults = [_unknown("rnics", name, able) for name in hardware.rnics if name not in able]
    for name in (name for name in hardware.rnics if name in able):
        ports = [port for port, fabric in able[name].ports.items() if fabric != "front"]
        if len(ports) > 1:
            words = f"a node with one RoCE port; it has {', '.join(ports)}, and a device would be all of them"
            faults.append(Complaint(joined("hardware.rnics", name), shown(hardware.rnics[name].device), words))
        for peer in able[name].peers:
            if peer not in hardware.rnics:
                words = f"its peer {peer} has none; RNICs give out queue-pair numbers themselves: both ends or none"
                faults.append(Complaint(joined("hardware.rnics", name), shown(hardware.rnics[name].device), words))
    if hardware.rnics and nodes_as != "namespace":
        words = '"namespace" where hardware.rnics is used: a container has no RDMA devices'
        faults.append(Complaint("nodes", shown(nodes_as), words))
    return faults


def _wrong_nodes(
    table: str, told: Iterable[str], nodes: Sequence[HardwareNode], roles: frozenset[str]
) -> list[Complaint]:
    able = [node.name for node in nodes if node.role in roles]
    return [_unknown(table, name, able) for name in told if name not in able]


def _unknown(table: str, name: str, known: Iterable[str]) -> Complaint:
    return Complaint(joined(f"hardware.{table}", name), "no such place", one_of(known, name))
