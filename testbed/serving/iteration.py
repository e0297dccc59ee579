"""One server at the level of iterations: the serving loop a second time, as a plain function over arrays.

The machines of `testbed.blink` and `testbed.baselines` say every slot, packet and token; a run of a minute takes them
about a minute. What a fit or a sweep over thirteen rates needs is when each iteration ends. This is that and nothing
else: first come, first served admission with KV blocks and a batch's cap, prefills inline with at most so many a
pause, step times of the very tables that the cost model has, and around each launch the work of whoever drives it.
Blink's driver is the resident scheduler (scans, the launch window; blink.md 2.1, 2.2); a host-driven server's is host
work: a part before each launch, and a part on each step's tokens, which may run beside the next step (papers/blink
summary, background; `testbed.baselines.host_driven_core` and `_worker`).

Decode steps are O(1): who leaves after which step is known on joining, since answers have known lengths. The loop is
compilable as it is (numba, where it is installed); it knows no machine, no slots and no clock.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.serving.iterated_work import DRAWN, QUIET, WORK, Disturbance, compiler, elapsed_rule

Integers = npt.NDArray[np.int64]


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
    serial: int = 0
    """Work before each launch, while the accelerator waits."""
    prefill: int = 0
    """The same before the launch of a prefill, besides `serial`."""
    serial_a_lane: int = 0
    """The same before the launch of a decode step, for each of its sequences."""
    update: int = 0
    """Work on the tokens of each step, before the next step is decided."""
    update_a_lane: int = 0
    """The same, for each sequence of the step."""
    deliver_a_lane: int = 0
    """From then to the client, for each sequence of the step."""
    overlapped: bool = False
    """Whether a step is decided before the tokens of the one ahead of it are known: `update` runs beside the graph."""
    one_process: bool = False
    """Whether `serial` and `update` share a thread, so that one waits for the other."""
    window: int = 0
    """Launches of one execution of the driver, 0 for no limit (CUDA: 120 from a device graph)."""
    relaunch: int = 0
    """From the last launch's end to the first turn of the next execution."""
    idle_first: int = 0
    """First wait of an idle driver before it looks again; it doubles."""
    idle_most: int = 0
    """Longest such wait; 0: whoever arrives wakes the driver."""


NEVER = -1
"""In place of a moment that the run did not reach."""
_NO_LIMIT = 1 << 40
NO_END = 1 << 62
"""A moment that no run reaches."""
_NOTHING = -1
"""No step's tokens wait."""
_BUSY, _EXPOSED, _DECIDED, _DONE, _ENDED_AT, _OPEN, _LANES, _MEMBERS, _FREE, _FINISHED = range(max(WORK, DRAWN) + 1, 12)
"""Places of the loop's state, behind the books of work: sums of the accelerator's time and of its waits; when the next
step may be decided; when the last graph is seen to end, and when it ended; the step whose tokens wait (decode
steps from 0, then prefills) and its sequences; places and blocks that are taken or free; requests that have ended."""


class Outcome(NamedTuple):
    """What a run of the loop leaves."""

    first: Integers
    """When each request's first token is given out; `NEVER` where it was not."""
    last: Integers
    """When its last one is; `NEVER` where it was not."""
    joined: Integers
    """Number of the decode step that gives its second token; the following ones give the rest."""
    ends: Integers
    """When the tokens of each decode step are given out."""
    batch: Integers
    """Sequences in each decode step."""
    busy: int
    """How long the accelerator ran."""
    work: int
    """How long the driver's work took, waits for a core included; none of Blink's is work."""
    exposed: int
    """How long the accelerator stood still between launches while there was something to run."""


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
    until: int = NO_END,
    compiled: bool = True,
) -> Outcome:
    """Serves requests that are ready at `ready` (ascending), until the last has its last token or the time is up.

    `blocks` are the KV blocks that each is given on admission. Raises ValueError for a request that the pool could
    never hold. `compiled` uses numba where it is installed; the results are the same.
    """
    count, most = len(ready), int(outputs.sum()) + 1
    if count and (int(blocks.max()) > limits.blocks or int(prompts.max()) >= len(tables.prefill)):
        raise ValueError("a request is larger than the KV pool or the longest graph")
    first, joined = np.full(count, NEVER, np.int64), np.zeros(count, np.int64)
    ends, batch = np.full(most, NEVER, np.int64), np.zeros(most, np.int64)
    leaving, state = np.zeros((3, most + 1), np.int64), np.zeros(12, np.int64)
    state[_OPEN], state[_FREE] = _NOTHING, limits.blocks
    steps = _loop(compiled)(
        Asked(ready, prompts, outputs, blocks), tables, limits, driver, disturbance,
        Given(first, joined, ends, batch, leaving), state, until,
    )  # fmt: skip
    final = joined + outputs - 2
    last = np.where(outputs == 1, first, NEVER)
    reached = (first != NEVER) & (outputs > 1) & (final < steps)
    last[reached] = ends[final[reached]]
    sums = (int(state[place]) for place in (_BUSY, WORK, _EXPOSED))
    return Outcome(first, last, joined, ends[:steps], batch[:steps], *sums)


class Asked(NamedTuple):
    """The requests, as `serve` has them."""

    ready: Integers
    prompts: Integers
    outputs: Integers
    blocks: Integers


class Given(NamedTuple):
    """The arrays that the loop fills."""

    first: Integers
    joined: Integers
    ends: Integers
    batch: Integers
    leaving: Integers
    """How many sequences, tokens of KV and blocks leave after each decode step: rows 0 to 2."""


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


def _admissible(now: int, after: int, room: int, asked: Asked, limits: Limits, state: Integers) -> int:
    """Takes in those from `after` on: in order, while places, blocks and `room` for launches last. Returns how many."""
    places = min(limits.max_batch - state[_MEMBERS], limits.prefills_per_pause, room, len(asked.ready) - after)
    admitted = 0
    while admitted < places and asked.ready[after + admitted] <= now:
        needed = asked.blocks[after + admitted]
        if needed > state[_FREE]:
            break
        state[_FREE] -= needed
        admitted += 1
    state[_MEMBERS] += admitted
    return admitted


def _with_work(elapsed: Callable[..., Any]) -> Callable[..., Any]:
    def publish(at: int, asked: Asked, given: Given, driver: Driver, disturbance: Disturbance, state: Integers) -> None:
        """The work on the tokens that wait begins at `at`: who has ended leaves, and the next step may be decided."""
        opened, lanes = state[_OPEN], state[_LANES]
        decided = at + elapsed(driver.update + driver.update_a_lane * lanes, True, disturbance, state)
        out = decided + elapsed(driver.deliver_a_lane * lanes, True, disturbance, state)
        state[_DECIDED], state[_OPEN] = decided, _NOTHING
        if opened < len(given.ends):
            given.ends[opened] = out
            left, blocks = given.leaving[0, opened], given.leaving[2, opened]
        else:
            request = opened - len(given.ends)
            given.first[request] = out
            left = 1 if asked.outputs[request] == 1 else 0
            blocks = left * asked.blocks[request]
        state[_MEMBERS] -= left
        state[_FINISHED] += left
        state[_FREE] += blocks

    return publish


def _with_launches(elapsed: Callable[..., Any], publish: Callable[..., Any]) -> Callable[..., Any]:
    def fire(
        step: int, lanes: int, graph: int, before: int, goes_on: bool, asked: Asked, given: Given, driver: Driver,
        disturbance: Disturbance, state: Integers,
    ) -> None:  # fmt: skip
        """Launches a graph that was decided; tokens of the one before are looked at beside it."""
        waits, decided, done = state[_OPEN] != _NOTHING, state[_DECIDED], state[_DONE]
        launched = max(decided, done) + elapsed(driver.serial + before, True, disturbance, state) + driver.launch
        if waits:
            # Tokens are looked at once the next step is launched; a thread of its own that is late does not wait.
            late = decided > done and not driver.one_process
            publish(decided if late else launched, asked, given, driver, disturbance, state)
        if goes_on:
            state[_EXPOSED] += launched - state[_ENDED_AT]
        state[_BUSY] += graph
        state[_ENDED_AT] = launched + graph
        state[_DONE] = launched + graph + driver.look
        state[_OPEN], state[_LANES] = step, lanes
        if not driver.overlapped:
            publish(state[_DONE], asked, given, driver, disturbance, state)

    return fire


def _joins(request: int, step: int, asked: Asked, given: Given) -> bool:
    """A prefill's request decodes from `step` on; False for one whose first token is its last."""
    given.joined[request] = step
    last = step + asked.outputs[request] - 2
    if last < step:
        return False
    given.leaving[0, last] += 1
    given.leaving[1, last] += asked.prompts[request] + asked.outputs[request]
    given.leaving[2, last] += asked.blocks[request]
    return True


def _with_rules(*rules: Callable[..., Any]) -> Callable[..., Any]:
    decode_time, admissible, joins, publish, fire = rules

    def loop(
        asked: Asked, tables: Any, limits: Any, driver: Any, disturbance: Any, given: Given, state: Any, until: int
    ) -> int:
        """Fills the arrays; returns how many decode steps there were."""
        after = running = context = used = step = prefills = 0
        count, wait, resumed, goes_on = len(asked.ready), driver.idle_first, False, False
        while state[_FINISHED] < count and state[_DECIDED] < until:
            now = state[_DECIDED]
            room = (driver.window - used if driver.window else _NO_LIMIT) - 1
            if prefills == 0 and not (resumed and running):
                prefills = admissible(now, after, room, asked, limits, state)
                resumed = prefills > 0
                pending = after < count and asked.ready[after] <= now
                if prefills == 0 and (room < 0 or (room < 1 and pending and running == 0)):
                    state[_DECIDED], used = now + driver.relaunch, 0
                    continue
            if prefills:
                prompt = asked.prompts[after]
                fire(len(given.ends) + after, 1, tables.prefill[prompt], driver.prefill, goes_on, asked, given, driver,
                     disturbance, state)  # fmt: skip
                if joins(after, step, asked, given):
                    running, context = running + 1, context + prompt + 1
                after, prefills, used, goes_on, wait = after + 1, prefills - 1, used + 1, True, driver.idle_first
            elif running:
                given.batch[step] = running
                fire(step, running, decode_time(tables, running, context), driver.serial_a_lane * running, goes_on,
                     asked, given, driver, disturbance, state)  # fmt: skip
                context += running - given.leaving[1, step]
                running -= given.leaving[0, step]
                step, used, resumed, goes_on, wait = step + 1, used + 1, False, True, driver.idle_first
            elif state[_OPEN] != _NOTHING:
                # Nothing to run beside the last step: a request that comes while it runs is decided at once.
                rests = max(state[_DONE], now)
                if after < count and asked.ready[after] < rests:
                    state[_DECIDED] = max(now, asked.ready[after])
                else:
                    publish(rests, asked, given, driver, disturbance, state)
            elif driver.idle_most == 0:
                state[_DECIDED], goes_on = max(now, asked.ready[after]), False
            else:
                state[_DECIDED], wait, goes_on = now + wait, min(2 * wait, driver.idle_most), False
        return step

    return loop


@cache
def _loop(compiled: bool) -> Callable[..., Any]:
    """The loop, by numba where it is wanted and installed."""
    compile_rule, elapsed = compiler(compiled), elapsed_rule(compiled)
    publish = compile_rule(_with_work(elapsed))
    fire = compile_rule(_with_launches(elapsed, publish))
    others = (compile_rule(rule) for rule in (_decode_time, _admissible, _joins))
    loop: Callable[..., Any] = compile_rule(_with_rules(*others, publish, fire))
    return loop
