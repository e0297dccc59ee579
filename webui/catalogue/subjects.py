"""What an experiment is about, told by what its file sets: one table, so that a new file finds its subjects by itself.

Knows no system by name. An experiment may have several subjects, or none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testbed.experiment.spec import NetworkSpec, Spec


@dataclass(frozen=True)
class Subject:
    """One of them."""

    slug: str
    """In addresses."""
    title: str
    is_of: Callable[[Spec], bool]


SUBJECTS = (
    Subject("systems", "Different systems side by side", lambda spec: len({s.kind for s in spec.systems.values()}) > 1),
    Subject("settings", "One system, set up in several ways", lambda spec: _has_variants(spec)),
    Subject("range", "Over a range of values", lambda spec: bool(spec.sweep)),
    Subject("agents", "Agents that take turns", lambda spec: spec.workload.trajectories is not None),
    Subject("neighbours", "Neighbours on the host", lambda spec: any(s.neighbours for s in spec.systems.values())),
    Subject("failures", "Parts that fail", lambda spec: bool(spec.faults)),
    Subject("networks", "Links, lanes and captures", lambda spec: spec.network != NetworkSpec() or bool(spec.captures)),
)
"""In the order in which they are offered."""


def subjects_of(spec: Spec) -> tuple[str, ...]:
    """Slugs, in the order of the table."""
    return tuple(one.slug for one in SUBJECTS if one.is_of(spec))


def _has_variants(spec: Spec) -> bool:
    kinds = [system.kind for system in spec.systems.values()]
    return len(kinds) > len(set(kinds))
