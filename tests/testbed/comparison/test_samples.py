"""Thinned distributions: what is kept was measured, and the curve is true within what was promised."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.comparison.samples import KEPT, Samples, thinned

VALUES = st.lists(st.floats(0, 1e6, allow_nan=False), min_size=1, max_size=3 * KEPT)


def share_at(found: Samples, value: float) -> float:
    """The curve at a value: the share of the values that are at most this."""
    return max((share for step, share in found.steps() if step <= value), default=0.0)


@given(VALUES)
def test_what_is_kept_was_measured_and_the_ends_are_kept(values: list[float]) -> None:
    found = thinned(values)
    assert found.n == len(values)
    assert len(found.values) == min(len(values), KEPT)
    assert list(found.values) == sorted(found.values)
    assert (found.values[0], found.values[-1]) == (min(values), max(values))
    assert set(found.values) <= set(values)


@given(VALUES, st.floats(0, 1e6, allow_nan=False))
def test_a_share_is_within_one_step_of_the_truth(values: list[float], at: float) -> None:
    found = thinned(values)
    truth = sum(value <= at for value in values) / len(values)
    step = 0.0 if len(values) <= KEPT else 1.5 / (KEPT - 1) + 1 / len(values)
    assert abs(share_at(found, at) - truth) <= step + 1e-12


@given(VALUES)
def test_the_curve_rises_to_one_and_is_exact_at_its_values_where_all_are_kept(values: list[float]) -> None:
    steps = thinned(values).steps()
    assert [share for _, share in steps] == sorted(share for _, share in steps)
    assert steps[-1][1] == 1.0
    if len(values) <= KEPT:
        # The last of equal values carries their share.
        assert dict(steps) == {
            value: pytest.approx(sum(other <= value for other in values) / len(values)) for value in values
        }


def test_no_values_have_no_share() -> None:
    assert thinned([]) == Samples(0, ())
    assert thinned([]).steps() == []


def test_a_heavy_tail_of_a_million_keeps_its_percentiles() -> None:
    values = [1.0] * 989_999 + [100.0] * 10_001
    found = thinned(values)
    assert share_at(found, 1.0) == pytest.approx(0.99, abs=1 / KEPT)
    assert found.values[-1] == 100.0
