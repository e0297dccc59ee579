"""How many turns a second DualPath's rules place at the paper's largest scale: as Python, and compiled by numba.

One decision is all of them for one turn: prefill placement in a group of 8 engines, a decode group out of 96, a decode
engine out of 8, the read path. 48 prefill and 96 decode nodes are the paper's 48P96D, 1,152 engines. numba is imported
here, in testbed.serving.iteration where it is installed, and in tests (docs/decisions/0001).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from testbed.dualpath import decode_placement, path_choice, prefill_placement

PREFILL_NODES, DECODE_NODES, ENGINES = 48, 96, 8
RUNNING = 20_000
"""Turns in the system at any time, of the 48 K agents that the paper runs there."""
_TURN_TOKENS, _TURN_BLOCKS = 33_150, 519
_PLENTY = 1 << 40


def placements_per_s(compiled: bool, turns: int, repeats: int = 5) -> list[float]:
    """Turns placed a second, one figure a repeat."""
    run = decisions(compiled)
    run(10, *fresh(10))
    rates = []
    for _ in range(repeats):
        state = fresh(turns)
        start = time.perf_counter()
        run(turns, *state)
        rates.append(turns / (time.perf_counter() - start))
    return rates


def decisions(compiled: bool) -> Callable[..., None]:
    """The loop over turns, to be called with their number and what `fresh` gives; decisions are in its last array."""
    rules: list[Callable[..., Any]] = [
        prefill_placement.place, decode_placement.assign_groups, decode_placement.place, path_choice.choose,
    ]  # fmt: skip
    if not compiled:
        return _driver(*rules)
    from numba import njit

    loop: Callable[..., None] = njit(_driver(*map(njit, rules)))
    return loop


def fresh(turns: int) -> list[Any]:
    """Idle engines, and turns of the mean size of the paper's 64K trace."""
    chance = np.random.default_rng(1)
    lengths = chance.integers(_TURN_TOKENS // 2, _TURN_TOKENS * 3 // 2, turns)
    engines = [nodes * ENGINES for nodes in (PREFILL_NODES, DECODE_NODES)]
    return [
        lengths,
        lengths // 64,
        np.arange(engines[0]),
        np.repeat(np.arange(PREFILL_NODES), ENGINES),
        np.zeros(engines[0], np.int64),
        np.zeros(PREFILL_NODES, np.int64),
        np.arange(engines[1]),
        np.zeros(engines[1], np.int64),
        np.zeros(engines[1], np.int64),
        np.full(engines[1], _TURN_BLOCKS * RUNNING // engines[1] * 2),
        np.zeros(DECODE_NODES, np.int64),
        np.zeros(DECODE_NODES, np.int64),
        np.full((3, turns), -1),
    ]


def _driver(
    place_prefill: Callable[..., Any],
    assign_groups: Callable[..., Any],
    place_decode: Callable[..., Any],
    choose: Callable[..., Any],
) -> Callable[..., Any]:
    """The loop around the rules, which is the same for both."""

    def run(
        turns: Any, lengths: Any, needs: Any, prefill: Any, node_of: Any, prefill_tokens: Any, prefill_queue: Any,
        decode: Any, tokens: Any, sequences: Any, free: Any, group_tokens: Any, decode_queue: Any, chosen: Any,
    ) -> None:  # fmt: skip
        for turn in range(turns):
            here = slice(turn, turn + 1)
            group = turn % PREFILL_NODES
            members = prefill[group * ENGINES : (group + 1) * ENGINES]
            place_prefill(
                lengths[here], lengths[here], members, node_of, prefill_tokens, prefill_queue, 3_748_500, _PLENTY,
                chosen[0, here],
            )  # fmt: skip
            assign_groups(lengths[here], group_tokens, True, chosen[1, here])
            group = chosen[1, turn]
            members = decode[group * ENGINES : (group + 1) * ENGINES]
            place_decode(lengths[here], needs[here], members, tokens, sequences, free, 105, 256, chosen[2, here])
            engine = chosen[0, turn] // ENGINES
            choose(prefill_queue[engine], decode_queue[group], -1, 2, 0)
            if turn >= RUNNING:
                # The oldest turn ends, so that loads stay as they are in a long run.
                old = turn - RUNNING
                first, second = chosen[0, old], chosen[2, old]
                prefill_tokens[first] -= lengths[old]
                prefill_queue[first // ENGINES] -= lengths[old]
                group_tokens[chosen[1, old]] -= lengths[old]
                if second >= 0:
                    tokens[second] -= lengths[old]
                    sequences[second] -= 1
                    free[second] += needs[old]

    return run
