"""From a spec and one trial's place to a plan: nodes, ports, queue pairs, regions, rates and what must be said.

Everything that two processes would otherwise have to agree on is decided here, from the trial's seed alone, so a plan
can be made again: what lies on which network (`testbed.experiment.fabrics`), at which rate
(`testbed.experiment.packet_budget`), under which numbers (`testbed.experiment.addresses`). It starts nothing.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from testbed.experiment.addresses import Pairs, Ports, regions
from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.complaints import Complaint, shown
from testbed.experiment.fabrics import FABRICS, fabric_of, fabric_plan, members
from testbed.experiment.hardware import Hardware, HardwareNode, hardware_notes, misfits
from testbed.experiment.outlines import NodeOutline
from testbed.experiment.packet_budget import (
    chosen_byte_scale,
    has_images,
    kernel_rate,
    outlines_of,
    roce_ports,
    saturated,
    slow_ports,
    true_rates,
)
from testbed.experiment.plan import CapturePlan, CpuSet, FaultPlan, NeighbourPlan, NodePlan, Plan
from testbed.experiment.spec import Spec, SystemSpec
from testbed.experiment.sweep import Place
from testbed.network.wire_profile import MODELLED, WireProfile
from testbed.units import GBIT_PER_S, from_microseconds, from_seconds, serialization_time

MORTAL = frozenset({"prefill", "decode", "storage"})
"""Roles of nodes that a fault may befall: there are others of their kind, and a run goes on without one."""


def refusals(spec: Spec) -> list[Complaint]:
    """Why a spec whose every field is right can still not be built."""
    faults = [*_wrong_surroundings(spec), *slow_ports(spec), *_misfits(spec)]
    return [*faults, *_wrong_captures(spec), *_wrong_faults(spec), *_wrong_hardware(spec)]


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
    parameters = msgspec.convert(system.parameters, row.parameters)
    if clock == "wall" and row.simulated_only is not None and (names := row.simulated_only(parameters)):
        raise ValueError(f"systems.{place.system}: {', '.join(names)}: a model that no emulation has; run it on sim")
    outlines = row.plan_nodes(parameters)
    seed = place.seed(spec.seed)
    # A simulation has true rates and true time; only an emulation must stretch them. Images of KV are made smaller
    # under both clocks, and a simulated wire counts their true bytes.
    dilation = (system.dilation or spec.dilation) if clock == "wall" else 1.0
    byte_scale = spec.byte_scale if has_images(outlines) else 1
    notes: list[str] = []
    if clock == "wall":
        byte_scale, notes = chosen_byte_scale(spec, outlines, wire_profile.packets_per_s, dilation)
    rates = true_rates(spec)
    fabrics = tuple(fabric_plan(spec, name, prefix, outlines) for name, prefix, _ in FABRICS if members(name, outlines))
    ports = Ports(outlines, rates, label, byte_scale, dilation)
    pairs = Pairs(outlines, ports, seed)
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
        nodes=tuple(
            _node(outline, _cores(system, outline), ports, pairs, seed, byte_scale) for outline in outlines
        ),
        parameters=system.parameters,
        workload=msgspec.to_builtins(spec.workload),
        captures=tuple(CapturePlan(capture.node, capture.interface, capture.limit_mib) for capture in spec.captures),
        faults=tuple(
            FaultPlan(fault.node, from_seconds(fault.at_s), fault.kind)
            for fault in sorted(spec.faults, key=lambda fault: fault.at_s)
        ),
        time_limit_s=spec.time_limit_s,
        nodes_as=spec.nodes,
        wire=spec.network.wire,
        ack_timeout=spec.network.ack_timeout,
        front_delay=from_microseconds(spec.network.front.delay_us),
        workload_seed=place.workload_seed(spec.seed),
        trial=trial,
        point=dict(place.point),
        repeat=place.repeat,
        wire_profile=wire_profile if clock == "wall" else None,
        notes=(
            *notes,
            *_notes(spec, clock, (byte_scale, dilation), outlines, wire_profile),
            *(row.notes(parameters, rates) if row.notes is not None else ()),
            *_dilation_notes(dilation, outlines),
            *hardware_notes(spec.hardware, clock),
            *_surroundings_notes(spec, place.system, outlines, clock),
        ),
        neighbours=tuple(
            NeighbourPlan(name, each.kind, each.threads, each.containers, each.working_set_mib)
            for name, each in spec.neighbours.items()
            if name in system.neighbours and each.threads
        ),
        mitigations=tuple(system.mitigations),
        hardware=spec.hardware if clock == "wall" else Hardware(),
    )


def _notes(
    spec: Spec, clock: str, scales: tuple[int, float], outlines: tuple[NodeOutline, ...], profile: WireProfile
) -> list[str]:
    byte_scale, dilation = scales
    images = has_images(outlines)
    speaks = not images and any(outline.role == "client" for outline in outlines)
    synthetic = (
        "prompts are excerpts of a bundled public-domain text, answers come from a Markov model of it: synthetic"
    )
    notes = [synthetic] if speaks else []
    if clock == "simulated":
        unused = "dilation does" if images else "dilation and byte_scale do"
        notes.append(f"simulated clock: true rates and true time; the experiment's {unused} not apply")
        return [*notes, *_image_notes(byte_scale, images=images)]
    rates, ports = true_rates(spec), roce_ports(outlines)
    notes.append(profile.words())
    for name in ports:
        slowed = kernel_rate(rates[name], byte_scale, dilation)
        notes.append(f"{name} ports: {rates[name] / GBIT_PER_S:g} Gbit/s true, {slowed / 1e6:g} Mbit/s in the kernel")
    notes.append(
        f"all {sum(ports.values())} RoCE ports saturated would be {saturated(spec, ports, *scales)} of "
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


def _dilation_notes(dilation: float, outlines: tuple[NodeOutline, ...]) -> list[str]:
    if dilation == 1 or not any(outline.processes for outline in outlines):
        return []
    words = f"host work is real work, which a dilation of {dilation:g} does not stretch as it stretches the GPU's steps"
    return [f"{words}: a piece of 1 ms takes {1 / dilation:.3g} ms of true time; figures need a dilation of 1"]


def _surroundings_notes(spec: Spec, name: str, outlines: tuple[NodeOutline, ...], clock: str) -> list[str]:
    """What is about one system: neighbours, other cores than its own choice."""
    system = spec.systems[name]
    if clock == "simulated":
        return _simulated_surroundings(spec, name, outlines)
    chosen = {outline.role: _cores(system, outline) for outline in outlines}
    notes = []
    if "reserved" in chosen.values():
        who = ", ".join(role for role, cores in chosen.items() if cores == "reserved")
        notes.append(f"{who} on reserved cores, which no neighbour may use and which cannot be sold: a core of its own "
                     "where the bench has three or more; of two the hardware's, whose silicon goes first")  # fmt: skip
    moved = [outline.role for outline in outlines if outline.cores == "hardware" and chosen[outline.role] != "hardware"]
    if moved:
        notes.append(f"{', '.join(moved)} on cores of the host: no silicon of its own, and its lateness is not judged")
    return notes


def _image_notes(byte_scale: int, *, images: bool) -> list[str]:
    if not images or byte_scale == 1:
        return []
    words = f"KV blocks are images: one byte for {byte_scale} true ones, each with its id, place and checksum"
    return [f"{words}; every figure in bytes is a true one"]


def _node(
    outline: NodeOutline, cores: CpuSet, ports: Ports, pairs: Pairs, seed: int, byte_scale: int
) -> NodePlan:
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


def _simulated_surroundings(spec: Spec, name: str, outlines: tuple[NodeOutline, ...]) -> list[str]:
    """What of neighbours, mitigations and cores a simulation has, and what it has not."""
    system = spec.systems[name]
    notes = [f"{other}: under the simulated clock nothing of it is modelled" for other in system.mitigations
             if other != "pinning"]  # fmt: skip
    if threads := sum(spec.neighbours[other].threads for other in system.neighbours):
        works = any(outline.processes and _cores(system, outline) == "host" for outline in outlines)
        told = "is as measured beside so many (profiles/host-contention.toml)" if works else "is none of this system's"
        notes.append(f"{name}: {threads} threads of neighbours; none runs, and work on the host's cores {told}")
    moved = [outline.role for outline in outlines if outline.cores == "hardware" and _cores(system, outline) == "host"]
    if moved:
        notes.append(f"{name}: {', '.join(moved)} on cores of the host: only an emulation shows what that does")
    return notes


def _cores(system: SystemSpec, outline: NodeOutline) -> CpuSet:
    """Pinning is cores of their own for the processes of a host that serves."""
    pinned = "pinning" in system.mitigations and outline.processes and outline.cores == "host"
    return system.cores.get(outline.role, "reserved" if pinned else outline.cores)


def _misfits(spec: Spec) -> list[Complaint]:
    """Systems whose parameters do not go together, or whose device has no room for what their host would load."""
    faults = []
    agents = spec.workload.trajectories is not None
    for name, system in spec.systems.items():
        row = SYSTEMS[system.kind]
        if agents != (row.clients == "agents"):
            words = f"a system that serves a workload {'with' if agents else 'without'} trajectories"
            faults.append(Complaint(f"systems.{name}.kind", shown(system.kind), words))
        parameters = msgspec.convert(system.parameters, row.parameters)
        for looked_at, look in (("its parameters", row.check), ("its memory", row.provision)):
            try:
                if look is not None:
                    look(parameters)
            except ValueError as fault:
                faults.append(Complaint(f"systems.{name}", looked_at, str(fault)))
    return faults


def _wrong_surroundings(spec: Spec) -> list[Complaint]:
    """Neighbours that the experiment does not have, CPU sets for roles that the system does not have, mitigations that
    protect nothing or that the CPU sets contradict.
    """
    faults = []
    for name, system in spec.systems.items():
        for number, neighbour in enumerate(system.neighbours):
            if neighbour not in spec.neighbours:
                there = f"one of {', '.join(spec.neighbours)}" if spec.neighbours else "there is no [neighbours.NAME]"
                faults.append(Complaint(f"systems.{name}.neighbours[{number}]", shown(neighbour), there))
        row = SYSTEMS[system.kind]
        outlines = row.plan_nodes(msgspec.convert(system.parameters, row.parameters))
        roles = {outline.role for outline in outlines}
        faults += [
            Complaint(f"systems.{name}.cores", shown(role), f"a role of {', '.join(sorted(roles))}")
            for role in system.cores
            if role not in roles
        ]
        for key, told in (("neighbours", system.neighbours), ("mitigations", system.mitigations)):
            faults += [Complaint(f"systems.{name}.{key}[{number}]", shown(each), "each once")
                       for number, each in enumerate(told) if each in told[:number]]  # fmt: skip
        if system.mitigations and not any(outline.processes for outline in outlines):
            words = "nothing: no software of this system serves on the host"
            faults.append(Complaint(f"systems.{name}.mitigations", shown(system.mitigations), words))
        if "pinning" in system.mitigations and "host" in system.cores:
            words = "not with pinning, which is cores of its own for the host"
            faults.append(Complaint(f"systems.{name}.cores.host", shown(system.cores["host"]), words))
    return faults


def _wrong_captures(spec: Spec) -> list[Complaint]:
    """Captures at nodes or ports that one of the systems does not have."""
    faults: list[Complaint] = []
    for outlines in outlines_of(spec):
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


def _wrong_faults(spec: Spec) -> list[Complaint]:
    """Faults of nodes that one of the systems does not have, or that no run can be without; two deaths of one node."""
    faults: list[Complaint] = []
    for system in spec.systems.values():
        row = SYSTEMS[system.kind]
        outlines = row.plan_nodes(msgspec.convert(system.parameters, row.parameters))
        mortal = [node.name for node in outlines if node.role in MORTAL]
        owned = [node.name for node in outlines if node.role == "gpu"] if row.owner is not None else []
        for number, fault in enumerate(spec.faults):
            where = f"faults[{number}].node"
            if fault.kind != "kill":
                if fault.node not in owned:
                    words = f"one of {', '.join(owned)}" if owned else "this system has no scheduler that is restarted"
                    faults.append(Complaint(where, shown(fault.node), words))
                continue
            earlier = [other.node for other in spec.faults[:number] if other.kind == "kill"]
            if fault.node not in mortal or fault.node in earlier:
                words = f"one of {', '.join(mortal)}, each once" if mortal else "this system has no node that may die"
                faults.append(Complaint(where, shown(fault.node), words))
    return faults


def _wrong_hardware(spec: Spec) -> list[Complaint]:
    """Real parts for places that one of the systems does not have."""
    faults: list[Complaint] = []
    for outlines in outlines_of(spec):
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
