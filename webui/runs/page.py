"""What the run page's script is handed along with the page: the run, its plan in short, and the tables it folds by."""

from __future__ import annotations

from typing import Any

from django.urls import reverse

from testbed.metrics.thresholds import THRESHOLDS
from webui.accounts.callers import Caller
from webui.runs.facts import run_facts
from webui.runs.levels import LEVELS
from webui.runs.models import Run
from webui.runs.specs import SpecFault, read_spec

LIMITS: list[dict[str, Any]] = [
    {
        "name": limit.name,
        "unit": limit.unit,
        "faithful": limit.faithful,
        "invalid": limit.invalid,
        "needed": limit.needed,
        "reason": limit.reason,
    }
    for limit in THRESHOLDS.values()
]


def page_facts(run: Run, trial: str, plan: dict[str, Any], caller: Caller) -> dict[str, Any]:
    """One object, read by static/page/run.js."""
    trial_query = f"?trial={trial}" if trial else ""
    return {
        "run": {**run_facts(run, caller), "summary": run.summary or None},
        "trial": trial,
        "plan": plan_facts(plan),
        "expectations": _expectations(run),
        "levels": LEVELS,
        "limits": LIMITS,
        "stream": f"/ws/runs/{run.pk}{trial_query}",
        "api": reverse("api:run", args=[run.pk]),
        "files": reverse("run-files", args=[run.pk]) + trial_query,
        "trials": reverse("run-trials", args=[run.pk]) + trial_query,
        "log": reverse("run-log", args=[run.pk]),
        "queue": reverse("run-queue", args=[run.pk]),
        "pack": reverse("run-pack", args=[run.pk]) + trial_query,
        "story": reverse("run-story", args=[run.pk]) + trial_query,
    }


def _expectations(run: Run) -> int:
    try:
        return read_spec(run.spec, overrides=run.overrides, where=run.pk).expectations
    except SpecFault:  # of another version
        return 0


def plan_facts(plan: dict[str, Any]) -> dict[str, Any] | None:
    """Nodes, fabrics and sizes of a plan; None while there is none. A plan of another version gives what it has."""
    if not plan:
        return None
    parameters = plan.get("parameters")
    slots = parameters.get("slots") if isinstance(parameters, dict) else None
    return {
        "system": str(plan.get("system", "")),
        "clock": str(plan.get("clock", "")),
        "dilation": plan.get("dilation", 1),
        "byte_scale": plan.get("byte_scale", 1),
        "seed": plan.get("seed"),
        "slots": slots if isinstance(slots, int) and 0 < slots <= 65536 else None,
        "rings": [
            str(node.get("name", ""))
            for node in plan.get("nodes", [])
            if any(region.get("name") == "ring" for region in node.get("regions", []))
        ],
        "fabrics": [
            {"name": str(fabric.get("name", "")), "roce": bool(fabric.get("roce")), "mtu": fabric.get("mtu", 0)}
            for fabric in plan.get("fabrics", [])
        ],
        "nodes": [
            {
                "name": str(node.get("name", "")),
                "role": str(node.get("role", "")),
                "ports": [
                    {
                        "interface": str(port.get("interface", "")),
                        "fabric": str(port.get("fabric", "")),
                        "rate": port.get("rate_bits_per_s", 0),
                    }
                    for port in node.get("ports", [])
                ],
                "attached": [str(name) for name in node.get("attached", [])],
            }
            for node in plan.get("nodes", [])
        ],
        "notes": [str(note) for note in plan.get("notes", [])],
    }
