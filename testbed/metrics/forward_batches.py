"""What engines computed and held: batches, their tokens, attention and HBM; buffers in DRAM; how busy engines were.

From forward.finished, buffer.measured and engine.measured. Bytes are true ones. Layerwise prefill holds the KV of one
layer at a time, so tokens per batch grow about as many times as there are layers (paper DualPath, §4).
"""

from __future__ import annotations

import msgspec

from testbed.events.kv_events import BufferMeasured, EngineMeasured, ForwardFinished
from testbed.events.log import Record
from testbed.machine import Event
from testbed.metrics.tally import Tally, add, copied
from testbed.units import Nanoseconds


class Batches(msgspec.Struct):
    """Sums over the forward batches of one kind."""

    tokens: Tally = msgspec.field(default_factory=Tally)
    """Computed in each batch."""
    cached: int = 0
    turns: Tally = msgspec.field(default_factory=Tally)
    time: Nanoseconds = 0
    """From the beginning of each batch to its end."""
    computed: Nanoseconds = 0
    """Modelled compute time in them; the rest is waiting for transfers."""
    attention: Nanoseconds = 0
    longest_attention: Nanoseconds = 0
    verified: int = 0
    """Layer Blocks whose checksum was checked in HBM."""
    hbm_peak: int = 0
    """Most KV that an engine held during a batch."""


class Room(msgspec.Struct):
    """One node's buffer, or the HBM of one of its engines."""

    peak: int = 0
    total: int = 0
    waiting: int = 0
    """Most turns that waited for room at once."""


class EngineTime(msgspec.Struct):
    """One engine."""

    interval: Nanoseconds = 0
    busy: Nanoseconds = 0
    tokens: int = 0


class BatchState(msgspec.Struct):
    """Sums so far; also the result."""

    batches: dict[str, Batches] = {}
    """By kind: prefill or decode."""
    rooms: dict[str, Room] = {}
    """By NODE.buffer, NODE.hbm0, …"""
    engines: dict[str, EngineTime] = {}
    """By NODE.0, NODE.1, …"""


class BatchFold:
    """Gathers batches, rooms and engines' times."""

    state = BatchState
    takes: frozenset[type[Event]] = frozenset({ForwardFinished, BufferMeasured, EngineMeasured})

    def start(self) -> BatchState:
        """Nothing yet."""
        return BatchState()

    def step(self, state: BatchState, record: Record) -> BatchState:
        """Takes one event of an engine or its node."""
        match record.event:
            case ForwardFinished() as event:
                _batch(state.batches.setdefault(event.kind, Batches()), record.t, event)
            case BufferMeasured(what=what, held=held, total=total, waiting=waiting):
                room = state.rooms.setdefault(f"{record.node}.{what}", Room())
                room.peak, room.total = max(room.peak, held), total
                room.waiting = max(room.waiting, waiting)
            case EngineMeasured() as event:
                engine = state.engines.setdefault(f"{record.node}.{event.engine}", EngineTime())
                engine.interval += event.interval
                engine.busy += event.busy
                engine.tokens += event.tokens
        return state

    def result(self, state: BatchState) -> BatchState:
        """A copy."""
        replace = msgspec.structs.replace
        return BatchState(
            batches={
                kind: replace(one, tokens=copied(one.tokens), turns=copied(one.turns))
                for kind, one in state.batches.items()
            },
            rooms={name: replace(room) for name, room in state.rooms.items()},
            engines={name: replace(engine) for name, engine in state.engines.items()},
        )


def _batch(batches: Batches, end: Nanoseconds, event: ForwardFinished) -> None:
    add(batches.tokens, event.tokens)
    add(batches.turns, len(event.turns))
    batches.cached += event.cached
    batches.time += max(0, end - event.began)
    batches.computed += event.computed
    batches.attention += event.attention
    batches.longest_attention = max(batches.longest_attention, event.attention)
    batches.verified += event.verified
    batches.hbm_peak = max(batches.hbm_peak, event.hbm_bytes)
