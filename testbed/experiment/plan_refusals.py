"""Why a spec whose every field is right can still not be built: parts of it that do not fit each other or a system.

A whole spec is looked at, before any trial's place. It plans nothing and knows no host.
"""

from __future__ import annotations

import msgspec

from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.complaints import Complaint, shown
from testbed.experiment.fabrics import fabric_of
from testbed.experiment.hardware import HardwareNode, misfits
from testbed.experiment.packet_budget import outlines_of, slow_ports
from testbed.experiment.spec import Spec

MORTAL = frozenset({"prefill", "decode", "storage"})
"""Roles of nodes that a fault may befall: there are others of their kind, and a run goes on without one."""


def refusals(spec: Spec) -> list[Complaint]:
    """Why a spec whose every field is right can still not be built."""
    faults = [*_wrong_surroundings(spec), *slow_ports(spec), *_misfits(spec)]
    return [*faults, *_wrong_captures(spec), *_wrong_faults(spec), *_wrong_hardware(spec)]


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
