"""Prefix caching in a resident scheduler: how much of the claimed prompts was found, and what had to make room for it.

Every claim of a scheduler with a prefix cache looks its prompt up and logs `prefix.reused`; one without logs none. It
knows that event alone, not the tree. Beyond the Blink paper, which has no prefix cache.
"""

from __future__ import annotations

import msgspec

from testbed.events.log import Record
from testbed.events.prefix_events import PrefixReused
from testbed.machine import Event


class PrefixState(msgspec.Struct):
    """So far; also the result."""

    prompts: int = 0
    """Claimed prompts that were looked up."""
    hits: int = 0
    """Those of them of which something was found."""
    prompt_tokens: int = 0
    """Tokens of all of them."""
    cached_tokens: int = 0
    """Tokens at their fronts whose KV was found."""
    evicted_blocks: int = 0
    """Remembered KV blocks that had to make room."""
    evicted_by: dict[str, int] = {}
    """What each scheduler has counted of them, by node."""


class PrefixFold:
    """Counts what was found."""

    state = PrefixState
    takes: frozenset[type[Event]] = frozenset({PrefixReused})

    def start(self) -> PrefixState:
        """Nothing was looked up."""
        return PrefixState()

    def step(self, state: PrefixState, record: Record) -> PrefixState:
        """Takes one look-up."""
        match record.event:
            case PrefixReused(prompt_tokens=prompt, cached_tokens=cached, evicted_blocks=evicted):
                state.prompts += 1
                state.hits += cached > 0
                state.prompt_tokens += prompt
                state.cached_tokens += cached
                before = state.evicted_by.get(record.node, 0)
                # A scheduler that took over counts from 0 again.
                state.evicted_blocks += evicted - before if evicted >= before else evicted
                state.evicted_by[record.node] = evicted
        return state

    def result(self, state: PrefixState) -> PrefixState:
        """A copy of what was counted."""
        return msgspec.structs.replace(state, evicted_by=dict(state.evicted_by))
