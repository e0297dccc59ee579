"""A panel of a sweep as a chart: a line for each system, the range of its repeats, bounds that were expected.

Every point is a link to its run or trial, so it is reached by Tab and opened by Enter; the table beside it says the
same.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from django.utils.html import format_html
from django.utils.safestring import SafeString

from testbed.comparison.comparison import NO_CELL
from testbed.comparison.series import Axis, Line, Panel, Point, Sweep
from testbed.comparison.wording import figure, unit_of_metric
from webui.compare.marks import axis_label, joined, mark, roof, scaled, ticks

WIDTH, HEIGHT = 520.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 500.0, 16.0, 250.0
_LOGARITHMIC_FROM = 40.0
"""Values whose largest is so many times the smallest stand on a logarithmic axis."""

Place = Callable[[float], float]


def sweep_chart(sweep: Sweep, panel: Panel, addresses: Mapping[str, str], places: Mapping[str, int]) -> SafeString:
    """`addresses`: where each variant's point leads. `places`: which mark a system has, the same in all panels."""
    unit = unit_of_metric(sweep.metric)
    top = roof(max([0.0, *_values(sweep)]))
    shown, by = scaled(unit, top)
    x_at = x_axis(sweep.axis)

    def y(value: float) -> float:
        return _BOTTOM - max(0.0, value) / top * (_BOTTOM - _TOP)

    parts = [*_grid(top, by, shown, y), *_x_ticks(sweep.axis, x_at)]
    parts.append(format_html('<text class="d" x="{}" y="{}" text-anchor="middle">{}</text>',
                             f"{(_LEFT + _RIGHT) / 2:.0f}", f"{HEIGHT - 4:.0f}", axis_title(sweep.axis)))  # fmt: skip
    for limit in sweep.limits:
        for value, words, offset in ((limit.low, "at least", -5), (limit.high, "at most", 13)):
            if value is not None and value <= top:
                said = f"{limit.system}: {words} {figure(value, unit)}"
                parts.append(_limit(said, places.get(limit.system, 0), y(value), offset))
    parts.extend(_curve(line, places[line.system], x_at, y) for line in panel.lines)
    for line in panel.lines:
        parts.extend(
            _point(point, line.system, places[line.system], x_at, y, unit, addresses, sweep.axis)
            for point in line.points
            if point.cell.value is not None
        )
    return format_html(
        '<svg class="chart sweep" viewBox="0 0 {} {}" role="group" aria-label="{}">{}</svg>',
        f"{WIDTH:.0f}", f"{HEIGHT:.0f}", panel.words or "All systems", joined(parts),
    )  # fmt: skip


def _limit(words: str, place: int, y: float, offset: float) -> SafeString:
    return format_html(
        '<path class="limit s{}" d="M{} {}H{}"/><text class="d" x="{}" y="{}" text-anchor="end">{}</text>',
        place, f"{_LEFT:.0f}", f"{y:.1f}", f"{_RIGHT:.0f}", f"{_RIGHT:.0f}", f"{y + offset:.1f}", words,
    )  # fmt: skip


def _values(sweep: Sweep) -> list[float]:
    """Of all panels, so that they have one scale; bounds count where they are near."""
    cells = [point.cell for panel in sweep.panels for line in panel.lines for point in line.points]
    found = [value for cell in cells for value in (cell.value, *cell.repeats) if value is not None]
    most = max(found, default=0.0)
    ends = [end for limit in sweep.limits for end in (limit.low, limit.high) if end is not None]
    return found + [end for end in ends if end <= 1.5 * most]


def x_axis(axis: Axis) -> Callable[[Point], float]:
    """Where a point stands: by its value where values are numbers, else in the order of the file."""
    inner = _RIGHT - _LEFT - 24
    if not axis.numeric or len(axis.values) < 2:
        step = inner / max(1, len(axis.values) - 1)
        return lambda point: _LEFT + 12 + point.place * step
    low, high = float(min(axis.values)), float(max(axis.values))
    if is_logarithmic(axis):
        return lambda point: _LEFT + 12 + math.log(point.x / low) / math.log(high / low) * inner
    return lambda point: _LEFT + 12 + (point.x - low) / (high - low) * inner


def is_logarithmic(axis: Axis) -> bool:
    """Whether the axis is drawn by orders of magnitude."""
    if not axis.numeric or len(axis.values) < 2:
        return False
    low, high = float(min(axis.values)), float(max(axis.values))
    return low > 0 and high / low >= _LOGARITHMIC_FROM


def axis_title(axis: Axis) -> str:
    """What stands under the axis."""
    words = f"{axis.words} ({axis.unit})" if axis.unit else axis.words
    return f"{words}, logarithmic" if is_logarithmic(axis) else words


def _grid(top: float, by: float, shown: str, y: Place) -> list[SafeString]:
    found = ticks(0.0, top / by, 4)
    return [
        format_html(
            '<path class="grid" d="M{} {}H{}"/><text class="d" x="{}" y="{}" text-anchor="end">{}</text>',
            f"{_LEFT:.0f}", f"{y(tick * by):.1f}", f"{_RIGHT:.0f}", f"{_LEFT - 7:.0f}", f"{y(tick * by) + 4:.1f}",
            f"{axis_label(tick)} {shown}".rstrip() if tick == found[-1] else axis_label(tick),
        )
        for tick in found
    ]  # fmt: skip


def _x_ticks(axis: Axis, x_at: Callable[[Point], float]) -> list[SafeString]:
    parts, last = [], -1000.0
    ordered = sorted(enumerate(axis.values), key=lambda item: item[1] if axis.numeric else item[0])
    for place, value in ordered:
        at = x_at(_bare(value, place))
        words = axis_label(float(value)) if axis.numeric else str(value)
        parts.append(format_html('<path class="tick" d="M{} {}v5"/>', f"{at:.1f}", f"{_BOTTOM:.0f}"))
        if at - last < 8 + 6.5 * len(words):  # the label before it is too near
            continue
        last = at
        parts.append(format_html('<text class="d" x="{}" y="{}" text-anchor="middle">{}</text>', f"{at:.1f}",
                                 f"{_BOTTOM + 19:.0f}", words))  # fmt: skip
    return parts


def _bare(value: object, place: int) -> Point:
    return Point(value, place, NO_CELL, "", (), "")


def _curve(line: Line, place: int, x_at: Callable[[Point], float], y: Place) -> SafeString:
    """Broken where a point has no value: nothing is drawn across a gap."""
    told, pen = [], "M"
    for point in line.points:
        if point.cell.value is None:
            pen = "M"
            continue
        told.append(f"{pen}{x_at(point):.1f} {y(point.cell.value):.1f}")
        pen = "L"
    return format_html('<path class="curve s{}" d="{}"/>', place, "".join(told))


def _point(
    point: Point, system: str, place: int, x_at: Callable[[Point], float], y: Place, unit: str,
    addresses: Mapping[str, str], axis: Axis,
) -> SafeString:  # fmt: skip
    x, cell = x_at(point), point.cell
    assert cell.value is not None
    whisker = SafeString("")
    if len(cell.repeats) > 1:
        low, high = min(cell.repeats), max(cell.repeats)
        whisker = format_html('<path class="whisker s{0}" d="M{1} {2}h8m-4 0V{3}m-4 0h8"/>', place, f"{x - 4:.1f}",
                              f"{y(low):.1f}", f"{y(high):.1f}")  # fmt: skip
    words = f"{system} at {axis.words} {point.x}{f' {axis.unit}' if axis.unit else ''}: {figure(cell.value, unit)}"
    if len(cell.repeats) > 1:
        words += f", from {figure(min(cell.repeats), unit)} to {figure(max(cell.repeats), unit)}"
    if point.verdict in ("degraded", "invalid"):
        words += f" ({point.verdict})"
    return format_html(
        '<a href="{}" aria-label="{}" class="{}"><title>{}</title>{}<circle class="hit" cx="{}" cy="{}" r="11"/>{}</a>',
        addresses[point.variant], words, "doubt" if point.verdict in ("degraded", "invalid") else "", words, whisker,
        f"{x:.1f}", f"{y(cell.value):.1f}", mark(place, x, y(cell.value), 4.6),
    )  # fmt: skip
