"""From a spec and one trial's place to a plan: addresses, queue pairs, keys, regions, rates and what must be said.

Everything that two processes would otherwise have to agree on is decided here, from the trial's seed alone, so a plan
can be made again. A wire profile's packet budget, what a bench carries through per-packet arbitration
(platform.md §0.1), which bounds the kernel's rate of a port. It starts nothing.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from testbed.experiment.assembly import SYSTEMS, ConnectionOutline, NodeOutline
from testbed.experiment.complaints import Complaint, shown
from testbed.experiment.hardware import Hardware, HardwareNode, hardware_notes, misfits
from testbed.experiment.plan import (
    CapturePlan,
    FabricPlan,
    NodePlan,
    Plan,
    PortPlan,
    QueuePairPlan,
    RegionPlan,
)
from testbed.experiment.spec import Spec
from testbed.experiment.sweep import Place
from testbed.network.wire_profile import MODELLED, WireProfile
from testbed.units import GBIT_PER_S, from_microseconds, image_bytes, serialization_time
from testbed.workload.streams import derived_seed

ROCE_OVERHEAD = 14 + 20 + 8 + 12 + 16 + 4
"""Bytes of Ethernet, IPv4, UDP, BTH, RETH and ICRC around a packet's payload."""
SLOWEST_KERNEL_RATE = 1_000_000
"""Bits per second below which a port is no link any more: one packet would take 33 ms."""
FRONT_MTU = 1500
ROCE_MTU_ROOM = 104
"""Ethernet MTU beyond the path MTU: 4200 for 4096, as architecture §7 sets it; other path MTUs alike."""
_FABRICS: tuple[tuple[str, str, str], ...] = (
    ("front", "10.60", "front"),
    ("compute", "10.61", "cnic"),
    ("storage", "10.62", "snic"),
)
"""Fabric, first bytes of its subnet, and how a node's ports on it begin. All lie in namespaces of the run."""
_SMALL_FABRIC = 254
"""Ports that share a /24; a larger fabric, which only a simulation has, is a /16."""
_QP_FLOOR = 0x000100
"""Queue-pair numbers 0 and 1 are management's (IBA 3.5.3); we leave some more free."""


def refusals(spec: Spec) -> list[Complaint]:
    """Why a spec whose every field is right can still not be built."""
    return [*_slow_ports(spec), *_too_big(spec), *_wrong_captures(spec), *_wrong_hardware(spec)]


def compile_plan(
    spec: Spec,
    place: Place,
    *,
    run: str,
    label: str,
    clock: Literal["simulated", "wall"],
    trial: str = "",
    wire_profile: WireProfile = MODELLED,
) -> Plan:
    """The plan of one trial. `spec` is the experiment at the trial's sweep point, as `reading` has checked it.

    `wire_profile` bounds the packets of an emulation; a simulation has none.
    """
    system = spec.systems[place.system]
    row = SYSTEMS[system.kind]
    outlines = row.plan_nodes(msgspec.convert(system.parameters, row.parameters))
    seed = place.seed(spec.seed)
    # A simulation has true rates and true time; only an emulation must stretch them. Images of KV are made smaller
    # under both clocks, and a simulated wire counts their true bytes.
    dilation = spec.dilation if clock == "wall" else 1.0
    byte_scale, notes = _byte_scale(spec, outlines, wire_profile.packets_per_s) if clock == "wall" else (1, [])
    if clock == "simulated" and _has_images(outlines):
        byte_scale = spec.byte_scale
    rates = _rates(spec)
    fabrics = tuple(_fabric(spec, name, prefix, outlines) for name, prefix, _ in _FABRICS if _members(name, outlines))
    ports = _Ports(outlines, rates, label, byte_scale, dilation)
    return Plan(
        run=run,
        label=label,
        clock=clock,
        system=place.system,
        kind=system.kind,
        seed=seed,
        dilation=dilation,
        byte_scale=byte_scale,
        path_mtu=spec.network.compute.path_mtu,
        fabrics=fabrics,
        nodes=tuple(_node(outline, outlines, ports, seed, byte_scale) for outline in outlines),
        parameters=system.parameters,
        workload=msgspec.to_builtins(spec.workload),
        captures=tuple(CapturePlan(capture.node, capture.interface, capture.limit_mib) for capture in spec.captures),
        time_limit_s=spec.time_limit_s,
        nodes_as=spec.nodes,
        wire=spec.network.wire,
        front_delay=from_microseconds(spec.network.front.delay_us),
        workload_seed=place.workload_seed(spec.seed),
        trial=trial,
        point=dict(place.point),
        repeat=place.repeat,
        wire_profile=wire_profile if clock == "wall" else None,
        notes=(
            *notes,
            *_notes(spec, clock, byte_scale, outlines, wire_profile),
            *hardware_notes(spec.hardware, clock),
        ),
        hardware=spec.hardware if clock == "wall" else Hardware(),
    )


# --- rates and the packet budget ------------------------------------------------------------------------------------


def kernel_rate(rate_bits_per_s: int, byte_scale: int, dilation: float) -> int:
    """What the emulation sets for a true rate: true ÷ byte_scale ÷ dilation."""
    return round(rate_bits_per_s / byte_scale / dilation)


def packets_per_second(rate_bits_per_s: int, path_mtu: int) -> int:
    """Full packets that a port of this (kernel) rate carries in a second."""
    return rate_bits_per_s // (8 * (path_mtu + ROCE_OVERHEAD))


def _rates(spec: Spec) -> dict[str, int]:
    compute = round(spec.network.compute.rate_gbit_s * GBIT_PER_S)
    front = round(spec.network.front.rate_gbit_s * GBIT_PER_S)
    storage = round(spec.network.storage.rate_gbit_s * GBIT_PER_S)
    return {"front": front, "compute": compute, "storage": storage}


def _roce_ports(outlines: tuple[NodeOutline, ...]) -> dict[str, int]:
    """How many ports each RoCE fabric has."""
    counts = {name: len(_members(name, outlines)) for name, _, _ in _FABRICS if name != "front"}
    return {name: count for name, count in counts.items() if count}


def _has_images(outlines: tuple[NodeOutline, ...]) -> bool:
    return any(region.bulk for outline in outlines for region in outline.regions)


def _saturated(spec: Spec, ports: dict[str, int], byte_scale: int) -> int:
    """Packets a second with every RoCE port saturated."""
    rates, mtu = _rates(spec), spec.network.compute.path_mtu
    return sum(
        count * packets_per_second(kernel_rate(rates[name], byte_scale, spec.dilation), mtu)
        for name, count in ports.items()
    )


def _byte_scale(spec: Spec, outlines: tuple[NodeOutline, ...], budget: int) -> tuple[int, list[str]]:
    """The byte scale of an emulation: the spec's, raised where saturated ports would burst the packet budget."""
    ports, rates, mtu = _roce_ports(outlines), _rates(spec), spec.network.compute.path_mtu
    packets = _saturated(spec, ports, spec.byte_scale)
    if packets <= budget:
        return spec.byte_scale, []
    total = sum(count * rates[name] for name, count in ports.items())
    scale = -(-total // int(budget * 8 * (mtu + ROCE_OVERHEAD) * spec.dilation))
    note = (
        f"byte_scale raised from {spec.byte_scale} to {scale}: {_ports_in_words(ports, rates)} at path MTU {mtu} and "
        f"dilation {spec.dilation:g} would be {packets} packets/s, this bench carries {budget}"
    )
    return scale, [note]


def _ports_in_words(ports: dict[str, int], rates: dict[str, int]) -> str:
    parts = [f"{count} {name} ports of {rates[name] / GBIT_PER_S:g} Gbit/s" for name, count in ports.items()]
    return " and ".join(parts)


def _slow_ports(spec: Spec) -> list[Complaint]:
    systems = _outlines(spec)
    scale = max(_byte_scale(spec, outlines, MODELLED.packets_per_s)[0] for outlines in systems)
    told = {"front": spec.network.front.rate_gbit_s, "compute": spec.network.compute.rate_gbit_s}
    if any(_members("storage", outlines) for outlines in systems):
        told["storage"] = spec.network.storage.rate_gbit_s
    faults = []
    for name, gbit in told.items():
        slowed = kernel_rate(_rates(spec)[name], scale, spec.dilation)
        if slowed < SLOWEST_KERNEL_RATE:
            words = (
                f"with byte_scale {scale} and dilation {spec.dilation:g} an emulation's port has {slowed} bit/s; "
                f"at least {SLOWEST_KERNEL_RATE} are allowed"
            )
            faults.append(Complaint(f"network.{name}.rate_gbit_s", shown(gbit), words))
    return faults


def _outlines(spec: Spec) -> list[tuple[NodeOutline, ...]]:
    """The nodes of each system of the experiment."""
    rows = [(SYSTEMS[system.kind], system.parameters) for system in spec.systems.values()]
    return [row.plan_nodes(msgspec.convert(parameters, row.parameters)) for row, parameters in rows]


def _notes(
    spec: Spec, clock: str, byte_scale: int, outlines: tuple[NodeOutline, ...], profile: WireProfile
) -> list[str]:
    images = _has_images(outlines)
    notes = (
        []
        if images
        else ["prompts are excerpts of a bundled public-domain text, answers come from a Markov model of it: synthetic"]
    )
    if clock == "simulated":
        unused = "dilation does" if images else "dilation and byte_scale do"
        notes.append(f"simulated clock: true rates and true time; the experiment's {unused} not apply")
        return [*notes, *_image_notes(byte_scale, images=images)]
    rates, ports = _rates(spec), _roce_ports(outlines)
    notes.append(profile.words())
    for name in ports:
        slowed = kernel_rate(rates[name], byte_scale, spec.dilation)
        notes.append(f"{name} ports: {rates[name] / GBIT_PER_S:g} Gbit/s true, {slowed / 1e6:g} Mbit/s in the kernel")
    notes.append(
        f"all {sum(ports.values())} RoCE ports saturated would be {_saturated(spec, ports, byte_scale)} of "
        f"{profile.packets_per_s} packets/s"
    )
    notes += _image_notes(byte_scale, images=images)
    rate = rates["compute"]
    if byte_scale > 1 and not images:
        kilobytes = 64
        true_us = serialization_time(kilobytes * 1024, rate) / 1000
        notes.append(
            f"rings and metadata are not scaled, so {kilobytes} KiB of them take {true_us * byte_scale:.0f} us of true "
            f"time on this network and {true_us:.1f} us on the modelled one"
        )
    return notes


def _image_notes(byte_scale: int, *, images: bool) -> list[str]:
    if not images or byte_scale == 1:
        return []
    words = f"KV blocks are images: one byte for {byte_scale} true ones, each with its id, place and checksum"
    return [f"{words}; every figure in bytes is a true one"]


# --- fabrics, ports, nodes ------------------------------------------------------------------------------------------


def fabric_of(interface: str) -> str:
    """The fabric that an interface's name says. Raises KeyError."""
    return {prefix: name for name, _, prefix in _FABRICS}[interface.rstrip("0123456789")]


def _members(fabric: str, outlines: tuple[NodeOutline, ...]) -> list[tuple[str, str]]:
    """(node, interface) of every port of a fabric, in the order of the nodes."""
    return [
        (outline.name, interface)
        for outline in outlines
        for interface in outline.ports
        if fabric_of(interface) == fabric
    ]


def _fabric(spec: Spec, name: str, prefix: str, outlines: tuple[NodeOutline, ...]) -> FabricPlan:
    roce = name != "front"
    mtu = spec.network.compute.path_mtu + ROCE_MTU_ROOM if roce else FRONT_MTU
    lanes = {"compute": spec.network.compute.lanes, "storage": spec.network.storage.lanes}
    small = len(_members(name, outlines)) <= _SMALL_FABRIC
    return FabricPlan(
        name=name,
        subnet=f"{prefix}.0.0/{24 if small else 16}",
        mtu=mtu,
        roce=roce,
        lanes=lanes.get(name),
    )


class _Ports:
    """Addresses of every port, by node and fabric."""

    def __init__(
        self,
        outlines: tuple[NodeOutline, ...],
        rates: dict[str, int],
        label: str,
        byte_scale: int,
        dilation: float,
    ) -> None:
        self._ports: dict[tuple[str, str], PortPlan] = {}
        number = 0
        for name, prefix, _ in _FABRICS:
            for place, (node, interface) in enumerate(_members(name, outlines), 1):
                number += 1
                high, low = divmod(place - 1, _SMALL_FABRIC)
                self._ports[node, interface] = PortPlan(
                    interface=interface,
                    fabric=name,
                    address=f"{prefix}.{high}.{low + 1}",
                    # Locally administered; the label keeps two runs apart in captures.
                    mac=f"02:{label[0:2]}:{label[2:4]}:{label[4:6]}:{number >> 8:02x}:{number & 255:02x}",
                    rate_bits_per_s=rates[name],
                    kernel_rate_bits_per_s=kernel_rate(rates[name], byte_scale, dilation),
                )

    def of(self, node: str) -> tuple[PortPlan, ...]:
        """All ports of a node, in the order of the fabrics."""
        return tuple(port for (owner, _), port in self._ports.items() if owner == node)

    def on(self, node: str, interface: str) -> PortPlan:
        """One port of `node`."""
        return self._ports[node, interface]


def _node(
    outline: NodeOutline, outlines: tuple[NodeOutline, ...], ports: _Ports, seed: int, byte_scale: int
) -> NodePlan:
    peers = {other.name: other for other in outlines}
    return NodePlan(
        name=outline.name,
        role=outline.role,
        cores=outline.cores,
        memory_mib=outline.memory_mib,
        ports=ports.of(outline.name),
        queue_pairs=_queue_pairs(outline, peers, ports, seed),
        regions=_regions(outline, seed, byte_scale),
        pcie_bits_per_s=outline.pcie_bits_per_s,
        dram_bits_per_s=outline.dram_bits_per_s,
    )


def _queue_pairs(
    outline: NodeOutline, peers: dict[str, NodeOutline], ports: _Ports, seed: int
) -> tuple[QueuePairPlan, ...]:
    return tuple(
        QueuePairPlan(
            peer=connection.peer,
            interface=connection.interface,
            number=_qp_number(outline.name, place, seed),
            peer_number=_qp_number(
                connection.peer, peers[connection.peer].connections.index(_other_way(outline.name, connection)), seed
            ),
            peer_address=ports.on(connection.peer, connection.peer_interface).address,
            initial_psn=_psn(seed, outline.name, connection),
            peer_psn=_psn(seed, connection.peer, _other_way(outline.name, connection)),
            service_level=connection.service_level,
            peer_interface=connection.peer_interface,
            messages=connection.messages,
        )
        for place, connection in enumerate(outline.connections)
    )


def _other_way(name: str, connection: ConnectionOutline) -> ConnectionOutline:
    """The same connection as the peer outlines it."""
    return connection._replace(interface=connection.peer_interface, peer=name, peer_interface=connection.interface)


def _psn(seed: int, node: str, connection: ConnectionOutline) -> int:
    place = (connection.interface, connection.peer, connection.peer_interface, connection.service_level)
    return derived_seed(seed, "psn", node, *place) & 0xFFFFFF


def _qp_number(node: str, place: int, seed: int) -> int:
    """A number of 24 bits, unique on the node: a random start and the connection's place among the node's own."""
    span = (1 << 24) - _QP_FLOOR
    start = derived_seed(seed, "queue pairs", node) % span
    return _QP_FLOOR + (start + place) % span


def _regions(outline: NodeOutline, seed: int, byte_scale: int) -> tuple[RegionPlan, ...]:
    planned: list[RegionPlan] = []
    # Pages of a 47-bit address space, as a process of the modelled host would have; the next region begins behind.
    address = (0x100 + derived_seed(seed, "addresses", outline.name) % 0x4000) << 32
    for place, region in enumerate(outline.regions):
        base = derived_seed(seed, "keys", outline.name) % (2**32 - 2**16 - 1) + 1
        size = region.size // region.grain * image_bytes(region.grain, byte_scale) if region.bulk else region.size
        planned.append(RegionPlan(region.name, size, address, base + place, bulk=region.bulk, dram=region.dram))
        address += -(-size >> 21) + 1 << 21
    return tuple(planned)


def _too_big(spec: Spec) -> list[Complaint]:
    """Systems whose device has no room for what their host would load."""
    faults = []
    for name, system in spec.systems.items():
        row = SYSTEMS[system.kind]
        try:
            row.provision(msgspec.convert(system.parameters, row.parameters))
        except ValueError as fault:
            faults.append(Complaint(f"systems.{name}", "its memory", str(fault)))
    return faults


def _wrong_captures(spec: Spec) -> list[Complaint]:
    """Captures at nodes or ports that one of the systems does not have."""
    faults: list[Complaint] = []
    for outlines in _outlines(spec):
        ports = {node.name: node.ports for node in outlines}
        reachable = ", ".join(name for name, there in ports.items() if there)
        for number, capture in enumerate(spec.captures):
            where = f"captures[{number}]"
            if not ports.get(capture.node):
                faults.append(Complaint(f"{where}.node", shown(capture.node), f"one of {reachable}"))
            elif capture.interface not in ports[capture.node]:
                there = ", ".join(ports[capture.node])
                faults.append(Complaint(f"{where}.interface", shown(capture.interface), f"one of {there}"))
    return faults


def _wrong_hardware(spec: Spec) -> list[Complaint]:
    """Real parts for places that one of the systems does not have."""
    faults: list[Complaint] = []
    for outlines in _outlines(spec):
        nodes = [
            HardwareNode(
                node.name,
                node.role,
                {port: fabric_of(port) for port in node.ports},
                list(dict.fromkeys(each.peer for each in node.connections if each.peer != node.name)),
            )
            for node in outlines
        ]
        captured = [f"{capture.node}.{capture.interface}" for capture in spec.captures]
        faults += misfits(spec.hardware, nodes, spec.nodes, captured)
    return faults
