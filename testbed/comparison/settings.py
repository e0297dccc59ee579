"""The parameters of one system of an experiment as a flat list, and where several such lists differ.

Defaults and overrides are in it: an experiment is read by `testbed.experiment.reading` before it comes here, with the
point of its sweep put in place. The system's own name is left out of the paths, so that two systems can be held
against each other. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.reading import at_point
from testbed.experiment.spec import Spec

_ABOUT = ("name", "title", "question", "systems", "sweep", "expect", "neighbours")
"""What says what the experiment is or which values it takes in turn, and what is told by system instead."""
EXPECT = "expect."
_UNITS = {
    "ms": "ms", "us": "us", "s": "s", "gbit_s": "Gbit/s", "gbyte_s": "GB/s", "bytes": "bytes", "mib": "MiB",
    "tokens": "tokens", "per_s": "a second", "percent": "%", "kib": "KiB",
}  # fmt: skip
_UNIT = re.compile(rf"_({'|'.join(sorted(_UNITS, key=len, reverse=True))})\Z")
Value = bool | int | float | str | None
"""What a setting can be; None where an experiment has no such setting."""


class Difference(msgspec.Struct, frozen=True):
    """One setting, and what each of those compared has for it."""

    path: str
    """As in the file, with `system` in place of the system's name."""
    words: str
    """The path for people."""
    unit: str
    values: tuple[Value, ...]

    @property
    def differs(self) -> bool:
        """Whether they are not all the same; 1, 1.0 and true are different things."""
        first = self.values[0]
        return any(value != first or type(value) is not type(first) for value in self.values[1:])

    @property
    def shared(self) -> bool:
        """Whether all of them have it: systems of two kinds have settings of their own."""
        return all(value is not None for value in self.values)


def settings_of(spec: Spec, system: str, point: Mapping[str, Any]) -> dict[str, Value]:
    """Every setting that `system` of `spec` runs with at `point`. Raises KeyError for a system that it has not."""
    placed = at_point(spec, point.items()) if point else spec
    told: dict[str, Any] = msgspec.to_builtins(placed)
    own = placed.systems[system]
    about: dict[str, Any] = msgspec.to_builtins(own)
    parameters = about.pop("parameters")
    beside = {name: told["neighbours"][name] for name in about.pop("neighbours") if name in told["neighbours"]}
    kept = {key: value for key, value in told.items() if key not in _ABOUT}
    tables = {"system": {**about, **parameters}, "neighbours": beside, **kept}
    return dict(_flat(tables, ""))


def expected_of(spec: Spec, system: str) -> dict[str, Value]:
    """The bounds on `system` and on the run, in words of the file; ratios of systems keep all names."""
    found: dict[str, Value] = {}
    for path, bound in spec.expect.items():
        ours = path.removeprefix(f"systems.{system}.")
        if ours == path and path.startswith("systems."):
            continue  # of another system
        said = msgspec.to_builtins(bound)
        words = ", ".join(f"{name.replace('_', ' ')} {_written(value)}" for name, value in said.items())
        found[f"{EXPECT}{ours}"] = words
    return found


def differences(sides: Sequence[Mapping[str, Value]]) -> list[Difference]:
    """Every setting that any of `sides` has, in the order of the first that has it."""
    paths = dict.fromkeys(path for side in sides for path in side)
    return [Difference(path, words_of(path), unit_of(path), tuple(side.get(path) for side in sides)) for path in paths]


def unit_of(path: str) -> str:
    """The unit that a setting's name tells, or nothing."""
    last = path.rpartition(".")[2]
    if path.startswith("system.") and last in nanosecond_fields():
        return "ns"
    found = _UNIT.search(last)
    return _UNITS[found[1]] if found else ""


@cache
def nanosecond_fields() -> frozenset[str]:
    """Parameters of systems that are times in whole nanoseconds: their classes annotate them so (testbed.units)."""
    kinds = {above for row in SYSTEMS.values() for above in row.parameters.__mro__}
    told = {name: str(kind) for above in kinds for name, kind in getattr(above, "__annotations__", {}).items()}
    return frozenset(name for name, kind in told.items() if "Nanoseconds" in kind)


def words_of(path: str) -> str:
    """A path for people: without the system's prefix and the unit that stands beside the value."""
    if path.startswith(EXPECT):
        return f"Expected of {path.removeprefix(EXPECT)}"
    parts = [part for part in path.split(".") if part != "system"] or [path]
    parts[-1] = _UNIT.sub("", parts[-1]) or parts[-1]
    said = ", ".join(part.replace("_", " ").replace("-", " ") for part in parts)
    return said[:1].upper() + said[1:]


def point_words(point: Mapping[str, Any]) -> str:
    """A point of a sweep for people: the last word of each path, its value and unit."""
    said = []
    for path, value in point.items():
        words = words_of(path.rpartition(".")[2])
        said.append(f"{words[:1].lower()}{words[1:]} {_written(value)} {unit_of(path)}".rstrip())
    return ", ".join(said)


def _flat(told: Any, path: str) -> Iterator[tuple[str, Value]]:
    if isinstance(told, Mapping):
        for key, value in told.items():
            yield from _flat(value, f"{path}.{key}" if path else str(key))
    elif isinstance(told, list | tuple):
        # A short list of plain values is one setting; rows of tables are settings each.
        if any(isinstance(item, Mapping) for item in told):
            for place, item in enumerate(told):
                yield from _flat(item, f"{path}[{place}]")
        elif told:
            yield path, ", ".join(_written(item) for item in told)
    elif told is None or isinstance(told, bool | int | float | str):
        if told is not None:
            yield path, told
    else:
        yield path, str(told)


def _written(value: Any) -> str:
    if isinstance(value, list | tuple):
        return " and ".join(map(_written, value))
    return f"{value:.12g}" if isinstance(value, float) else str(value)
