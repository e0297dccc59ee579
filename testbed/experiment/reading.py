"""Reads an experiment from TOML, strictly, and says everything that is wrong with it: file, path, value, allowed.

Overrides (`--set path=value`) are laid over the file before it is checked, so they meet the same rules. Each point of
a sweep is checked as if it had been written into the file. Reading the file itself, and the recorded sessions that it
names, is all that is done outside.
"""

from __future__ import annotations

import copy
import os
import re
import stat
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.complaints import Complaint, SpecError, complaints, joined, one_of, shown
from testbed.experiment.metric_paths import Metric, UnknownMetric, parse_metric_path
from testbed.experiment.plan_refusals import refusals
from testbed.experiment.spec import MOST_TRIALS, Bound, Spec, SystemSpec
from testbed.experiment.sweep import Point, count_places, points
from testbed.experiment.trace_files import with_sessions
from testbed.metrics.fidelity import VERDICTS

LARGEST_FILE = 1 << 20
"""Bytes; an experiment is written by hand."""

_PLACE_IN_TOML = re.compile(r"^(.*?) \((?:at line (\d+), column (\d+)|at end of document)\)$", re.DOTALL)
_BOUNDS = tuple(Bound.__struct_fields__)
_ABOUT = tuple(name for name in SystemSpec.__struct_fields__ if name not in ("kind", "parameters"))
"""Keys of a [systems.NAME] table that are no parameters of the system."""
_SWEPT = ("dilation", "byte_scale", "workload", "network", "systems", "neighbours")
"""What a sweep may vary; the rest says what the experiment is."""


def read_spec(path: Path | str, overrides: Sequence[str] = ()) -> Spec:
    """The experiment in the file `path`, with `overrides` ("key.path=value") laid over it. Raises `SpecError`."""
    return spec_from_bytes(read_bytes(path), str(path), overrides, folder=Path(path).parent)


def read_bytes(path: Path | str) -> bytes:
    """At most `LARGEST_FILE` + 1 bytes of a regular file; a pipe or a device is none. Raises `SpecError`."""
    try:
        # Without waiting: opening a pipe that nobody writes to would.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SpecError(str(path), [Complaint("the file", "no regular file", "a TOML file")])
            return file.read(LARGEST_FILE + 1)
    except OSError as fault:
        raise SpecError(str(path), [Complaint("the file", fault.strerror or str(fault), "a TOML file")]) from fault


def spec_from_bytes(data: bytes, source: str, overrides: Sequence[str] = (), *, folder: Path | None = None) -> Spec:
    """The experiment in the TOML text `data`; `source` stands for its file in complaints, `folder` is where the files
    that it names lie, besides those of the project. Raises `SpecError`.
    """
    told, changed = tables_from_bytes(data, source, overrides)
    spec = spec_from_tables(told, source, changed, folder=folder)
    # Asked of what an author writes alone: the tables of a run from before this was asked are still read.
    if faults := _unused_neighbours(spec):
        raise SpecError(source, faults, [_source_of(fault, source, changed) for fault in faults])
    return spec


def tables_from_bytes(data: bytes, source: str, overrides: Sequence[str] = ()) -> tuple[dict[str, Any], list[str]]:
    """The tables of a TOML text with `overrides` laid over them, checked for nothing, and the paths that those set.
    Raises `SpecError` for what is no TOML.
    """
    told = _parse(data, source)
    changes = [_parse_override(text) for text in overrides]
    for keys, value in changes:
        _set_at(told, keys, value)
    return told, [_path_of(keys) for keys, _ in changes]


def spec_from_tables(
    told: Mapping[str, Any], source: str, overridden: Sequence[str] = (), *, folder: Path | None = None
) -> Spec:
    """The experiment in plain tables, as TOML or JSON gives them. Raises `SpecError`."""
    spec, faults = _read(copy.deepcopy(dict(told)), folder)
    if spec is not None:
        faults = faults or _check_sweep(spec)
    if spec is None or faults:
        faults = sorted(set(faults), key=lambda fault: fault.path)
        raise SpecError(source, faults, [_source_of(fault, source, overridden) for fault in faults])
    return spec


def at_point(spec: Spec, point: Iterable[tuple[str, Any]]) -> Spec:
    """The experiment with the values of one sweep point in it. `spec` is one that reading has given.

    Its sweep has been checked then, at every point; once more for each trial would make a large sweep take an hour.
    """
    tables = tables_of(spec)
    for path, value in point:
        _set_at(tables, split_path(path), value)
    placed, faults = _read(tables)
    if placed is None or faults:
        raise SpecError(spec.name, sorted(set(faults), key=lambda fault: fault.path))
    return placed


def tables_of(spec: Spec) -> dict[str, Any]:
    """The plain tables that `spec_from_tables` reads `spec` from; what `spec.json` holds. Nothing in it is None."""
    tables: dict[str, Any] = _without_none(msgspec.to_builtins(spec))
    tables["systems"] = {name: _system_table(system) for name, system in spec.systems.items()}
    return tables


def _system_table(system: SystemSpec) -> dict[str, Any]:
    """A [systems.NAME] table as a file has it: what is about the system only where it says something."""
    default = SystemSpec(system.kind)
    about = {name: getattr(system, name) for name in _ABOUT if getattr(system, name) != getattr(default, name)}
    return {"kind": system.kind, **about, **_without_none(system.parameters)}


def split_path(path: str) -> list[str]:
    """The keys of a dotted path, quoted ones as in TOML. Raises ValueError if it is none."""
    try:
        told: Any = tomllib.loads(f"{path} = 0")
    except tomllib.TOMLDecodeError as fault:
        raise ValueError(f"{path!r} is no path of keys") from fault
    keys = []
    while isinstance(told, dict):
        if len(told) != 1:
            raise ValueError(f"{path!r} is no path of keys")
        ((key, told),) = told.items()
        keys.append(key)
    return keys


# --- text to tables ------------------------------------------------------------------------------------------------


def _parse(data: bytes, source: str) -> dict[str, Any]:
    if len(data) > LARGEST_FILE:
        raise SpecError(source, [Complaint("the file", "too long", f"at most {LARGEST_FILE} bytes")])
    try:
        text = data.decode()
    except UnicodeDecodeError as fault:
        line = data.count(b"\n", 0, fault.start) + 1
        bad = Complaint(f"line {line}", f"byte 0x{data[fault.start]:02x}", "TOML is UTF-8 text")
        raise SpecError(source, [bad]) from fault
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as fault:
        raise SpecError(source, [_syntax_fault(text, str(fault))]) from fault
    except RecursionError as fault:
        raise SpecError(source, [Complaint("the file", "nested too deep", "a TOML file")]) from fault


def _syntax_fault(text: str, words: str) -> Complaint:
    place = _PLACE_IN_TOML.match(words)
    lines = text.splitlines() or [""]
    if place is None:
        return Complaint("the file", "no TOML", words)
    message, line, column = place.groups()
    number = min(int(line), len(lines)) if line else len(lines)
    where = f"line {number}" + (f" column {column}" if column else "")
    return Complaint(where, shown(lines[number - 1].strip()), f"TOML: {message[0].lower()}{message[1:]}")


def _parse_override(text: str) -> tuple[list[str], Any]:
    """The keys and the value of "key.path=value". A value that is no TOML is taken as text."""
    for equals in (place for place, letter in enumerate(text) if letter == "="):
        try:
            keys = split_path(text[:equals])
        except ValueError:
            # This sign of equality stands inside a quoted key.
            continue
        value = text[equals + 1 :].strip()
        try:
            told = tomllib.loads(f"value = {value}")
        except (tomllib.TOMLDecodeError, RecursionError):
            return keys, value
        return keys, told["value"] if len(told) == 1 else value
    raise SpecError("--set", [Complaint("the setting", shown(text), "key.path=value, as workload.requests=8")])


def _path_of(keys: Sequence[str]) -> str:
    path = ""
    for key in keys:
        path = joined(path, key)
    return path


def _set_at(tables: dict[str, Any], keys: Sequence[str], value: Any) -> None:
    """Puts `value` at the path `keys`, in place of what is there; what is no table on the way gives way to one."""
    for key in keys[:-1]:
        inner = tables.get(key)
        if not isinstance(inner, dict):
            inner = tables[key] = {}
        tables = inner
    tables[keys[-1]] = copy.deepcopy(value)


def _without_none(told: Any) -> Any:
    if isinstance(told, dict):
        return {key: _without_none(value) for key, value in told.items() if value is not None}
    return [_without_none(value) for value in told] if isinstance(told, list | tuple) else told


# --- tables to a spec ----------------------------------------------------------------------------------------------


def _read(told: dict[str, Any], folder: Path | None = None) -> tuple[Spec | None, list[Complaint]]:
    """The spec, or what is wrong with it. `told` is changed."""
    faults: list[Complaint] = []
    if isinstance(told.get("systems"), dict):
        for name, table in told["systems"].items():
            told["systems"][name], found = _read_system(table, joined("systems", name))
            faults += found
    if isinstance(told.get("expect"), dict):
        told["expect"] = _flat(told["expect"], "")
        faults += _check_metrics(told)
    faults += complaints(Spec, told)
    if faults:
        return None, faults
    spec, faults = with_sessions(msgspec.convert(told, Spec), folder)
    return spec, faults or refusals(spec)


def _read_system(told: Any, path: str) -> tuple[Any, list[Complaint]]:
    """A [systems.NAME] table as `SystemSpec` has it, its parameters complete."""
    if not isinstance(told, dict):
        # The spec's own check says that a table belongs here.
        return told, []
    placeholder = {"kind": "unknown", "parameters": {}}
    kind = told.get("kind")
    if kind is None:
        return placeholder, [Complaint(joined(path, "kind"), "missing", one_of(SYSTEMS, ""))]
    row = SYSTEMS.get(kind) if isinstance(kind, str) else None
    if row is None:
        return placeholder, [Complaint(joined(path, "kind"), shown(kind), one_of(SYSTEMS, str(kind)))]
    about = {key: value for key, value in told.items() if key in _ABOUT}
    rest = {key: value for key, value in told.items() if key != "kind" and key not in _ABOUT}
    faults = complaints(row.parameters, rest, path)
    if faults:
        return placeholder, faults
    parameters = msgspec.to_builtins(msgspec.convert(rest, row.parameters))
    return {"kind": kind, "parameters": parameters, **about}, []


def _flat(told: dict[str, Any], path: str) -> dict[str, Any]:
    """[expect] with dotted keys put together again: down to a table that has a bound in it, or no table."""
    flat: dict[str, Any] = {}
    for key, value in told.items():
        where = f"{path}.{key}" if path else key
        inner = isinstance(value, dict) and value and not set(value) & set(_BOUNDS)
        if inner and any(isinstance(entry, dict) for entry in value.values()):
            flat.update(_flat(value, where))
        else:
            flat[where] = value
    return flat


def _check_metrics(told: Mapping[str, Any]) -> list[Complaint]:
    systems = told.get("systems")
    names = list(systems) if isinstance(systems, dict) else []
    faults = []
    for text, bound in told["expect"].items():
        where = joined("expect", text)
        try:
            path = parse_metric_path(text, names)
        except UnknownMetric as fault:
            faults.append(Complaint(where, shown(bound), f"unknown metric; {fault.allowed}"))
            continue
        word = isinstance(path, Metric) and path.is_word
        if word and isinstance(bound, dict) and bound.get("equals") not in VERDICTS:
            faults.append(Complaint(where, shown(bound), f"equals one of {', '.join(VERDICTS)}"))
    return faults


def _check_sweep(spec: Spec) -> list[Complaint]:
    """What is wrong with the sweep: its paths, its size, then each of its points."""
    faults: list[Complaint] = []
    for path, values in spec.sweep.items():
        where = joined("sweep", path)
        try:
            keys = split_path(path)
        except ValueError as fault:
            faults.append(Complaint(where, shown(values), str(fault)))
            continue
        if keys[0] not in _SWEPT or keys[-1] == "kind":
            faults.append(Complaint(where, shown(values), f"a path under {', '.join(_SWEPT)} that is no kind"))
    number = count_places(len(spec.systems), spec.sweep, spec.repeats)
    if number > MOST_TRIALS:
        parts = f"{len(spec.systems)} systems x sweep x {spec.repeats} repeats"
        faults.append(Complaint("sweep", f"{number} trials", f"{parts} make at most {MOST_TRIALS} trials"))
    return faults or [fault for point in points(spec.sweep) for fault in _check_point(spec, point)]


def _unused_neighbours(spec: Spec) -> list[Complaint]:
    """Neighbours that are beside no system, at no point of the sweep: they would not run, and nothing would say so."""
    used = {name for system in spec.systems.values() for name in system.neighbours}
    for path, values in spec.sweep.items():
        head, *_, last = split_path(path)
        if (head, last) == ("systems", "neighbours"):
            used.update(name for value in values for name in value)
    there = f"a name in systems.NAME.neighbours, NAME one of {', '.join(spec.systems)}"
    return [Complaint(joined("neighbours", name), "beside no system", there)
            for name in spec.neighbours if name not in used]  # fmt: skip


def _check_point(spec: Spec, point: Point) -> list[Complaint]:
    """What is wrong at one point, told of the value that the fault is about, or of all values together."""
    tables = tables_of(spec)
    for path, value in point:
        _set_at(tables, split_path(path), value)
    found = []
    for fault in _read(tables)[1]:
        where, value = "sweep", shown(dict(point))
        for path, swept in point:
            if len(point) == 1 or fault.path == path or fault.path.startswith((f"{path}.", f"{path}[")):
                where, value = f"{joined('sweep', path)}[{_index(spec.sweep[path], swept)}]", shown(swept)
        found.append(Complaint(where, value, f"{fault.path}: {fault.allowed}"))
    return found


def _index(values: Sequence[Any], value: Any) -> int:
    """The place of this very value; 1, 1.0 and true are equal in Python and different in a file."""
    return next(number for number, candidate in enumerate(values) if candidate is value)


def _source_of(fault: Complaint, source: str, overridden: Sequence[str]) -> str:
    def about(path: str) -> bool:
        inside = fault.path.startswith((f"{path}.", f"{path}["))
        return inside or fault.path == path or path.startswith(f"{fault.path}.")

    return "--set" if any(path and about(path) for path in overridden) else source
