"""Rates of ports, and the packets that they carry: what an emulation may ask of the bench that it runs on.

Kernel rate = true rate ÷ byte_scale ÷ dilation. A bench carries so many packets a second through per-packet
arbitration (platform.md §0.1; its wire profile says how many); where saturated RoCE ports would burst that, the byte
scale is raised and the plan's notes say so.
"""

from __future__ import annotations

import math

import msgspec

from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.complaints import Complaint, shown
from testbed.experiment.fabrics import FABRICS, members
from testbed.experiment.outlines import NodeOutline
from testbed.experiment.spec import Spec
from testbed.network.wire_profile import MODELLED
from testbed.units import GBIT_PER_S

ROCE_OVERHEAD = 14 + 20 + 8 + 12 + 16 + 4
"""Bytes of Ethernet, IPv4, UDP, BTH, RETH and ICRC around a packet's payload."""
SLOWEST_KERNEL_RATE = 1_000_000
"""Bits per second below which a port is no link any more: one packet would take 33 ms."""


def kernel_rate(rate_bits_per_s: int, byte_scale: int, dilation: float) -> int:
    """What the emulation sets for a true rate: true ÷ byte_scale ÷ dilation."""
    return round(rate_bits_per_s / byte_scale / dilation)


def packets_per_second(rate_bits_per_s: int, path_mtu: int) -> int:
    """Full packets that a port of this (kernel) rate carries in a second."""
    return rate_bits_per_s // (8 * (path_mtu + ROCE_OVERHEAD))


def true_rates(spec: Spec) -> dict[str, int]:
    """Bits per second of a port of each fabric, on the modelled hardware."""
    compute = round(spec.network.compute.rate_gbit_s * GBIT_PER_S)
    front = round(spec.network.front.rate_gbit_s * GBIT_PER_S)
    storage = round(spec.network.storage.rate_gbit_s * GBIT_PER_S)
    return {"front": front, "compute": compute, "storage": storage}


def roce_ports(outlines: tuple[NodeOutline, ...]) -> dict[str, int]:
    """How many ports each RoCE fabric has."""
    counts = {name: len(members(name, outlines)) for name, _, _ in FABRICS if name != "front"}
    return {name: count for name, count in counts.items() if count}


def has_images(outlines: tuple[NodeOutline, ...]) -> bool:
    """Whether a node has a region of images of KV."""
    return any(region.bulk for outline in outlines for region in outline.regions)


def saturated(spec: Spec, ports: dict[str, int], byte_scale: int, dilation: float) -> int:
    """Packets a second with every RoCE port saturated."""
    rates, mtu = true_rates(spec), spec.network.compute.path_mtu
    return sum(
        count * packets_per_second(kernel_rate(rates[name], byte_scale, dilation), mtu) for name, count in ports.items()
    )


def chosen_byte_scale(
    spec: Spec, outlines: tuple[NodeOutline, ...], budget: int, dilation: float
) -> tuple[int, list[str]]:
    """The byte scale of an emulation: the spec's, raised where saturated ports would burst the packet budget.

    `dilation` is that of the system's trials.
    """
    ports, rates, mtu = roce_ports(outlines), true_rates(spec), spec.network.compute.path_mtu
    packets = saturated(spec, ports, spec.byte_scale, dilation)
    if packets <= budget:
        return spec.byte_scale, []
    total = sum(count * rates[name] for name, count in ports.items())
    scale = -(-total // int(budget * 8 * (mtu + ROCE_OVERHEAD) * dilation))
    note = (
        f"byte_scale raised from {spec.byte_scale} to {scale}: {_ports_in_words(ports, rates)} at path MTU {mtu} and "
        f"dilation {dilation:g} would be {packets} packets/s, this bench carries {budget}"
    )
    return scale, [note]


def _ports_in_words(ports: dict[str, int], rates: dict[str, int]) -> str:
    parts = [f"{count} {name} ports of {rates[name] / GBIT_PER_S:g} Gbit/s" for name, count in ports.items()]
    return " and ".join(parts)


def slow_ports(spec: Spec) -> list[Complaint]:
    """Ports that an emulation would make slower than any link."""
    systems = outlines_of(spec)
    told = {"front": spec.network.front.rate_gbit_s, "compute": spec.network.compute.rate_gbit_s}
    if any(members("storage", outlines) for outlines in systems):
        told["storage"] = spec.network.storage.rate_gbit_s
    scale, dilation = max(_slowed(spec), key=math.prod)
    faults = []
    for name, gbit in told.items():
        slowed = kernel_rate(true_rates(spec)[name], scale, dilation)
        if slowed < SLOWEST_KERNEL_RATE:
            words = (
                f"with byte_scale {scale} and dilation {dilation:g} an emulation's port has {slowed} bit/s; "
                f"at least {SLOWEST_KERNEL_RATE} are allowed"
            )
            faults.append(Complaint(f"network.{name}.rate_gbit_s", shown(gbit), words))
    return faults


def _slowed(spec: Spec) -> list[tuple[int, float]]:
    """Byte scale and dilation of each system's trials."""
    dilations = [system.dilation or spec.dilation for system in spec.systems.values()]
    return [
        (chosen_byte_scale(spec, outlines, MODELLED.packets_per_s, dilation)[0], dilation)
        for outlines, dilation in zip(outlines_of(spec), dilations, strict=True)
    ]


def outlines_of(spec: Spec) -> list[tuple[NodeOutline, ...]]:
    """The nodes of each system of the experiment."""
    rows = [(SYSTEMS[system.kind], system.parameters) for system in spec.systems.values()]
    return [row.plan_nodes(msgspec.convert(parameters, row.parameters)) for row, parameters in rows]
