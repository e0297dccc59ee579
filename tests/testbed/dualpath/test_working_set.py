from __future__ import annotations

from fractions import Fraction

import pytest

from testbed.dualpath.working_set import stretched, working_set


@pytest.mark.parametrize(
    ("agents_per_s", "agent_s", "token_bytes", "gbyte"),
    [
        # Design 1.9, check 3: the paper prints 69 and 681 GB; JCT of Fig. 11.
        (Fraction(1, 10), 570, 43_000, 69),
        (Fraction(45, 100), 1_100, 49_000, 681),
    ],
)
def test_the_papers_working_sets(agents_per_s: Fraction, agent_s: int, token_bytes: int, gbyte: int) -> None:
    found = working_set(agents_per_s, Fraction(agent_s), 55_958, token_bytes)
    assert float(found) / 1e9 == pytest.approx(gbyte, rel=0.01)


def test_the_working_set_grows_with_the_square_of_a_stretch_at_the_capacity_it_allows() -> None:
    before = working_set(Fraction(45, 100), Fraction(1_100), 55_958, 49_000)
    stretch = stretched(Fraction(3))
    after = working_set(Fraction(45, 100) * stretch.capacity, Fraction(1_100) * 3, 55_958, 49_000)
    assert after / before == stretch.working_set == 9


def test_correction_4_the_cube_is_the_price_of_the_experiment_alone() -> None:
    """The summary says that total cost grows with r³ and that this limits DRAM pools."""
    assert stretched(Fraction(5, 2)) == (Fraction(5, 2), Fraction(25, 4), Fraction(125, 8))
