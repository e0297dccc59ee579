"""From a spec and one trial's place to a plan: nodes, ports, queue pairs, regions, rates and what must be said.

Everything that two processes would otherwise have to agree on is decided here, from the trial's seed alone, so a plan
can be made again: who there is (`testbed.experiment.plan_draft`), what lies on which network
(`testbed.experiment.fabrics`), at which rate (`testbed.experiment.packet_budget`), under which numbers
(`testbed.experiment.addresses`). It starts nothing; what cannot be planned `testbed.experiment.plan_refusals` says.
"""

from __future__ import annotations

import msgspec

from testbed.experiment.addresses import Pairs, Ports, regions
from testbed.experiment.fabrics import FABRICS, fabric_plan, members
from testbed.experiment.hardware import Hardware
from testbed.experiment.outlines import NodeOutline
from testbed.experiment.packet_budget import true_rates
from testbed.experiment.plan import CapturePlan, CpuSet, FabricPlan, FaultPlan, NeighbourPlan, NodePlan, Plan
from testbed.experiment.plan_draft import Clock, Draft, draft_of
from testbed.experiment.plan_notes import notes_of
from testbed.experiment.spec import Spec, SystemSpec
from testbed.experiment.sweep import Place
from testbed.network.wire_profile import MODELLED, WireProfile
from testbed.units import from_microseconds, from_seconds


def compile_plan(
    spec: Spec,
    place: Place,
    *,
    run: str,
    label: str,
    clock: Clock,
    trial: str = "",
    wire_profile: WireProfile = MODELLED,
) -> Plan:
    """The plan of one trial. `spec` is the experiment at the trial's sweep point, as `reading` has checked it.

    `wire_profile` bounds the packets of an emulation; a simulation has none.
    """
    draft = draft_of(spec, place.system, clock, wire_profile)
    system, network, seed = spec.systems[place.system], spec.network, place.seed(spec.seed)
    emulated = clock == "wall"
    return Plan(
        run=run, label=label, trial=trial, point=dict(place.point), repeat=place.repeat,
        clock=clock, system=place.system, kind=system.kind, parameters=system.parameters,
        seed=seed, workload_seed=place.workload_seed(spec.seed), workload=msgspec.to_builtins(spec.workload),
        dilation=draft.dilation, byte_scale=draft.byte_scale, time_limit_s=spec.time_limit_s,
        fabrics=_fabrics(draft), nodes=_nodes(draft, label, seed), nodes_as=spec.nodes,
        path_mtu=network.compute.path_mtu, wire=network.wire, ack_timeout=network.ack_timeout,
        front_delay=from_microseconds(network.front.delay_us), wire_profile=wire_profile if emulated else None,
        captures=tuple(CapturePlan(capture.node, capture.interface, capture.limit_mib) for capture in spec.captures),
        faults=_faults(spec), neighbours=_neighbours(spec, system), mitigations=tuple(system.mitigations),
        hardware=spec.hardware if emulated else Hardware(), notes=notes_of(draft),
    )  # fmt: skip


def _fabrics(draft: Draft) -> tuple[FabricPlan, ...]:
    outlines = draft.outlines
    return tuple(
        fabric_plan(draft.spec, name, prefix, outlines) for name, prefix, _ in FABRICS if members(name, outlines)
    )


def _nodes(draft: Draft, label: str, seed: int) -> tuple[NodePlan, ...]:
    ports = Ports(draft.outlines, true_rates(draft.spec), label, draft.byte_scale, draft.dilation)
    pairs = Pairs(draft.outlines, ports, seed)
    return tuple(
        _node(outline, draft.cores[outline.name], ports, pairs, seed, draft.byte_scale) for outline in draft.outlines
    )


def _node(outline: NodeOutline, cores: CpuSet, ports: Ports, pairs: Pairs, seed: int, byte_scale: int) -> NodePlan:
    return NodePlan(
        name=outline.name,
        role=outline.role,
        cores=cores,
        memory_mib=outline.memory_mib,
        ports=ports.of(outline.name),
        queue_pairs=pairs.of(outline.name),
        regions=regions(outline, seed, byte_scale),
        attached=outline.attached,
        processes=outline.processes,
        pcie_bits_per_s=outline.pcie_bits_per_s,
        dram_bits_per_s=outline.dram_bits_per_s,
        host_design=outline.host_design,
        silicon=outline.role != "host" and cores in ("hardware", outline.cores),
    )


def _faults(spec: Spec) -> tuple[FaultPlan, ...]:
    """In the order in which they strike."""
    return tuple(
        FaultPlan(fault.node, from_seconds(fault.at_s), fault.kind)
        for fault in sorted(spec.faults, key=lambda fault: fault.at_s)
    )


def _neighbours(spec: Spec, system: SystemSpec) -> tuple[NeighbourPlan, ...]:
    return tuple(
        NeighbourPlan(name, each.kind, each.threads, each.containers, each.working_set_mib)
        for name, each in spec.neighbours.items()
        if name in system.neighbours and each.threads
    )
