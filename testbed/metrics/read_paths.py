"""Which way KV went: turns by read path, the share of prompts that was hit, and bytes, number and time of each hop.

From turn.placed, path.chosen and transfer.finished. A turn that was placed again counts as it was placed last. Hops
are the rows of docs/models/dualpath.md (paper DualPath, Fig. 4); this file takes them as the log names them.
"""

from __future__ import annotations

import msgspec

from testbed.events.kv_events import PathChosen, TransferFinished, TurnPlaced
from testbed.events.log import Record
from testbed.machine import Event
from testbed.metrics.tally import Tally, add, copied


class Placing(msgspec.Struct):
    """Where one turn went and what it had to read."""

    prefill_node: str = ""
    prefill_engine: int = 0
    decode_node: str = ""
    decode_engine: int = 0
    hit_tokens: int = 0
    prompt_tokens: int = 0
    path: str = ""
    """prefill, decode, split or none; empty while no path is chosen."""
    prefill_blocks: int = 0
    decode_blocks: int = 0


class Hop(msgspec.Struct):
    """Sums over the transfers of one row of the table of hops."""

    count: int = 0
    bytes: int = 0
    blocks: int = 0
    times: Tally = msgspec.field(default_factory=Tally)
    """From the moment at which a transfer was handed to the NIC to its end, in nanoseconds."""


class PathState(msgspec.Struct):
    """Turns and hops so far; also the result."""

    turns: dict[str, Placing] = {}
    hops: dict[str, Hop] = {}


class PathFold:
    """Gathers placements, paths and hops."""

    state = PathState
    takes: frozenset[type[Event]] = frozenset({TurnPlaced, PathChosen, TransferFinished})

    def start(self) -> PathState:
        """Nothing yet."""
        return PathState()

    def step(self, state: PathState, record: Record) -> PathState:
        """Takes one event."""
        event = record.event
        match event:
            case TurnPlaced():
                placing = state.turns.setdefault(event.turn, Placing())
                placing.prefill_node, placing.prefill_engine = event.prefill_node, event.prefill_engine
                placing.decode_node, placing.decode_engine = event.decode_node, event.decode_engine
                placing.hit_tokens, placing.prompt_tokens = event.hit_tokens, event.prompt_tokens
            case PathChosen():
                placing = state.turns.setdefault(event.turn, Placing())
                placing.path = event.path
                placing.prefill_blocks, placing.decode_blocks = event.prefill_blocks, event.decode_blocks
            case TransferFinished():
                hop = state.hops.setdefault(event.hop, Hop())
                hop.count += 1
                hop.bytes += event.bytes
                hop.blocks += event.blocks
                add(hop.times, record.t - event.began)
        return state

    def result(self, state: PathState) -> PathState:
        """A copy of all that was gathered."""
        return PathState(
            turns={name: msgspec.structs.replace(placing) for name, placing in state.turns.items()},
            hops={name: msgspec.structs.replace(hop, times=copied(hop.times)) for name, hop in state.hops.items()},
        )
