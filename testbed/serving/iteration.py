"""One server at the level of iterations: the serving loop a second time, as a plain function over arrays.

The machines of `testbed.blink` and `testbed.baselines` say every slot, packet and token; a run of a minute takes them
about a minute. What a fit or a sweep over thirteen rates needs is when each iteration ends. This is that and nothing
else: first come, first served admission with KV blocks and a batch's cap, prefills inline with at most so many a
pause, step times of the very tables that the cost model has, and around each launch the work of whoever drives it.
Blink's driver is the resident scheduler (scans, the launch window; blink.md 2.1, 2.2); a host-driven server's is host
work, a part before each launch and a part that hides behind the GPU's step (papers/blink summary, background).

Decode steps are O(1): who leaves after which step is known on joining, since answers have known lengths. The loop is
compilable as it is (numba, where it is installed); it knows no machine, no slots and no clock.
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


class StepTables(NamedTuple):
    """How long graphs run: the cost model's tables and the graph grid's rounding, in nanoseconds."""

    prefill: Integers
    """By tokens of the prompt, from 0: of the graph that takes it."""
    graph_batch: Integers
    """By sequences in the batch, from 0: lanes of the graph that takes them."""
    batches: Integers
    contexts: Integers
    decode: npt.NDArray[np.int64]
    """Row a context, column a batch, as `CostModel` has it."""
    floor: int
    """No step is shorter."""


class Limits(NamedTuple):
    """What bounds a batch."""

    max_batch: int
    prefills_per_pause: int
    blocks: int
    """KV blocks of the pool."""


class Driver(NamedTuple):
    """Who drives the iterations, and what it costs; nanoseconds on an idle core where it is a host's."""

    launch: int
    """Of each graph."""
    look: int
    """From a graph's end to the moment at which the driver sees it."""
    serial: int
    """Work before each launch, while the accelerator waits."""
    hidden: int
    """Work of each step that is done beside the graph where `overlapped`, else before its launch."""
    hidden_a_lane: int
    """The same, for each sequence of a decode step."""
    prefill: int
    """Work before the launch of a prefill, besides `serial`."""
    overlapped: bool
    hops: int
    """Threads of the host that a step wakes one after another; none of Blink's are on the host."""
    window: int
    """Launches of one execution of the driver, 0 for no limit (CUDA: 120 from a device graph)."""
    relaunch: int
    """From the last launch's end to the first turn of the next execution."""
    idle_first: int
    """First wait of an idle driver before it looks again; it doubles."""
    idle_most: int
    """Longest such wait; 0: whoever arrives wakes the driver."""


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


_BUSY, _WORK, _EXPOSED, _DRAWN = range(4)
"""Places of the loop's sums: accelerator, work, waits of the accelerator, and how many draws were used."""
_NO_LIMIT = 1 << 40


class Outcome(NamedTuple):
    """What a run of the loop leaves."""

    first: Integers
    """When each request's first token is there; -1 where it never was."""
    joined: Integers
    """Number of the decode step that gives its second token; the following ones give the rest."""
    ends: Integers
    """When each decode step ended."""
    batch: Integers
    """Sequences in each decode step."""
    busy: int
    """How long the accelerator ran."""
    work: int
    """How long the driver's work took, waits for a core included; none of Blink's."""
    exposed: int
    """How much of that the accelerator waited for."""


def serve(
    ready: Integers,
    prompts: Integers,
    outputs: Integers,
    blocks: Integers,
    tables: StepTables,
    limits: Limits,
    driver: Driver,
    disturbance: Disturbance = QUIET,
    *,
    compiled: bool = True,
) -> Outcome:
    """Serves requests that are ready at `ready` (ascending), until the last has its last token.

    `blocks` are the KV blocks that each is given on admission. Raises ValueError for a request that the pool could
    never hold. `compiled` uses numba where it is installed; the results are the same.
    """
    count, steps = len(ready), int(outputs.sum()) + 1
    if count and (int(blocks.max()) > limits.blocks or int(prompts.max()) >= len(tables.prefill)):
        raise ValueError("a request is larger than the KV pool or the longest graph")
    first, joined = np.full(count, -1, np.int64), np.zeros(count, np.int64)
    ends, batch, totals = np.zeros(steps, np.int64), np.zeros(steps, np.int64), np.zeros(4, np.int64)
    leaving = np.zeros((3, steps + 1), np.int64)
    done = _loop(compiled)(
        ready, prompts, outputs, blocks, tables, limits, driver, disturbance,
        first, joined, ends, batch, leaving, totals,
    )  # fmt: skip
    return Outcome(first, joined, ends[:done], batch[:done], *(int(value) for value in totals[:3]))


def _quantile(values: Floats, share: float) -> float:
    """As `testbed.serving.host_work.quantile`."""
    place = share * (len(values) - 1)
    index = min(int(place), len(values) - 1)
    above = min(index + 1, len(values) - 1)
    return float(values[index] + (values[above] - values[index]) * (place - index))


def _decode_time(tables: StepTables, lanes: int, context: int) -> int:
    """`CostModel.decode` of the graph for `lanes` sequences that hold `context` tokens together."""
    batch = tables.graph_batch[lanes]
    batches, contexts = tables.batches, tables.contexts
    column = min(max(np.searchsorted(batches, batch, side="right") - 1, 0), len(batches) - 2)
    row = min(max(np.searchsorted(contexts, -(-context // batch), side="right") - 1, 0), len(contexts) - 2)
    b0, b1 = batches[column], batches[column + 1]
    c0, c1 = contexts[row] * batch, contexts[row + 1] * batch
    at_c0 = tables.decode[row, column] * (b1 - batch) + tables.decode[row, column + 1] * (batch - b0)
    at_c1 = tables.decode[row + 1, column] * (b1 - batch) + tables.decode[row + 1, column + 1] * (batch - b0)
    exact = (at_c0 * (c1 - context) + at_c1 * (context - c0)) // ((b1 - b0) * (c1 - c0))
    return int(max(exact, tables.floor))


def _admissible(
    now: int, after: int, running: int, free: int, room: int, ready: Integers, blocks: Integers, limits: Limits
) -> int:
    """How many of those from `after` on join now: in order, while place, blocks and `room` for launches last."""
    places = min(limits.max_batch - running, limits.prefills_per_pause, room, len(ready) - after)
    admitted = 0
    while admitted < places and ready[after + admitted] <= now and blocks[after + admitted] <= free:
        free -= blocks[after + admitted]
        admitted += 1
    return admitted


def _with_stalls(quantile: Callable[..., Any]) -> Callable[..., Any]:
    def elapsed(amount: int, wakes: int, disturbance: Disturbance, totals: Integers) -> int:
        """How long work of `amount` takes beside the neighbours, with `wakes` threads woken for it."""
        if amount == 0 or not disturbance.neighbours:
            return amount
        chance = disturbance.chance
        place = totals[_DRAWN]
        took = amount * disturbance.slowdown
        left = took
        for _ in range(wakes):
            took += quantile(disturbance.wake, chance[place % len(chance)])
            place += 1
        while disturbance.stalls_per_ns > 0.0:
            left += log(1.0 - chance[place % len(chance)]) / disturbance.stalls_per_ns
            place += 1
            if left <= 0.0:
                break
            took += quantile(disturbance.stall, chance[place % len(chance)])
            place += 1
        totals[_DRAWN] = place
        return int(took + 0.5)

    return elapsed


def _with_work(elapsed: Callable[..., Any]) -> Callable[..., Any]:
    def fire(
        now: int, graph: int, before: int, beside: int, driver: Driver, disturbance: Disturbance, totals: Integers
    ) -> int:
        """Launches a graph; returns when the driver sees its end and has done its work beside it."""
        waited = elapsed(before, driver.hops, disturbance, totals)
        hidden = elapsed(beside, 0, disturbance, totals)
        if not driver.overlapped:
            waited += hidden
            hidden = 0
        ended = now + waited + driver.launch + max(graph + driver.look, hidden)
        totals[_BUSY] += graph
        totals[_WORK] += waited + hidden
        totals[_EXPOSED] += ended - now - graph
        return int(ended)

    return fire


def _with_rules(
    decode_time: Callable[..., Any], admissible: Callable[..., Any], fire: Callable[..., Any]
) -> Callable[..., Any]:
    def loop(
        ready: Any, prompts: Any, outputs: Any, blocks: Any, tables: Any, limits: Any, driver: Any, disturbance: Any,
        first: Any, joined: Any, ends: Any, batch: Any, leaving: Any, totals: Any,
    ) -> int:  # fmt: skip
        """Fills the arrays; returns how many decode steps there were."""
        now = after = running = context = used = step = ended = 0
        free, wait, resumed = limits.blocks, driver.idle_first, False
        while ended < len(ready):
            left = driver.window - used if driver.window else _NO_LIMIT
            admitted = 0
            if not resumed:
                admitted = admissible(now, after, running, free, left - 1, ready, blocks, limits)
                pending = after < len(ready) and ready[after] <= now
                if not admitted and (left == 0 or (left == 1 and pending and not running)):
                    now, used = now + driver.relaunch, 0
                    continue
            for request in range(after, after + admitted):
                now = fire(now, tables.prefill[prompts[request]], driver.serial + driver.prefill, 0, driver,
                           disturbance, totals)  # fmt: skip
                first[request], joined[request] = now, step
                free -= blocks[request]
                last = step + outputs[request] - 2
                if last < step:
                    free += blocks[request]
                    ended += 1
                else:
                    running, context = running + 1, context + prompts[request] + 1
                    leaving[0, last] += 1
                    leaving[1, last] += prompts[request] + outputs[request]
                    leaving[2, last] += blocks[request]
            after, used, resumed = after + admitted, used + admitted, admitted > 0 and running > 0
            if admitted:
                wait = driver.idle_first
            elif running:
                now = fire(now, decode_time(tables, running, context), driver.serial,
                           driver.hidden + driver.hidden_a_lane * running, driver, disturbance, totals)  # fmt: skip
                ends[step], batch[step] = now, running
                context += running - leaving[1, step]
                ended, running, free = ended + leaving[0, step], running - leaving[0, step], free + leaving[2, step]
                step, used, wait = step + 1, used + 1, driver.idle_first
            elif driver.idle_most == 0:
                now = max(now, ready[after])
            else:
                now, wait = now + wait, min(2 * wait, driver.idle_most)
        return step

    return loop


@cache
def _loop(compiled: bool) -> Callable[..., Any]:
    """The loop, by numba where it is wanted and installed."""
    compile_rule: Callable[[Any], Any] = _njit() if compiled else _as_it_is
    elapsed = compile_rule(_with_stalls(compile_rule(_quantile)))
    fire = compile_rule(_with_work(elapsed))
    rules: Callable[..., Any] = compile_rule(_with_rules(compile_rule(_decode_time), compile_rule(_admissible), fire))
    return rules


def _njit() -> Callable[[Any], Any]:
    try:
        from numba import njit
    except ImportError:
        return _as_it_is
    compiler: Callable[[Any], Any] = njit
    return compiler


def _as_it_is(rule: Any) -> Any:
    return rule
