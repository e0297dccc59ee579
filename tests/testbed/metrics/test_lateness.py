from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.metrics.lateness import late_estimate


def reading(part: list[int]) -> tuple[int, int, int, int]:
    """As a node reports its wakes."""
    p50, p99 = (int(np.percentile(part, q, method="inverted_cdf")) for q in (50, 99))
    return len(part), p50, p99, max(part)


@pytest.mark.parametrize("size", [20, 40, 150, 1000])
@pytest.mark.parametrize("spread", [0.5, 1.0, 2.0])
def test_the_estimate_of_lateness_is_near_the_true_percentile_and_rather_above_it(size: int, spread: float) -> None:
    rng = np.random.default_rng(size)
    for _ in range(20):
        parts = [[int(value) for value in rng.lognormal(11, spread, size)] for _ in range(30)]
        true = np.percentile([value for part in parts for value in part], 99)
        assert 0.75 * true <= late_estimate([reading(part) for part in parts]) <= 2.2 * true


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(st.integers(0, 10_000), min_size=1, max_size=120), min_size=1, max_size=6))
def test_the_estimate_lies_among_what_was_reported(parts: list[list[int]]) -> None:
    readings = [reading(part) for part in parts]
    assert min(p50 for _, p50, _, _ in readings) <= late_estimate(readings) <= max(worst for *_, worst in readings)


def test_one_bad_moment_in_a_long_run_is_no_bad_p99() -> None:
    rng = random.Random(3)
    good = [(100, 100, rng.randrange(300, 400), 500) for _ in range(300)]
    assert late_estimate([*good, (20, 100, 90_000, 90_000)]) <= 500
    assert late_estimate([]) == 0
