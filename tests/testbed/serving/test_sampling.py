from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.serving.sampling import Distribution, draw, nucleus, ranked, uniform_at

FOUR = ranked({10: 1, 20: 4, 30: 3, 40: 2})
KNOWN = [0.6524484863740322, 0.36818951565166946, 0.5267179955718279]


def test_ranked_is_by_weight_then_by_id() -> None:
    assert ranked({5: 2, 3: 2, 9: 7}) == Distribution((9, 3, 5), (7.0, 2.0, 2.0))


def test_temperature_zero_is_the_likeliest_token() -> None:
    choice = nucleus(FOUR, 0, 1.0)
    assert {draw(choice, uniform_at(1, place)) for place in range(100)} == {20}


@pytest.mark.parametrize(
    ("top_p", "tokens"), [(0.001, (20,)), (0.4, (20,)), (0.41, (20, 30)), (0.7, (20, 30)), (0.9, (20, 30, 40))]
)
def test_top_p_keeps_the_fewest_tokens_that_hold_the_mass(top_p: float, tokens: tuple[int, ...]) -> None:
    assert nucleus(FOUR, 1.0, top_p).tokens == tokens


def test_shares_follow_the_weights() -> None:
    choice = nucleus(FOUR, 1.0, 1.0)
    counts = Counter(draw(choice, uniform_at(7, place)) for place in range(20_000))
    for token, weight in zip(FOUR.tokens, FOUR.weights, strict=True):
        assert abs(counts[token] / 20_000 - weight / 10) < 0.015


def test_a_low_temperature_sharpens_and_a_high_one_flattens() -> None:
    def share(temperature: float) -> float:
        choice = nucleus(FOUR, temperature, 1.0)
        return choice.cumulative[0] / choice.cumulative[-1]

    assert share(0.1) > 0.9 > share(1.0) > share(5.0) > 0.25


@pytest.mark.parametrize("temperature", [1e-6, 1e-300, 5e-324, 100.0])
def test_extreme_temperatures_are_numbers(temperature: float) -> None:
    choice = nucleus(FOUR, temperature, 1.0)
    assert draw(choice, 0.0) == 20
    assert draw(choice, 1 - 2**-53) in FOUR.tokens


@given(seed=st.integers(), place=st.integers(0, 1 << 40))
def test_uniform_is_a_function_of_seed_and_place(seed: int, place: int) -> None:
    number = uniform_at(seed, place)
    assert 0 <= number < 1
    assert number == uniform_at(seed, place)


def test_uniform_is_known_for_ever() -> None:
    """Figures that must not change with a library or a machine: recorded runs depend on them."""
    assert [uniform_at(0, 0), uniform_at(1, 0), uniform_at(1, 1)] == KNOWN


def test_neighbouring_seeds_and_places_are_not_alike() -> None:
    numbers = [uniform_at(seed, place) for seed in range(50) for place in range(50)]
    assert len(set(numbers)) == len(numbers)
    assert abs(sum(numbers) / len(numbers) - 0.5) < 0.02
