"""How evenly the engines of a group share attention: Max/Avg of each forward step that they take together.

Engines that exchange tokens for experts meet before every FFN, so a step lasts as long as its slowest member (paper
DualPath, §6.2 and Fig. 14). Over several steps the times are added first: sum of the most ÷ sum of the means, so a
long step weighs as much as it lasts and a step of two tokens hides nothing. Progress is time: from the first measured
step of the run to the last, in twenty parts. A step in which no engine had attention is none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from testbed.events.kv_events import AttentionMeasured
from testbed.events.log import Record
from testbed.machine import Event
from testbed.units import Nanoseconds

PARTS = 20
"""Of progress: 5 % each, as the paper's figure."""


class GroupStep(msgspec.Struct, frozen=True, array_like=True):
    """One step of one group."""

    t: Nanoseconds
    most: Nanoseconds
    total: Nanoseconds
    engines: int


class AttentionState(msgspec.Struct):
    """Every step that had attention; also the result."""

    steps: list[GroupStep] = []


class AttentionFold:
    """Gathers attention.measured."""

    state = AttentionState
    takes: frozenset[type[Event]] = frozenset({AttentionMeasured})

    def start(self) -> AttentionState:
        """No step yet."""
        return AttentionState()

    def step(self, state: AttentionState, record: Record) -> AttentionState:
        """Takes one step of a group."""
        event = record.event
        if isinstance(event, AttentionMeasured) and any(event.times):
            state.steps.append(GroupStep(record.t, max(event.times), sum(event.times), len(event.times)))
        return state

    def result(self, state: AttentionState) -> AttentionState:
        """A copy."""
        return AttentionState(list(state.steps))


def ratio(steps: Iterable[GroupStep]) -> float | None:
    """Sum of the most ÷ sum of the means; None of no steps."""
    chosen = list(steps)
    # The exact quotient of whole numbers where groups are equally large, as they are.
    means = sum(step.total / step.engines for step in chosen)
    return sum(step.most for step in chosen) / means if means else None


def by_progress(steps: Sequence[GroupStep]) -> tuple[float | None, ...]:
    """The ratio in each of `PARTS` parts of the run."""
    if not steps:
        return (None,) * PARTS
    first, last = min(step.t for step in steps), max(step.t for step in steps)
    parts: list[list[GroupStep]] = [[] for _ in range(PARTS)]
    for step in steps:
        parts[min(PARTS - 1, (step.t - first) * PARTS // max(1, last - first))].append(step)
    return tuple(ratio(part) for part in parts)
