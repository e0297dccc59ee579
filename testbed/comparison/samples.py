"""A whole distribution in few numbers: observed values at even ranks, from which its curve is drawn.

Nothing is fitted or smoothed: every kept value was measured, the smallest and the largest are always kept, and
between two kept ones the share is known to within one part in `KEPT - 1`. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

KEPT = 400
"""At most so many values of a distribution are kept; of fewer all are."""


class Samples(msgspec.Struct, frozen=True):
    """Values in ascending order, thinned out to at most `KEPT`, and how many there were."""

    n: int
    values: tuple[float, ...]

    def steps(self) -> list[tuple[float, float]]:
        """The curve: (value, share of all values that are at most this), rising."""
        kept = len(self.values)
        return [(value, (rank(place, self.n, kept) + 1) / self.n) for place, value in enumerate(self.values)]


def thinned(values: Iterable[float]) -> Samples:
    """The samples of `values`, which come in any order."""
    ordered: Sequence[float] = sorted(values)
    n = len(ordered)
    kept = min(n, KEPT)
    return Samples(n, tuple(ordered[rank(place, n, kept)] for place in range(kept)))


def rank(place: int, n: int, kept: int) -> int:
    """Which of `n` ordered values is kept at `place` of `kept`: the ends, and even steps between."""
    return place if kept == n else round(place * (n - 1) / (kept - 1))
