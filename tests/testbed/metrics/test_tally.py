from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.metrics.tally import Tally, add, copied, pooled, quantile, rounded, spread


def of(values: list[int]) -> Tally:
    tally = Tally()
    for value in values:
        add(tally, value)
    return tally


@given(st.lists(st.integers(0, 10**13), min_size=1, max_size=60), st.sampled_from([1, 500, 900, 990, 1000]))
def test_a_quantile_is_numpys_inverted_cdf_to_three_digits(values: list[int], thousandths: int) -> None:
    exact = float(np.percentile(values, thousandths / 10, method="inverted_cdf"))
    found = quantile(of(values), thousandths)
    assert found == pytest.approx(exact, rel=0.0051)
    assert found is not None
    assert found <= max(values)


@given(st.lists(st.integers(0, 10**9), max_size=20), st.lists(st.integers(0, 10**9), max_size=20))
def test_pooled_tallies_are_the_tally_of_all(some: list[int], others: list[int]) -> None:
    whole, parts = of(some + others), pooled([of(some), of(others)])
    assert (parts.n, parts.total, parts.worst, sorted(parts.counts.items())) == (
        whole.n,
        whole.total,
        whole.worst,
        sorted(whole.counts.items()),
    )


@pytest.mark.parametrize(
    ("value", "expected"), [(0, 0), (999, 999), (1_004, 1_000), (1_005, 1_010), (123_456, 123_000)]
)
def test_three_digits_are_kept(value: int, expected: int) -> None:
    assert rounded(value) == expected


def test_a_percentile_that_is_too_far_out_for_n_is_none() -> None:
    found = spread(of([10] * 9), 10)
    assert (found.n, found.mean, found.p50, found.p90, found.p99, found.worst) == (9, 1.0, 1.0, None, None, 1.0)
    assert spread(of([1] * 99)).p99 is None
    assert spread(of([1] * 100)).p99 == 1


def test_nothing_has_no_figures() -> None:
    found = spread(Tally())
    assert (found.n, found.mean, found.p50, found.worst) == (0, None, None, None)


def test_mean_and_extremes_are_exact_where_quantiles_are_rounded() -> None:
    found = spread(of([123_456, 123_457]))
    assert (found.mean, found.worst, found.p50) == (123_456.5, 123_457, 123_000)


def test_a_copy_stays_as_it_is() -> None:
    tally = of([5])
    other = copied(tally)
    add(tally, 5, 3)
    assert (other.n, other.counts) == (1, {5: 1})
