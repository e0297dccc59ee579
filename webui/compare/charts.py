"""The charts of a comparison: every repeat as a dot, whole distributions as curves, ours beside the paper's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from testbed.comparison.paper_rows import PaperLine
from testbed.comparison.readings import Cell
from testbed.comparison.samples import Samples
from testbed.comparison.wording import figure, percent
from webui.compare.marks import axis_label, joined, mark, roof, scaled, ticks

WIDTH = 340.0
_ROW = 12.0
_Scale = Callable[[float], float]
"""From a value to its place."""


def dots(cells: Sequence[Cell], letters: Sequence[str], unit: str) -> SafeString:
    """Every repeat on an axis from 0, a line of its own for each side; the bar is the range."""
    values = [value for cell in cells for value in (cell.repeats or ((cell.value,) if cell.value is not None else ()))]
    if not values:
        return SafeString("")
    low, high = min(0.0, *values), max(0.0, *values)
    # All of them 0 is an axis too.
    span = (high - low) or 1.0
    height = len(cells) * _ROW + 4

    def x(value: float) -> float:
        return 6 + (value - low) / span * (WIDTH - 14)

    parts = [format_html('<path class="axis" d="M{} 0V{}"/>', f"{x(0):.1f}", f"{height:.0f}")]
    for place, cell in enumerate(cells):
        y = place * _ROW + 8
        parts.append(format_html('<path class="axis" d="M6 {0}H{1}"/>', f"{y:.0f}", f"{WIDTH - 8:.0f}"))
        found = cell.repeats or ((cell.value,) if cell.value is not None else ())
        if len(found) > 1:
            ends = f"{x(min(found)):.1f}", f"{y:.0f}", f"{x(max(found)):.1f}"
            parts.append(format_html('<path class="range s{}" d="M{} {}H{}"/>', place, *ends))
        parts.extend(mark(place, x(value), y, 3.6) for value in found)
    words = "; ".join(
        f"{letter}: {', '.join(figure(value, unit) for value in cell.repeats) or figure(cell.value, unit)}"
        for letter, cell in zip(letters, cells, strict=True)
    )
    return format_html(
        '<svg class="chart dots" viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>',
        f"{WIDTH:.0f}", f"{height:.0f}", words, joined(parts),
    )  # fmt: skip


_LEFT, _RIGHT, _TOP, _BOTTOM, _CURVE_WIDTH = 34.0, 388.0, 10.0, 154.0, 400.0
_ROOM = 90.0  # what a label needs on its left


def curves(samples: Sequence[Samples | None], letters: Sequence[str], title: str) -> SafeString:
    """Share of values at or below, against the value: exact at each kept value, steps in between."""
    known = [(place, found) for place, found in enumerate(samples) if found is not None and found.n]
    if not known:
        return SafeString("")
    low, high = min(found.values[0] for _, found in known), max(found.values[-1] for _, found in known)
    # Times that begin near 0 are shown from 0.
    low = 0.0 if low < 0.4 * high else low

    def x(value: float) -> float:
        return _LEFT + (value - low) / ((high - low) or 1.0) * (_RIGHT - _LEFT)

    def y(share: float) -> float:
        return _BOTTOM - share * (_BOTTOM - _TOP)

    parts = [*_share_axis(y), *_value_axis(x, low, high)]
    labels = []
    for place, found in known:
        parts.append(format_html('<path class="curve s{}" d="{}"/>', place, _path(found, x, y)))
        middle = median(found.values)
        labels.append((place, x(middle), letters[place], figure(middle, "ms")))
    parts.extend(_direct_labels(labels, y(0.5)))
    words = "; ".join(
        f"{letters[place]}: {found.n:,} values, median {figure(median(found.values), 'ms')}" for place, found in known
    )
    return format_html(
        '<svg class="chart" viewBox="0 0 {} {}" role="img" aria-label="{}. {}">{}</svg>',
        f"{_CURVE_WIDTH:.0f}", f"{_BOTTOM + 26:.0f}", title, words, joined(parts),
    )  # fmt: skip


def _share_axis(y: _Scale) -> list[SafeString]:
    return [
        format_html(
            '<path class="grid" d="M{} {}H{}"/><text class="d" x="{}" y="{}" text-anchor="end">{}</text>',
            f"{_LEFT:.0f}", f"{y(share):.1f}", f"{_RIGHT:.0f}", f"{_LEFT - 6:.0f}", f"{y(share) + 4:.1f}", words,
        )
        for share, words in ((0, "0"), (0.5, "50"), (0.9, "90"), (1, "100 %"))
    ]  # fmt: skip


def _value_axis(x: _Scale, low: float, high: float) -> list[SafeString]:
    unit, by = scaled("ms", high)
    at = ticks(low / by, high / by)
    return [
        format_html(
            '<text class="d" x="{}" y="{}" text-anchor="middle">{}</text>',
            f"{min(max(x(tick * by), _LEFT), _RIGHT - 12):.1f}", f"{_BOTTOM + 18:.0f}",
            f"{axis_label(tick)} {unit}" if place == len(at) - 1 else axis_label(tick),
        )
        for place, tick in enumerate(at)
    ]  # fmt: skip


def _path(found: Samples, x: _Scale, y: _Scale) -> str:
    told, last = [f"M{x(found.values[0]):.1f} {y(0):.1f}"], ""
    for value, share in found.steps():
        step = f"H{x(value):.1f}V{y(share):.1f}"
        if step != last:
            told.append(step)
        last = step
    return "".join(told)


def _direct_labels(labels: list[tuple[int, float, str, str]], y: float) -> list[SafeString]:
    """Medians beside their curves, the leftmost to the left of its own, so that two never write over each other."""
    ordered = sorted(labels, key=lambda label: label[1])
    lifted = 1 if ordered and ordered[0][1] > _ROOM else 0
    parts: list[SafeString] = []
    for number, (place, x, letter, words) in enumerate(ordered):
        # A curve comes from below on the left and goes up on the right, so that is where it is out of the way.
        leftmost = number < lifted
        down = -6 if leftmost else 16 + (number - lifted) * 15
        told = (place, f"{x - 6 if leftmost else x + 6:.1f}", f"{y + down:.1f}")
        anchor = "end" if leftmost else "start"
        parts.append(
            format_html('<text class="v t{}" x="{}" y="{}" text-anchor="{}">{} {}</text>', *told, anchor, letter, words)
        )
    return parts


def beside(lines: Sequence[PaperLine], places: Sequence[int], unit: str) -> SafeString:
    """The paper's value as a diamond, ours as the side's mark with the range of its repeats, on an axis from 0."""
    values = [value for line in lines for value in (line.paper, line.ours, line.high) if value is not None]
    top = roof(max([0.0, *values]))
    shown, by = scaled(unit, top)
    left, right, height = 34.0, 330.0, len(lines) * 30 + 26

    def x(value: float) -> float:
        return left + value / top * (right - left)

    parts = [
        format_html(
            '<path class="grid" d="M{0} 2V{1}"/><text class="d" x="{0}" y="{2}" text-anchor="middle">{3}</text>',
            f"{x(tick * by):.1f}", f"{height - 20:.0f}", f"{height - 6:.0f}",
            f"{axis_label(tick)} {shown}" if number else axis_label(tick),
        )
        for number, tick in enumerate(ticks(0, top / by, 3))
    ]  # fmt: skip
    for number, (line, place) in enumerate(zip(lines, places, strict=True)):
        y = number * 30 + 18
        parts.append(format_html('<text class="v t{}" x="2" y="{}">{}</text>', place, y + 4, line.letter))
        if line.ours is not None:
            parts.append(format_html('<path class="range s{}" d="M{} {}H{}"/>', place, f"{x(line.paper):.1f}", y,
                                     f"{x(line.ours):.1f}"))  # fmt: skip
            if line.low is not None and line.high is not None:
                parts.append(format_html('<path class="whisker s{0}" d="M{1} {2}v8m0 -4H{3}m0 -4v8"/>', place,
                                         f"{x(line.low):.1f}", y - 4, f"{x(line.high):.1f}"))  # fmt: skip
            parts.append(mark(place, x(line.ours), y, 4.4))
            parts.append(format_html('<text x="398" y="{}" text-anchor="end">{}</text>', y + 4,
                                     percent(line.distance) if line.distance is not None else ""))  # fmt: skip
        parts.append(format_html('<path class="paper" d="M{0} {1}l6 6l-6 6l-6 -6z"/>', f"{x(line.paper):.1f}", y - 6))
    words = format_html_join(
        "; ", "{}: paper {}, ours {}",
        ((line.letter, figure(line.paper, unit), figure(line.ours, unit)) for line in lines),
    )  # fmt: skip
    return format_html(
        '<svg class="chart" viewBox="0 0 400 {}" role="img" aria-label="{}">{}</svg>', height, words, joined(parts)
    )
