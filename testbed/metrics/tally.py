"""Many values in little room: how often each came, to three significant digits, with exact sum and extremes.

A run has a hundred thousand transfers and collectives; their times as lists would make every snapshot of a fold as
large as the log. Values are whole and not negative; a quantile is the least value whose cumulated count reaches it
(inverse CDF), off by at most half a percent, and so the same on every machine.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from testbed.metrics.latency import PERCENTILES

_DIGITS = 1_000


class Tally(msgspec.Struct):
    """Counts by rounded value."""

    n: int = 0
    total: int = 0
    worst: int = 0
    counts: dict[int, int] = {}


class Spread(msgspec.Struct, frozen=True):
    """A distribution in the unit of its name. A percentile that `n` is too small for is None."""

    n: int
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    worst: float | None


def add(tally: Tally, value: int, times: int = 1) -> None:
    """Counts `value`, `times` times; a negative one is taken as 0."""
    value = max(value, 0)
    tally.n += times
    tally.total += value * times
    tally.worst = max(tally.worst, value)
    key = rounded(value)
    tally.counts[key] = tally.counts.get(key, 0) + times


def rounded(value: int) -> int:
    """`value` to three significant digits."""
    step = 1
    while value // step >= _DIGITS:
        step *= 10
    return (value + step // 2) // step * step


def pooled(tallies: Iterable[Tally]) -> Tally:
    """All of them as one."""
    whole = Tally()
    for tally in tallies:
        whole.n += tally.n
        whole.total += tally.total
        whole.worst = max(whole.worst, tally.worst)
        for key, times in tally.counts.items():
            whole.counts[key] = whole.counts.get(key, 0) + times
    return whole


def copied(tally: Tally) -> Tally:
    """One that does not change with `tally`."""
    return msgspec.structs.replace(tally, counts=dict(tally.counts))


def quantile(tally: Tally, thousandths: int) -> int | None:
    """The least value with at least that share of all at or below it; None of nothing."""
    reached = 0
    for value in sorted(tally.counts):
        reached += tally.counts[value]
        if 1000 * reached >= thousandths * tally.n:
            return min(value, tally.worst)
    return None


def spread(tally: Tally, unit: int = 1) -> Spread:
    """The distribution in units of `unit`."""
    found = {
        name: quantile(tally, thousandths) if tally.n >= least else None for name, thousandths, least in PERCENTILES
    }
    return Spread(
        n=tally.n,
        mean=_in(tally.total / tally.n, unit) if tally.n else None,
        p50=_in(found["p50"], unit),
        p90=_in(found["p90"], unit),
        p99=_in(found["p99"], unit),
        worst=_in(tally.worst, unit) if tally.n else None,
    )


def _in(value: float | None, unit: int) -> float | None:
    return None if value is None else round(value / unit, 9)
