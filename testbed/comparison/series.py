"""A sweep as lines: one figure against one swept setting, a line for each system, a panel for each value of the others.

Pure; finds what `testbed.comparison.sides` has read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from testbed.comparison.readings import Cell
from testbed.comparison.rows import HEADLINES
from testbed.comparison.settings import point_words, unit_of, words_of
from testbed.comparison.sides import RunRead, Side, Variant
from testbed.experiment.metric_paths import Metric, UnknownMetric, parse_metric_path
from testbed.experiment.spec import Bound


class Axis(msgspec.Struct, frozen=True):
    """One swept setting."""

    path: str
    words: str
    unit: str
    values: tuple[Any, ...]
    """In the order of the file."""
    numeric: bool


class Point(msgspec.Struct, frozen=True):
    """One figure at one place of the axis."""

    x: Any
    place: int
    """Of `x` among the axis' values."""
    cell: Cell
    variant: str
    trials: tuple[str, ...]
    verdict: str
    """Fidelity of its trials: worst."""


class Line(msgspec.Struct, frozen=True):
    """One system; points rise along the axis."""

    system: str
    points: tuple[Point, ...]


class Limit(msgspec.Struct, frozen=True):
    """What the experiment expects of the figure."""

    system: str
    words: str
    low: float | None
    high: float | None
    each_repeat: bool


class Panel(msgspec.Struct, frozen=True):
    """All systems at one choice of the settings that are not on the axis."""

    words: str
    """That choice; empty where there is but one."""
    lines: tuple[Line, ...]


class Sweep(msgspec.Struct, frozen=True):
    """A whole chart."""

    run: str
    axes: tuple[Axis, ...]
    axis: Axis
    metric: str
    metrics: tuple[str, ...]
    """What there is to choose from: headlines first."""
    panels: tuple[Panel, ...]
    limits: tuple[Limit, ...]


class NoSweep(ValueError):
    """A run without a sweep, or a setting or figure that it has not."""


def axes_of(read: RunRead) -> tuple[Axis, ...]:
    """What was swept, in the order of the file."""
    values: dict[str, list[Any]] = {}
    for variant in read.variants:
        for path, value in variant.point.items():
            known = values.setdefault(path, [])
            if not any(_same(value, other) for other in known):
                known.append(value)
    return tuple(
        Axis(path, words_of(path), unit_of(path), tuple(found), all(_is_number(value) for value in found))
        for path, found in values.items()
    )


def sweep_of(read: RunRead, x: str = "", metric: str = "") -> Sweep:
    """`metric` against `x`; without them the first swept number, and the first headline that has a value.

    Raises NoSweep.
    """
    axes = axes_of(read)
    if not axes:
        raise NoSweep("this run has no sweep")
    several = [axis for axis in axes if len(axis.values) > 1] or list(axes)
    chosen = next((axis for axis in axes if axis.path == x), None)
    if x and chosen is None:
        raise NoSweep(f"x: {x!r}: {', '.join(axis.path for axis in axes)}")
    axis = chosen or next((axis for axis in several if axis.numeric), several[0])
    metrics = metrics_of(read)
    if metric and metric not in metrics:
        raise NoSweep(f"y: {metric!r}: a figure of this run, as {', '.join(metrics[:3]) or 'none yet'}")
    drawn = metric or (metrics[0] if metrics else HEADLINES[0])
    return Sweep(read.run, axes, axis, drawn, metrics, _panels(read, axis, drawn), _limits(read, drawn))


def metrics_of(read: RunRead) -> tuple[str, ...]:
    """Every figure that some variant has, headlines first."""
    found = dict.fromkeys(path for figures, _ in read.pooled.values() for path in figures)
    return (*(path for path in HEADLINES if path in found), *(path for path in found if path not in HEADLINES))


def _panels(read: RunRead, axis: Axis, metric: str) -> tuple[Panel, ...]:
    choices: dict[str, dict[str, list[Variant]]] = {}
    for variant in read.variants:
        others = {path: value for path, value in variant.point.items() if path != axis.path}
        words = point_words(others)
        choices.setdefault(words, {}).setdefault(variant.system, []).append(variant)
    return tuple(
        Panel(words, tuple(Line(name, _points(read, axis, metric, found)) for name, found in systems.items()))
        for words, systems in choices.items()
    )


def _points(read: RunRead, axis: Axis, metric: str, variants: Sequence[Variant]) -> tuple[Point, ...]:
    points = []
    for variant in variants:
        side, x = Side(read, variant), variant.point[axis.path]
        place = next(number for number, value in enumerate(axis.values) if _same(value, x))
        verdict = side.verdict()[0]
        points.append(Point(x, place, side.figure(metric), variant.name, variant.trials, verdict))
    return tuple(sorted(points, key=lambda point: point.x if axis.numeric else point.place))


def _limits(read: RunRead, metric: str) -> tuple[Limit, ...]:
    expect: Mapping[str, Bound] = read.spec.expect if read.spec is not None else {}
    systems = list(dict.fromkeys(variant.system for variant in read.variants))
    found = []
    for text, bound in expect.items():
        try:
            path = parse_metric_path(text, systems)
        except UnknownMetric:  # of another version
            continue
        if not isinstance(path, Metric) or path.name != metric or isinstance(bound.equals, str):
            continue
        low, high = bound.between or (bound.at_least, bound.at_most)
        if bound.equals is not None:
            low = high = float(bound.equals)
        found.append(Limit(path.system, text, low, high, bound.each_repeat))
    return tuple(found)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _same(one: Any, other: Any) -> bool:
    """1 and 1.0 are one place of an axis; 1 and true are not."""
    return bool(one == other) and isinstance(one, bool) == isinstance(other, bool)
