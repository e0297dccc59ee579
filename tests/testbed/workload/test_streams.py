from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from testbed.workload.streams import derived_seed, stream

place = st.lists(st.one_of(st.text(max_size=5), st.integers(-5, 5)), max_size=4)


def test_a_seed_stays_what_it_was() -> None:
    # Recorded: a change here changes every experiment's prompts.
    assert derived_seed(1, "arrivals") == 9139818358574994920
    assert stream(1, "arrivals").random() == 0.5640972270241132


@given(place, place)
def test_other_places_have_other_seeds(first: list[str | int], second: list[str | int]) -> None:
    assert (derived_seed(0, *first) == derived_seed(0, *second)) == (first == second)


def test_seeds_fit_a_signed_64_bit_integer() -> None:
    assert all(0 <= derived_seed(seed, "x") < 2**63 for seed in range(500))
