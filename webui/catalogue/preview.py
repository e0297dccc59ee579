"""What a launch would be, before it is one: the plan of each system, how many trials, how long, when.

The plan is the planner's own (`webui.catalogue.planned`), so what is drawn is what is built.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.experiment.plan import Plan
from testbed.experiment.spec import Spec
from testbed.experiment.sweep import count_places, count_requests
from webui.catalogue.drawing import Drawing, NodeRow, draw, fabric_words, lane_words, node_rows
from webui.catalogue.planned import first_plan
from webui.runs.estimates import expected_seconds
from webui.runs.models import Backend

REAL = {
    Backend.SIM: "schedulers, servers, rings and the verbs that they post",
    Backend.MININET: "processes, sockets, RoCEv2 packets and the kernel's queues, with real time",
}
MODELLED = {
    Backend.SIM: "time itself, the wire, and how long GPU steps take",
    Backend.MININET: "how long GPU steps take, and PCIe",
}


@dataclass(frozen=True)
class FabricRow:
    """A fabric in the table beside the picture."""

    name: str
    words: str
    lanes: str


@dataclass(frozen=True)
class SystemPlan:
    """One system as it would be built."""

    name: str
    kind: str
    drawing: Drawing
    nodes: list[NodeRow]
    fabrics: list[FabricRow]
    notes: tuple[str, ...]
    dilation: float
    byte_scale: int


@dataclass(frozen=True)
class Preview:
    """What is to be said before a launch."""

    systems: list[SystemPlan]
    trials: int
    points: int
    repeats: int
    requests: int
    expectations: int
    expected_s: float | None
    """Wall time of the last run of this experiment on this backend."""
    least_s: float | None
    """Wall time below which an emulation cannot be: its arrivals alone take as long."""
    real: str
    modelled: str


def preview_of(spec: Spec, *, experiment: str, backend: str) -> Preview:
    """Raises CannotRunThere."""
    systems = [_system(spec, name, backend) for name in spec.systems]
    points = count_places(1, spec.sweep, 1)
    return Preview(
        systems=systems,
        trials=count_places(len(spec.systems), spec.sweep, spec.repeats),
        points=points,
        repeats=spec.repeats,
        requests=count_requests(spec.workload, spec.seed),
        expectations=len(spec.expect),
        expected_s=expected_seconds(experiment=experiment, request_digest="", backend=Backend(backend)),
        least_s=least_seconds(spec) if backend == Backend.MININET else None,
        real=REAL[Backend(backend)],
        modelled=MODELLED[Backend(backend)],
    )


def _system(spec: Spec, name: str, backend: str) -> SystemPlan:
    plan = first_plan(spec, name, backend)
    return SystemPlan(
        name=name,
        kind=plan.kind,
        drawing=draw(plan),
        nodes=node_rows(plan),
        fabrics=_fabric_rows(plan),
        notes=plan.notes,
        dilation=plan.dilation,
        byte_scale=plan.byte_scale,
    )


def _fabric_rows(plan: Plan) -> list[FabricRow]:
    used = {port.fabric for node in plan.nodes for port in node.ports}
    rows = []
    for one in plan.fabrics:
        lanes = "; ".join(f"VL{lane.number} {lane.words}" for lane in lane_words(one))
        if one.name in used:
            rows.append(FabricRow(one.name, fabric_words(one, plan), lanes))
    return rows


def least_seconds(spec: Spec) -> float | None:
    """Wall seconds that the arrivals of all trials take together; None where they follow from answers alone."""
    arrivals = spec.workload.arrivals
    rate = getattr(arrivals, "rate_per_s", None)
    if spec.workload.trajectories is not None or not rate or spec.workload.requests < 2:
        return None
    span: float = (spec.workload.requests - 1) / rate
    rounds = count_places(1, spec.sweep, spec.repeats)
    return span * rounds * sum(system.dilation or spec.dilation for system in spec.systems.values())


def same_plans(systems: Sequence[SystemPlan]) -> bool:
    """Whether all systems are built of the same nodes, so that one picture is enough."""
    return len({(tuple(one.nodes), tuple(one.fabrics)) for one in systems}) == 1
