"""From a spec and one trial's place to a plan: addresses, queue pairs, keys, regions, rates and what must be said.

Everything that two processes would otherwise have to agree on is decided here, from the trial's seed alone, so a plan
can be made again. A wire profile's packet budget, what a bench carries through per-packet arbitration
(platform.md §0.1), which bounds the kernel's rate of a port. It starts nothing.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from testbed.experiment.assembly import SYSTEMS, NodeOutline
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
from testbed.units import GBIT_PER_S, from_microseconds, serialization_time
from testbed.workload.streams import derived_seed

ROCE_OVERHEAD = 14 + 20 + 8 + 12 + 16 + 4
"""Bytes of Ethernet, IPv4, UDP, BTH, RETH and ICRC around a packet's payload."""
SLOWEST_KERNEL_RATE = 1_000_000
"""Bits per second below which a port is no link any more: one packet would take 33 ms."""
FRONT_MTU = 1500
ROCE_MTU_ROOM = 104
"""Ethernet MTU beyond the path MTU: 4200 for 4096, as architecture §7 sets it; other path MTUs alike."""
_FABRICS: tuple[tuple[str, str, str], ...] = (
    ("front", "10.60.0", "front0"),
    ("compute", "10.61.0", "cnic0"),
    ("storage", "10.62.0", "snic0"),
)
"""Fabric, first bytes of its subnet, and the name of a node's port on it. All lie in namespaces of the run."""
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
    # A simulation has true rates and true time; only an emulation must stretch them.
    dilation = spec.dilation if clock == "wall" else 1.0
    roce_ports = _roce_ports(outlines)
    byte_scale, notes = _byte_scale(spec, roce_ports, wire_profile.packets_per_s) if clock == "wall" else (1, [])
    rates = _rates(spec)
    fabrics = tuple(_fabric(spec, name, prefix) for name, prefix, _ in _FABRICS if _used(name, outlines))
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
        nodes=tuple(_node(outline, outlines, ports, seed) for outline in outlines),
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
            *_notes(spec, clock, byte_scale, roce_ports, wire_profile),
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
    return {"front": front, "compute": compute, "storage": compute}


def _roce_ports(outlines: tuple[NodeOutline, ...]) -> int:
    return sum(1 for outline in outlines for fabric in outline.fabrics if fabric != "front")


def _byte_scale(spec: Spec, roce_ports: int, budget: int) -> tuple[int, list[str]]:
    """The byte scale of an emulation: the spec's, raised where saturated ports would burst the packet budget."""
    compute = spec.network.compute
    rate = _rates(spec)["compute"]
    packets = roce_ports * packets_per_second(kernel_rate(rate, spec.byte_scale, spec.dilation), compute.path_mtu)
    if packets <= budget:
        return spec.byte_scale, []
    budget_rate = budget // roce_ports * 8 * (compute.path_mtu + ROCE_OVERHEAD)
    scale = -(-rate // int(budget_rate * spec.dilation))
    note = (
        f"byte_scale raised from {spec.byte_scale} to {scale}: {roce_ports} ports of {compute.rate_gbit_s:g} Gbit/s at "
        f"path MTU {compute.path_mtu} and dilation {spec.dilation:g} would be {packets} packets/s, this bench carries "
        f"{budget}"
    )
    return scale, [note]


def _slow_ports(spec: Spec) -> list[Complaint]:
    scale = max(_byte_scale(spec, _roce_ports(outlines), MODELLED.packets_per_s)[0] for outlines in _outlines(spec))
    told = {"front": spec.network.front.rate_gbit_s, "compute": spec.network.compute.rate_gbit_s}
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


def _notes(spec: Spec, clock: str, byte_scale: int, roce_ports: int, profile: WireProfile) -> list[str]:
    notes = ["prompts are excerpts of a bundled public-domain text, answers come from a Markov model of it: synthetic"]
    if clock == "simulated":
        notes.append("simulated clock: true rates and true time; the experiment's dilation and byte_scale do not apply")
        return notes
    rate = _rates(spec)["compute"]
    slowed = kernel_rate(rate, byte_scale, spec.dilation)
    packets = roce_ports * packets_per_second(slowed, spec.network.compute.path_mtu)
    notes.append(profile.words())
    notes.append(
        f"compute ports: {spec.network.compute.rate_gbit_s:g} Gbit/s true, {slowed / 1e6:g} Mbit/s in the kernel; "
        f"all {roce_ports} saturated would be {packets} of {profile.packets_per_s} packets/s"
    )
    if byte_scale > 1:
        kilobytes = 64
        true_us = serialization_time(kilobytes * 1024, rate) / 1000
        notes.append(
            f"rings and metadata are not scaled, so {kilobytes} KiB of them take {true_us * byte_scale:.0f} us of true "
            f"time on this network and {true_us:.1f} us on the modelled one"
        )
    return notes


# --- fabrics, ports, nodes ------------------------------------------------------------------------------------------


def _used(fabric: str, outlines: tuple[NodeOutline, ...]) -> bool:
    return any(fabric in outline.fabrics for outline in outlines)


def _fabric(spec: Spec, name: str, prefix: str) -> FabricPlan:
    roce = name != "front"
    mtu = spec.network.compute.path_mtu + ROCE_MTU_ROOM if roce else FRONT_MTU
    return FabricPlan(
        name=name,
        subnet=f"{prefix}.0/24",
        mtu=mtu,
        roce=roce,
        lanes=spec.network.compute.lanes if roce else None,
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
        for name, prefix, interface in _FABRICS:
            members = [outline for outline in outlines if name in outline.fabrics]
            for place, outline in enumerate(members, 1):
                number += 1
                self._ports[outline.name, name] = PortPlan(
                    interface=interface,
                    fabric=name,
                    address=f"{prefix}.{place}",
                    # Locally administered; the label keeps two runs apart in captures.
                    mac=f"02:{label[0:2]}:{label[2:4]}:{label[4:6]}:{number >> 8:02x}:{number & 255:02x}",
                    rate_bits_per_s=rates[name],
                    kernel_rate_bits_per_s=kernel_rate(rates[name], byte_scale, dilation),
                )

    def of(self, node: str) -> tuple[PortPlan, ...]:
        """All ports of a node, in the order of the fabrics."""
        return tuple(port for (owner, _), port in self._ports.items() if owner == node)

    def on(self, node: str, fabric: str) -> PortPlan:
        """The port of `node` on `fabric`."""
        return self._ports[node, fabric]


def _node(outline: NodeOutline, outlines: tuple[NodeOutline, ...], ports: _Ports, seed: int) -> NodePlan:
    peers = {other.name: other for other in outlines}
    return NodePlan(
        name=outline.name,
        role=outline.role,
        cores=outline.cores,
        memory_mib=outline.memory_mib,
        ports=ports.of(outline.name),
        queue_pairs=tuple(_queue_pair(outline, peers[peer], ports, seed) for peer in outline.peers),
        regions=_regions(outline, seed),
    )


def _queue_pair(outline: NodeOutline, peer: NodeOutline, ports: _Ports, seed: int) -> QueuePairPlan:
    return QueuePairPlan(
        peer=peer.name,
        interface=ports.on(outline.name, "compute").interface,
        number=_qp_number(outline, peer.name, seed),
        peer_number=_qp_number(peer, outline.name, seed),
        peer_address=ports.on(peer.name, "compute").address,
        initial_psn=derived_seed(seed, "psn", outline.name, peer.name) & 0xFFFFFF,
        peer_psn=derived_seed(seed, "psn", peer.name, outline.name) & 0xFFFFFF,
        service_level=outline.service_level,
    )


def _qp_number(outline: NodeOutline, peer: str, seed: int) -> int:
    """A number of 24 bits, unique on the node: a random start and the peer's place among the node's peers."""
    span = (1 << 24) - _QP_FLOOR
    start = derived_seed(seed, "queue pairs", outline.name) % span
    return _QP_FLOOR + (start + outline.peers.index(peer)) % span


def _regions(outline: NodeOutline, seed: int) -> tuple[RegionPlan, ...]:
    planned: list[RegionPlan] = []
    # Pages of a 47-bit address space, as a process of the modelled host would have; the next region begins behind.
    address = (0x100 + derived_seed(seed, "addresses", outline.name) % 0x4000) << 32
    for place, region in enumerate(outline.regions):
        base = derived_seed(seed, "keys", outline.name) % (2**32 - 2**16 - 1) + 1
        planned.append(RegionPlan(region.name, region.size, address, base + place, bulk=region.bulk))
        address += -(-region.size >> 21) + 1 << 21
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
        ports = {node.name: [port for name, _, port in _FABRICS if name in node.fabrics] for node in outlines}
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
                node.name, node.role, {port: name for name, _, port in _FABRICS if name in node.fabrics}, node.peers
            )
            for node in outlines
        ]
        captured = [f"{capture.node}.{capture.interface}" for capture in spec.captures]
        faults += misfits(spec.hardware, nodes, spec.nodes, captured)
    return faults
