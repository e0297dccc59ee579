"""What a run of an experiment would be: its faults, or its plan in short. Reads and plans; makes nothing.

The plan is the planner's own (`testbed.experiment.planning`), as a run would get it but for the wire's profile, which
the bench measures.
"""

from __future__ import annotations

from typing import Any, Literal

from testbed.experiment.complaints import SpecError
from testbed.experiment.plan import Plan
from testbed.experiment.planning import compile_plan
from testbed.experiment.reading import at_point, spec_from_bytes
from testbed.experiment.spec import Spec
from testbed.experiment.sweep import count_places, count_requests, places

CLOCKS: dict[str, Literal["simulated", "wall"]] = {"sim": "simulated", "mininet": "wall"}


def foresee(*, text: str, name: str, overrides: list[str], backend: str) -> dict[str, Any]:
    """Every fault of the experiment, or its plan."""
    try:
        spec = spec_from_bytes(text.encode(), name or "spec", overrides)
    except SpecError as fault:
        return _nothing([{"path": one.path, "message": str(one)} for one in fault.faults])
    try:
        plan = _first_plan(spec, backend)
    except ValueError as fault:  # right in itself, but not on this backend
        return _nothing([{"path": "on", "message": str(fault)}])
    return {
        "ok": True,
        "faults": [],
        "systems": list(spec.systems),
        "trials": count_places(len(spec.systems), spec.sweep, spec.repeats),
        "requests": count_requests(spec.workload, spec.seed),
        "expectations": len(spec.expect),
        "plan": _in_short(plan),
    }


def _nothing(faults: list[dict[str, str]]) -> dict[str, Any]:
    return {
        "ok": False, "faults": faults, "systems": [], "trials": 0, "requests": 0, "expectations": 0, "plan": None,
    }  # fmt: skip


def _first_plan(spec: Spec, backend: str) -> Plan:
    place = places(list(spec.systems), spec.sweep, spec.repeats)[0]
    spec = at_point(spec, place.point)
    return compile_plan(spec, place, run="foreseen", label="000000", clock=CLOCKS[backend])


def _in_short(plan: Plan) -> dict[str, Any]:
    return {
        "system": plan.system,
        "dilation": plan.dilation,
        "byte_scale": plan.byte_scale,
        "nodes": [
            {
                "name": node.name,
                "role": node.role,
                "ports": [
                    {"interface": port.interface, "fabric": port.fabric, "rate_bits_per_s": port.rate_bits_per_s}
                    for port in node.ports
                ],
            }
            for node in plan.nodes
        ],
        "notes": list(plan.notes),
    }
