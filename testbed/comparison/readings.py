"""Two sets of repeats of one figure held against each other: by how much, which way, and whether repeats bear it out.

The spread is from the lowest to the highest repeat. Two figures are apart when these ranges do not touch; nothing is
assumed of how values are distributed, and five repeats are too few to estimate it. With a single repeat there is no
spread, and the reading says so. Pure.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from enum import StrEnum

import msgspec

from testbed.comparison.directions import Direction


class Reading(StrEnum):
    """What a difference says."""

    SAME = "same"
    WITHIN = "within the spread"
    BETTER = "better"
    WORSE = "worse"
    DIFFERENT = "different"
    """Apart, and nobody can say which way is better."""
    UNKNOWN = "unknown"
    """One of the two has no value."""


class Ground(StrEnum):
    """What a reading rests on."""

    RANGES = "outside the spread"
    """Both have repeats, and their ranges do not touch."""
    ONE_RANGE = "outside the other's spread"
    """One has a single repeat, and it lies outside the other's range."""
    SINGLE = "one repeat each"
    POOLED = "pooled only"
    """Single repeats have too few values for this figure; all together have enough."""
    NONE = ""


class Cell(msgspec.Struct, frozen=True):
    """One figure of one side."""

    value: float | None
    """Median of the repeats; of all of them pooled where single ones have too few values."""
    repeats: tuple[float, ...] = ()
    """Each repeat's value, in their order; empty where `value` is pooled only."""
    count: int | None = None
    """How many values of a distribution stand behind it, all repeats together; None for a figure that is no
    distribution's."""
    why_not: str = ""
    """Why there is no value, or why it is pooled only."""

    @property
    def low(self) -> float | None:
        """The lowest repeat."""
        return min(self.repeats) if self.repeats else None

    @property
    def high(self) -> float | None:
        """The highest repeat."""
        return max(self.repeats) if self.repeats else None


class Change(msgspec.Struct, frozen=True):
    """One cell against another."""

    delta: float | None
    relative: float | None
    """`delta` over the size of what it is held against; None where that is 0."""
    reading: Reading
    ground: Ground


NO_CHANGE = Change(None, None, Reading.UNKNOWN, Ground.NONE)


def cell_of(repeats: Sequence[float | None], pooled: float | None, count: int | None, needed: int = 0) -> Cell:
    """The cell of some repeats' values; None stands for a repeat without one. `needed` is how many values the
    figure takes.
    """
    whole = tuple(value for value in repeats if value is not None)
    if whole and len(whole) == len(repeats):
        return Cell(statistics.median(whole), whole, count)
    if pooled is None:
        few = count is not None and needed > count
        return Cell(None, (), count, f"takes {needed} values, there are {count}" if few else "nothing was measured")
    why = "pooled: one repeat has too few values" if repeats else "pooled: its repeats are not read yet"
    return Cell(pooled, (), count, why)


def change(against: Cell, cell: Cell, direction: Direction) -> Change:
    """`cell` held against `against`."""
    if against.value is None or cell.value is None:
        return NO_CHANGE
    delta = cell.value - against.value
    relative = delta / abs(against.value) if against.value else None
    reading, ground = _read(against, cell, delta, direction)
    return Change(delta, relative, reading, ground)


def _read(against: Cell, cell: Cell, delta: float, direction: Direction) -> tuple[Reading, Ground]:
    if against.repeats == cell.repeats and delta == 0:
        return Reading.SAME, Ground.NONE
    ground = _ground(against, cell)
    touching = ground in (Ground.RANGES, Ground.ONE_RANGE) and (
        min(cell.repeats) <= max(against.repeats) and min(against.repeats) <= max(cell.repeats)
    )
    if touching:
        return Reading.WITHIN, Ground.NONE
    if delta == 0:
        return Reading.SAME, Ground.NONE
    if direction is Direction.NEITHER:
        return Reading.DIFFERENT, ground
    return (Reading.BETTER if (delta < 0) == (direction is Direction.LOWER) else Reading.WORSE), ground


def _ground(against: Cell, cell: Cell) -> Ground:
    least, most = sorted((len(against.repeats), len(cell.repeats)))
    if least == 0:
        return Ground.POOLED
    if most == 1:
        return Ground.SINGLE
    return Ground.RANGES if least > 1 else Ground.ONE_RANGE
