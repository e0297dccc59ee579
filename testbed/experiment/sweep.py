"""From one experiment to its trials: systems x sweep points x repeats, each with its place by name and its seeds.

A trial's seed follows from the experiment's seed and the trial's place, so a row added changes no other (known fault
17 and architecture §5). The workload's seed follows from the repeat alone: all systems, at all points of the sweep,
are asked the same. This file knows nothing of networks or folders.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from testbed.workload.schedule import Workload, requests_in
from testbed.workload.streams import derived_seed

Point = tuple[tuple[str, Any], ...]
"""One value for each path of the sweep, in the order of the file; empty without a sweep."""


class Place(NamedTuple):
    """Where a trial stands in its experiment."""

    system: str
    point: Point
    repeat: int

    def seed(self, experiment: int) -> int:
        """The trial's own seed: keys, packet numbers, whatever its machines leave to chance."""
        where = [part for path, value in self.point for part in (path, _text(value))]
        return derived_seed(experiment, "trial", self.system, *where, "repeat", self.repeat)

    def workload_seed(self, experiment: int) -> int:
        """The seed of what the clients ask; the same for every system and point."""
        return derived_seed(experiment, "workload", self.repeat)


def points(sweep: Mapping[str, list[Any]]) -> list[Point]:
    """All points of the sweep; the last path of the file varies fastest."""
    return [tuple(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values())]


def count_places(systems: int, sweep: Mapping[str, list[Any]], repeats: int) -> int:
    """How many trials there would be, without making them."""
    number = systems * repeats
    for values in sweep.values():
        number *= len(values)
    return number


def count_requests(workload: Workload, experiment: int) -> int:
    """How many requests the first trial sends, turns of agents included; 0 is open-ended."""
    return requests_in(workload, Place("", (), 0).workload_seed(experiment))


def places(systems: list[str], sweep: Mapping[str, list[Any]], repeats: int) -> list[Place]:
    """Every trial's place: points outermost, then repeats, then systems, so that those compared run side by side."""
    return [
        Place(system, point, repeat) for point in points(sweep) for repeat in range(repeats) for system in systems
    ]


def labels(all_places: list[Place]) -> list[str]:
    """A folder name for each place, in the same order: what tells it from the others, and nothing else."""
    repeated = any(place.repeat for place in all_places)
    named: list[str] = []
    for place in all_places:
        parts = [place.system, *(f"{path.rpartition('.')[2]}={_slug(value)}" for path, value in place.point)]
        if repeated:
            parts.append(f"r{place.repeat}")
        label = "-".join(parts)
        # Values can look alike once they are short enough for a folder's name.
        named.append(label if label not in named else f"{label}-{len(named)}")
    return named


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _slug(value: Any) -> str:
    text = value if isinstance(value, str) else _text(value)
    return re.sub(r"[^A-Za-z0-9._]+", "_", text)[:24].strip("_.") or "_"
