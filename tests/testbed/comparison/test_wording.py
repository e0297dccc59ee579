"""Figures as people read them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.comparison.wording import between, figure, percent, several, signed


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (1340.0, "ms", "1.34 s"), (94.0, "ms", "94 ms"), (0.123456, "ms", "0.123 ms"), (0.71, "share", "71 %"),
        (1.53, "", "1.53"), (2_500_000_000, "bytes", "2.50 GB"), (None, "ms", "–"), (0, "ms", "0 ms"),
        (12345.6, "tokens/s", "12,346 tokens/s"), (3.2, "percent", "3.20 %"), (2_000_000, "µs", "2 s"),
    ],
)  # fmt: skip
def test_figures(value: float | None, unit: str, words: str) -> None:
    assert figure(value, unit) == words


def test_a_range_takes_the_unit_of_its_value() -> None:
    assert between(980, 1470, 1340, "ms") == "[0.980, 1.47]"
    assert between(66, 75, 71, "tokens/s") == "[66, 75]"
    assert between(0.66, 0.75, 0.71, "share") == "[66, 75]"


@pytest.mark.parametrize(
    ("relative", "words"),
    [(-0.61, "−61 %"), (0.08, "+8 %"), (0.002, "+0.2 %"), (0.0, "±0 %"), (1e-9, "under 0.1 %"), (9.96, "×11"),
     (1.99, "+199 %"), (2.2, "×3.20")],
)  # fmt: skip
def test_relative_changes(relative: float, words: str) -> None:
    assert percent(relative) == words


def test_signs_and_counts() -> None:
    assert (signed(-0.9, "ms"), signed(2, "ms"), signed(0, "ms")) == ("−0.900 ms", "+2 ms", "±0 ms")
    assert (several(1, "repeat"), several(5, "repeat"), several(12, "repeat")) == (
        "one repeat", "five repeats", "12 repeats",
    )  # fmt: skip


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e14, max_value=1e14))
def test_every_number_has_words(value: float) -> None:
    assert figure(value, "ms")
    assert percent(value)
