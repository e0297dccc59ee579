"""Better, worse, within the spread: what repeats bear out and what they do not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.comparison.directions import Direction
from testbed.comparison.readings import Cell, Ground, Reading, cell_of, change

LOW, HIGH, NEITHER = Direction.LOWER, Direction.HIGHER, Direction.NEITHER
NUMBERS = st.floats(-1e9, 1e9, allow_nan=False).map(lambda value: round(value, 6))
REPEATS = st.lists(NUMBERS, min_size=1, max_size=7)


def cell(*repeats: float) -> Cell:
    return cell_of(repeats, None, None)


@pytest.mark.parametrize(
    ("one", "other", "direction", "reading", "ground"),
    [
        (cell(10, 11, 12), cell(5, 6, 7), LOW, Reading.BETTER, Ground.RANGES),
        (cell(10, 11, 12), cell(5, 6, 7), HIGH, Reading.WORSE, Ground.RANGES),
        (cell(10, 11, 12), cell(5, 6, 7), NEITHER, Reading.DIFFERENT, Ground.RANGES),
        (cell(10, 11, 12), cell(5, 6, 10), LOW, Reading.WITHIN, Ground.NONE),
        (cell(10, 11, 12), cell(9, 9.5, 20), LOW, Reading.WITHIN, Ground.NONE),
        (cell(10, 11, 12), cell(5), LOW, Reading.BETTER, Ground.ONE_RANGE),
        (cell(10, 11, 12), cell(10.5), LOW, Reading.WITHIN, Ground.NONE),
        (cell(10), cell(5), LOW, Reading.BETTER, Ground.SINGLE),
        (cell(10), cell(10), LOW, Reading.SAME, Ground.NONE),
        (cell(10, 11), cell(10, 11), LOW, Reading.SAME, Ground.NONE),
        (cell(0, 0), cell(0, 0), LOW, Reading.SAME, Ground.NONE),
        (cell(), cell(10), LOW, Reading.UNKNOWN, Ground.NONE),
    ],
)
def test_readings(one: Cell, other: Cell, direction: Direction, reading: Reading, ground: Ground) -> None:
    found = change(one, other, direction)
    assert (found.reading, found.ground) == (reading, ground)


def test_repeats_with_too_few_values_are_read_pooled_and_say_so() -> None:
    one, other = cell_of([None, None], 20.0, 120, 100), cell_of([None, None], 10.0, 120, 100)
    assert one.value == 20.0
    assert one.repeats == ()
    assert "pooled" in one.why_not
    assert change(one, other, LOW).ground is Ground.POOLED


def test_a_percentile_of_too_few_values_is_none_and_says_how_many_it_takes() -> None:
    found = cell_of([None], None, 48, 100)
    assert found.value is None
    assert found.why_not == "takes 100 values, there are 48"


def test_one_repeat_without_a_value_makes_no_spread_of_the_others() -> None:
    """A median of those repeats that happened to have a value would be of a chosen few."""
    found = cell_of([5.0, None], 6.0, 30, 10)
    assert (found.value, found.repeats) == (6.0, ())


@given(REPEATS, st.sampled_from(Direction))
def test_a_cell_against_itself_is_the_same(repeats: list[float], direction: Direction) -> None:
    found = change(cell(*repeats), cell(*repeats), direction)
    assert found.reading is Reading.SAME
    assert found.delta == 0


MIRROR = {Reading.BETTER: Reading.WORSE, Reading.WORSE: Reading.BETTER}


@given(REPEATS, REPEATS, st.sampled_from(Direction))
def test_swapped_sides_say_the_opposite(ones: list[float], others: list[float], direction: Direction) -> None:
    there, back = change(cell(*ones), cell(*others), direction), change(cell(*others), cell(*ones), direction)
    assert there.delta is not None
    assert back.delta == -there.delta
    assert back.reading == MIRROR.get(there.reading, there.reading)
    assert back.ground == there.ground


@given(REPEATS, REPEATS)
def test_turning_the_direction_swaps_better_and_worse_only(ones: list[float], others: list[float]) -> None:
    low, high = change(cell(*ones), cell(*others), LOW), change(cell(*ones), cell(*others), HIGH)
    assert high.reading == MIRROR.get(low.reading, low.reading)


@given(REPEATS, REPEATS)
def test_what_is_better_lies_wholly_on_the_better_side(ones: list[float], others: list[float]) -> None:
    if change(cell(*ones), cell(*others), LOW).reading is Reading.BETTER:
        assert max(others) < min(ones)
