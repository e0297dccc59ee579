"""Marks and axes of the comparison's charts, as SVG made on the server: they need no script and print as they are.

Each of six sides has a colour and a shape of its own (page/compare.css has the colours), so colour is never the only
cue. Sizes are in the units of a chart's viewBox.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from django.utils.html import format_html
from django.utils.safestring import SafeString

_SHAPES: tuple[str, ...] = (
    '<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/>',
    '<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/>',
    '<rect x="{l:.1f}" y="{t:.1f}" width="{d:.1f}" height="{d:.1f}"/>',
    '<path d="M{x:.1f} {t:.1f}L{e:.1f} {b:.1f}L{l:.1f} {b:.1f}Z"/>',
    '<path d="M{x:.1f} {t:.1f}L{e:.1f} {y:.1f}L{x:.1f} {b:.1f}L{l:.1f} {y:.1f}Z"/>',
    '<path d="M{l:.1f} {t:.1f}L{e:.1f} {b:.1f}M{e:.1f} {t:.1f}L{l:.1f} {b:.1f}"/>',
)
"""Ring, disc, square, triangle, diamond, cross."""


def joined(parts: Iterable[str]) -> SafeString:
    """Parts that are safe already, put together."""
    return SafeString("".join(parts))


def mark(place: int, x: float, y: float, size: float = 4.0) -> SafeString:
    """The mark of the side at `place`."""
    shape = _SHAPES[place % len(_SHAPES)].format(
        x=x, y=y, r=size, l=x - size, t=y - size, e=x + size, b=y + size, d=2 * size
    )
    return joined(('<g class="mk s', str(place % len(_SHAPES)), '">', shape, "</g>"))


def key_mark(place: int) -> SafeString:
    """The mark by itself, for a heading or a legend."""
    return format_html('<svg class="keymk" viewBox="0 0 18 18" aria-hidden="true">{}</svg>', mark(place, 9, 9, 5.5))


def ticks(low: float, high: float, most: int = 4) -> list[float]:
    """Round values from `low` to `high`, about `most` of them; both may be equal."""
    if not high > low:
        return [low]
    raw = (high - low) / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]


def roof(value: float) -> float:
    """A round value that is at least `value`, for the end of an axis that begins at 0."""
    if not value > 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    round_ones = (1, 1.2, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return next(factor * power for factor in round_ones if factor * power >= value * 0.999)


def scaled(unit: str, largest: float) -> tuple[str, float]:
    """The unit in which an axis up to `largest` is written, and what values are divided by."""
    if unit == "share":
        return "%", 0.01
    if unit == "percent":
        return "%", 1.0
    if unit in ("ms", "µs") and largest >= 1000:
        return {"ms": "s", "µs": "ms"}[unit], 1000.0
    if unit == "bytes":
        for name, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
            if largest >= size:
                return name, size
    return unit, 1.0


def axis_label(value: float) -> str:
    """A tick's value; zero is zero."""
    return "0" if abs(value) < 1e-12 else f"{value:,.6g}"
