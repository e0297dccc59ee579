"""Sampling with temperature and top-p, by a counter: the same seed and place give the same token in any batch.

Randomness is a function of (seed, place in the answer), never a generator's state, so a sequence's tokens do not
depend on who shares its batch or on how often it was paused.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import NamedTuple

_MASK = (1 << 64) - 1


class Distribution(NamedTuple):
    """Candidates for the next token: likeliest first, equals by id."""

    tokens: tuple[int, ...]
    weights: tuple[float, ...]


class Nucleus(NamedTuple):
    """A distribution after temperature and top-p, ready to be drawn from."""

    tokens: tuple[int, ...]
    cumulative: tuple[float, ...]


def ranked(weights: dict[int, int]) -> Distribution:
    """A distribution from counts."""
    order = sorted(weights.items(), key=lambda item: (-item[1], item[0]))
    return Distribution(tuple(token for token, _ in order), tuple(float(weight) for _, weight in order))


def nucleus(distribution: Distribution, temperature: float, top_p: float) -> Nucleus:
    """Weights to the power 1/temperature, then the fewest tokens that hold at least `top_p` of the mass.

    Temperature 0 leaves the likeliest token alone.
    """
    if temperature == 0:
        return Nucleus(distribution.tokens[:1], (1.0,))
    greatest = distribution.weights[0]
    shaped = [(weight / greatest) ** (1 / temperature) for weight in distribution.weights]
    cumulative = tuple(accumulate(shaped))
    if top_p >= 1:
        return Nucleus(distribution.tokens, cumulative)
    bound = top_p * cumulative[-1]
    count = next(index for index, mass in enumerate(cumulative, start=1) if mass >= bound)
    return Nucleus(distribution.tokens[:count], cumulative[:count])


def draw(choice: Nucleus, uniform: float) -> int:
    """The token at `uniform` (in [0, 1)) of the nucleus' mass."""
    index = bisect_right(choice.cumulative, uniform * choice.cumulative[-1])
    return choice.tokens[min(index, len(choice.tokens) - 1)]


def uniform_at(seed: int, place: int) -> float:
    """A number in [0, 1) for a place in a sequence: two rounds of SplitMix64 (Steele et al. 2014), 53 bits."""
    return (_mix(_mix(seed & _MASK) + place) >> 11) / (1 << 53)


def _mix(value: int) -> int:
    value = (value + 0x9E3779B97F4A7C15) & _MASK
    value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ value >> 27) * 0x94D049BB133111EB) & _MASK
    return value ^ value >> 31
