"""How long work on a host takes beside neighbours, as rules that a compiled loop can use.

What `testbed.serving.host_work.ModelledProcessor` draws piece by piece, over arrays: the loop of
`testbed.serving.iteration` draws what its driver's pieces take, `in_order` what a process takes that does one piece
after another. Compiled by numba where it is installed; the results are the same without. It knows no server.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import log
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Disturbance(NamedTuple):
    """What neighbours do to work on the host: the numbers of `testbed.serving.host_work.Contention`, as arrays."""

    slowdown: float
    stalls_per_ns: float
    stall: Floats
    """Quantiles of a stall, nanoseconds."""
    wake: Floats
    """Quantiles of the wait for a core after sleep, nanoseconds."""
    chance: Floats
    """Uniform draws from 0 to 1, used in turn and again from the start."""
    neighbours: bool = True
    """Whether there are any."""


QUIET = Disturbance(1.0, 0.0, np.zeros(1), np.zeros(1), np.zeros(1), neighbours=False)
"""Nobody else is on the host."""

WORK, DRAWN = range(2)
"""Places of the books that `elapsed` keeps: sum of all work with its waits, draws used. What lies behind is others'."""


def in_order(
    arrivals: Integers, amounts: Integers, disturbance: Disturbance = QUIET, *, compiled: bool = True
) -> Integers:
    """When each piece is done by a process that does them in the order of `arrivals` (ascending); nanoseconds."""
    ends = np.empty_like(arrivals)
    books = np.array([0, len(disturbance.chance) // 2], np.int64)
    _queue(compiled)(arrivals, amounts, disturbance, books, ends)
    return ends


@cache
def elapsed_rule(compiled: bool) -> Callable[..., Any]:
    """The rule `elapsed(amount, slept, disturbance, books)`."""
    compile_rule = compiler(compiled)
    rule: Callable[..., Any] = compile_rule(_with_stalls(compile_rule(_quantile)))
    return rule


def compiler(compiled: bool) -> Callable[[Any], Any]:
    """numba's, where it is wanted and installed; else one that leaves rules as they are."""
    if compiled:
        try:
            from numba import njit
        except ImportError:
            return _as_it_is
        found: Callable[[Any], Any] = njit
        return found
    return _as_it_is


def _as_it_is(rule: Any) -> Any:
    return rule


def _quantile(values: Floats, share: float) -> float:
    """As `testbed.serving.host_work.quantile`."""
    place = share * (len(values) - 1)
    index = min(int(place), len(values) - 1)
    above = min(index + 1, len(values) - 1)
    return float(values[index] + (values[above] - values[index]) * (place - index))


def _with_stalls(quantile: Callable[..., Any]) -> Callable[..., Any]:
    def elapsed(amount: int, slept: bool, disturbance: Disturbance, books: Integers) -> int:
        """How long work of `amount` takes a thread beside the neighbours; one that has slept waits for a core first."""
        if amount == 0 or not disturbance.neighbours:
            books[WORK] += amount
            return amount
        chance = disturbance.chance
        place = books[DRAWN]
        left = amount * disturbance.slowdown
        took = left
        if slept:
            took += quantile(disturbance.wake, chance[place % len(chance)])
            place += 1
        while disturbance.stalls_per_ns > 0.0:
            left += log(1.0 - chance[place % len(chance)]) / disturbance.stalls_per_ns
            place += 1
            if left <= 0.0:
                break
            took += quantile(disturbance.stall, chance[place % len(chance)])
            place += 1
        books[DRAWN] = place
        books[WORK] += int(took + 0.5)
        return int(took + 0.5)

    return elapsed


@cache
def _queue(compiled: bool) -> Callable[..., Any]:
    elapsed = elapsed_rule(compiled)

    def queue(arrivals: Integers, amounts: Integers, disturbance: Disturbance, books: Integers, ends: Integers) -> None:
        free = 0
        for place in range(len(arrivals)):
            begins = max(free, arrivals[place])
            free = begins + elapsed(amounts[place], free < begins, disturbance, books)
            ends[place] = free

    rule: Callable[..., Any] = compiler(compiled)(queue)
    return rule
