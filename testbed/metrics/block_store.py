"""What storage did: chunk operations and their disk time, blocks that were rejected, nodes that were lost.

From chunk.served, block.rejected, node.lost and turn.replaced. How many blocks were read stands in the hops
(`testbed.metrics.read_paths`).
"""

from __future__ import annotations

import re

import msgspec

from testbed.events.kv_events import BlockRejected, ChunkServed, NodeLost, TurnReplaced
from testbed.events.log import Record
from testbed.machine import Event
from testbed.metrics.tally import Tally, add, copied

_NUMBER = re.compile(r"\b[0-9a-f]{16}\b|\d+", re.ASCII)
"""What makes two texts of one reason differ: ids of blocks, layers, counts."""


class Chunks(msgspec.Struct):
    """Sums over one kind of chunk operation."""

    bytes: int = 0
    disk: Tally = msgspec.field(default_factory=Tally)
    """Time of the disk alone, in nanoseconds."""


class StoreState(msgspec.Struct):
    """Sums so far; also the result."""

    chunks: dict[str, Chunks] = {}
    """By operation: read, write or commit."""
    rejected: dict[str, int] = {}
    """Blocks by reason, with # for each number."""
    in_hbm: int = 0
    """Those of them that were found in the HBM of an engine: nothing before has caught them."""
    lost: dict[str, str] = {}
    """Who found it, by lost node; the first to say so."""
    replaced: int = 0
    """Turns that went back to the scheduler's queue."""
    given_up: int = 0
    """Turns that failed for good when their engine was lost."""


class StoreFold:
    """Gathers storage and accidents."""

    state = StoreState
    takes: frozenset[type[Event]] = frozenset({ChunkServed, BlockRejected, NodeLost, TurnReplaced})

    def start(self) -> StoreState:
        """Nothing has happened."""
        return StoreState()

    def step(self, state: StoreState, record: Record) -> StoreState:
        """Takes one event."""
        match record.event:
            case ChunkServed(operation=operation, bytes=size, disk=disk):
                chunks = state.chunks.setdefault(operation, Chunks())
                chunks.bytes += size
                add(chunks.disk, disk)
            case BlockRejected(where=where, reason=reason):
                words = _NUMBER.sub("#", reason)
                state.rejected[words] = state.rejected.get(words, 0) + 1
                state.in_hbm += where.startswith("hbm")
            case NodeLost(lost=lost, found_by=found_by):
                state.lost.setdefault(lost, found_by)
            case TurnReplaced(again=again):
                state.replaced += again
                state.given_up += not again
        return state

    def result(self, state: StoreState) -> StoreState:
        """A copy."""
        return msgspec.structs.replace(
            state,
            chunks={name: msgspec.structs.replace(one, disk=copied(one.disk)) for name, one in state.chunks.items()},
            rejected=dict(state.rejected),
            lost=dict(state.lost),
        )
