"""The plan that a launch would begin with, as the planner makes it: for the launch page and for the API alike.

It is what a run would get but for the wire's profile, which the bench measures. Makes nothing.
"""

from __future__ import annotations

from typing import Literal

from testbed.experiment.plan import Plan
from testbed.experiment.planning import compile_plan
from testbed.experiment.reading import at_point
from testbed.experiment.spec import Spec
from testbed.experiment.sweep import places
from webui.runs.models import Backend

CLOCKS: dict[str, Literal["simulated", "wall"]] = {Backend.SIM: "simulated", Backend.MININET: "wall"}


class CannotRunThere(Exception):
    """An experiment that is right in itself, but not on this backend; the sentence says why."""


def first_plan(spec: Spec, system: str, backend: str) -> Plan:
    """Of the system's first trial. Raises CannotRunThere."""
    place = next(one for one in places(list(spec.systems), spec.sweep, spec.repeats) if one.system == system)
    at_first = at_point(spec, place.point)
    try:
        return compile_plan(at_first, place, run="preview", label="000000", clock=CLOCKS[backend])
    except ValueError as fault:
        raise CannotRunThere(str(fault)) from None
