"""Rows of a comparison in words: by how much, what it says and on what ground. The same on a page and in a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.comparison.readings import Cell, Change, Ground, Reading
from testbed.comparison.rows import FigureRow, SideFacts
from testbed.comparison.wording import between, percent, several, signed


def change_words(row: FigureRow, change: Change) -> str:
    """By how much: shares in points, everything else relative where it can be."""
    if change.delta is None:
        return "–"
    if change.delta == 0:
        return "±0"
    if row.unit in ("share", "percent"):
        points = change.delta * (100 if row.unit == "share" else 1)
        return f"{signed(float(f'{points:.3g}'))} pt"
    return percent(change.relative) if change.relative is not None else signed(change.delta, row.unit)


def reading_words(change: Change) -> str:
    """What the difference says, and on what ground."""
    if change.reading in (Reading.SAME, Reading.WITHIN):
        return str(change.reading)
    if change.reading is Reading.UNKNOWN:
        return "no value to compare"
    ground = {Ground.SINGLE: "one repeat each", Ground.POOLED: "repeats pooled"}.get(change.ground, str(change.ground))
    return f"{change.reading}, {ground}"


def range_words(cell: Cell, unit: str) -> str:
    """From the lowest to the highest repeat, where there are several."""
    if len(cell.repeats) < 2 or cell.value is None:
        return ""
    return between(min(cell.repeats), max(cell.repeats), cell.value, unit)


def spread_words(sides: Sequence[SideFacts]) -> str:
    """What a value and its brackets are."""
    counts = {facts.repeats for facts in sides}
    if counts == {1}:
        return "one repeat each: no spread is known, so no difference can be told from chance"
    many = several(counts.pop(), "repeat") if len(counts) == 1 else "the repeats"
    return f"median of {many}, lowest to highest in brackets"


def setting_words(value: object, unit: str) -> str:
    """A setting's value with its unit."""
    if value is None:
        return "not set"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if unit == "ns" and isinstance(value, int):
        for name, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
            if abs(value) >= size:
                return f"{value / size:g} {name}"
    if isinstance(value, int | float):
        return f"{value:,.12g} {unit}".rstrip() if abs(value) >= 10_000 else f"{value:.12g} {unit}".rstrip()
    return str(value)
