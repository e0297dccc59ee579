"""How late a process woke, over several readings of which each has its own percentiles (docs/models/fidelity.md)."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import NormalDist

from testbed.units import Nanoseconds

_NORMAL = NormalDist()
_UPPER_SCORES = tuple(_NORMAL.inv_cdf(0.505 + step / 100) for step in range(50))
"""Standard scores of the upper half of a hundred wakes."""


def late_estimate(readings: Sequence[tuple[int, int, int, int]]) -> Nanoseconds:
    """The 99th percentile of lateness over several readings (wakes, p50, p99, worst), estimated.

    Percentiles of parts do not add up. Half of a reading's wakes are taken to be as late as its p50; the others to be
    spread as in a log-normal law through p50 and p99, none later than the worst. In a reading of few wakes p99 is
    the largest of them, and stands at the quantile where the largest of so many stands.
    """
    parts: list[tuple[float, int]] = []
    for wakes, p50, p99, worst in readings:
        low, high = max(p50, 1), max(p99, 1)
        top = _NORMAL.inv_cdf(min(0.99, 1 - 0.5 / max(wakes, 2)))
        parts.append((p50, 50 * wakes))
        parts.extend((min(low * (high / low) ** (score / top), worst), wakes) for score in _UPPER_SCORES)
    needed = 99 * sum(wakes for wakes, *_ in readings)
    reached = 0
    for value, weight in sorted(parts):
        reached += weight
        if reached >= needed:
            return round(value)
    return 0
