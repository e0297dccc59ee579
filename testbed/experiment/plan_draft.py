"""What is decided about one trial before its plan is written down: its nodes, their cores, its scales.

Decided from the spec and the trial's place alone, so that plan and notes speak of the same. It knows no port, address
or number; `testbed.experiment.planning` gives those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.outlines import NodeOutline
from testbed.experiment.packet_budget import chosen_byte_scale, has_images, true_rates
from testbed.experiment.plan import CpuSet
from testbed.experiment.spec import Spec, SystemSpec
from testbed.network.wire_profile import WireProfile

Clock = Literal["simulated", "wall"]


class Draft(NamedTuple):
    """One trial, as far as it is decided without numbers."""

    spec: Spec
    """At the trial's sweep point."""
    system: str
    """Its name in the spec."""
    clock: Clock
    outlines: tuple[NodeOutline, ...]
    cores: Mapping[str, CpuSet]
    """By node."""
    byte_scale: int
    dilation: float
    wire_profile: WireProfile
    """What bounds an emulation's packets; a simulation has no such bound."""
    scale_notes: Sequence[str]
    """Why the byte scale is not the spec's."""
    system_notes: Sequence[str]
    """What the system's own row has to say."""


def draft_of(spec: Spec, name: str, clock: Clock, wire_profile: WireProfile) -> Draft:
    """Raises ValueError for a model that the clock does not have."""
    system = spec.systems[name]
    row = SYSTEMS[system.kind]
    parameters = msgspec.convert(system.parameters, row.parameters)
    if clock == "wall" and row.simulated_only is not None and (names := row.simulated_only(parameters)):
        raise ValueError(f"systems.{name}: {', '.join(names)}: a model that no emulation has; run it on sim")
    outlines = row.plan_nodes(parameters)
    # A simulation has true rates and true time; only an emulation must stretch them. Images of KV are made smaller
    # under both clocks, and a simulated wire counts their true bytes.
    dilation = (system.dilation or spec.dilation) if clock == "wall" else 1.0
    byte_scale = spec.byte_scale if has_images(outlines) else 1
    notes: list[str] = []
    if clock == "wall":
        byte_scale, notes = chosen_byte_scale(spec, outlines, wire_profile.packets_per_s, dilation)
    return Draft(
        spec=spec,
        system=name,
        clock=clock,
        outlines=outlines,
        cores={outline.name: _cores(system, outline) for outline in outlines},
        byte_scale=byte_scale,
        dilation=dilation,
        wire_profile=wire_profile,
        scale_notes=notes,
        system_notes=row.notes(parameters, true_rates(spec)) if row.notes is not None else (),
    )


def _cores(system: SystemSpec, outline: NodeOutline) -> CpuSet:
    """Pinning is cores of their own for the processes of a host that serves."""
    pinned = "pinning" in system.mitigations and outline.processes and outline.cores == "host"
    return system.cores.get(outline.role, "reserved" if pinned else outline.cores)
