"""What a run of an experiment would be: its faults, or its plan in short. Reads and plans; makes nothing.

The plan is that of the launch page (`webui.catalogue.planned`).
"""

from __future__ import annotations

from typing import Any

from testbed.experiment.complaints import SpecError
from testbed.experiment.plan import Plan
from testbed.experiment.reading import spec_from_bytes
from testbed.experiment.sweep import count_places, count_requests
from webui.catalogue.planned import CannotRunThere, first_plan


def foresee(*, text: str, name: str, overrides: list[str], backend: str) -> dict[str, Any]:
    """Every fault of the experiment, or its plan."""
    try:
        spec = spec_from_bytes(text.encode(), name or "spec", overrides)
    except SpecError as fault:
        return _nothing([{"path": one.path, "message": str(one)} for one in fault.faults])
    try:
        plan = first_plan(spec, next(iter(spec.systems)), backend)
    except CannotRunThere as fault:
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
