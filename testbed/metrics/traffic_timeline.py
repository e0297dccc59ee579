"""When what moved: stages of turns, transfers, forward batches, memory and read queues, for traces and tables.

Beside `testbed.metrics.timeline`, which has requests and tokens; a fold of its own, since a run has many more
transfers than requests and only exports want them. From the events of KV traffic; knows no system.
"""

from __future__ import annotations

import msgspec

from testbed.events.kv_events import (
    BlockRejected,
    BufferMeasured,
    ForwardFinished,
    NodeLost,
    ReadQueueMeasured,
    TransferFinished,
    TurnReplaced,
    TurnStage,
)
from testbed.events.log import Record
from testbed.machine import Event
from testbed.metrics.read_paths import PathFold, PathState
from testbed.units import Nanoseconds


class Stage(msgspec.Struct, frozen=True, array_like=True):
    """A turn enters a stage."""

    t: Nanoseconds
    node: str
    stage: str
    detail: str


class Transfer(msgspec.Struct, frozen=True, array_like=True):
    """One hop, done at `end`."""

    began: Nanoseconds
    end: Nanoseconds
    turn: str
    hop: str
    layer: int
    source: str
    target: str
    bytes: int
    blocks: int
    crossed: tuple[str, ...]


class Forward(msgspec.Struct, frozen=True, array_like=True):
    """One forward batch."""

    began: Nanoseconds
    end: Nanoseconds
    engine: str
    """NODE.0, NODE.1, …"""
    kind: str
    turns: tuple[str, ...]
    tokens: int
    cached: int
    attention: Nanoseconds
    computed: Nanoseconds
    hbm_bytes: int


class Held(msgspec.Struct, frozen=True, array_like=True):
    """What a memory holds from `t` on."""

    t: Nanoseconds
    place: str
    """NODE.buffer, NODE.hbm0, …"""
    held: int
    total: int
    waiting: int


class Queue(msgspec.Struct, frozen=True, array_like=True):
    """Tokens that a node's storage reads still have to bring."""

    t: Nanoseconds
    node: str
    tokens: int


class Accident(msgspec.Struct, frozen=True, array_like=True):
    """Something was lost or wrong."""

    t: Nanoseconds
    node: str
    words: str


class TrafficState(msgspec.Struct):
    """Everything in the order of the log; also the result."""

    paths: PathState = msgspec.field(default_factory=PathState)
    stages: dict[str, list[Stage]] = {}
    """By turn."""
    transfers: list[Transfer] = []
    forwards: list[Forward] = []
    held: list[Held] = []
    queues: list[Queue] = []
    accidents: list[Accident] = []
    end: Nanoseconds = 0
    """The last moment anything was heard of."""


class TrafficFold:
    """Gathers all that."""

    state = TrafficState
    takes: frozenset[type[Event]] = frozenset(
        {
            *PathFold.takes, TurnStage, TransferFinished, ForwardFinished, BufferMeasured, ReadQueueMeasured,
            BlockRejected, NodeLost, TurnReplaced,
        }
    )  # fmt: skip

    def start(self) -> TrafficState:
        """Nothing yet."""
        return TrafficState()

    def step(self, state: TrafficState, record: Record) -> TrafficState:
        """Takes one event."""
        event = record.event
        if type(event) not in self.takes:
            return state
        state.end = max(state.end, record.t)
        if type(event) in PathFold.takes:
            PathFold().step(state.paths, record)
        _take(state, record)
        return state

    def result(self, state: TrafficState) -> TrafficState:
        """A copy of all that was gathered."""
        return msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=TrafficState)


def _take(state: TrafficState, record: Record) -> None:
    t, node = record.t, record.node
    match record.event:
        case TurnStage(turn=turn, stage=stage, detail=detail):
            state.stages.setdefault(turn, []).append(Stage(t, node, stage, detail))
        case TransferFinished() as one:
            state.transfers.append(
                Transfer(one.began, t, one.turn, one.hop, one.layer, one.source, one.target, one.bytes, one.blocks,
                         one.crossed)
            )  # fmt: skip
        case ForwardFinished() as batch:
            state.forwards.append(
                Forward(batch.began, t, f"{node}.{batch.engine}", batch.kind, batch.turns, batch.tokens, batch.cached,
                        batch.attention, batch.computed, batch.hbm_bytes)
            )  # fmt: skip
        case BufferMeasured(what=what, held=held, total=total, waiting=waiting):
            state.held.append(Held(t, f"{node}.{what}", held, total, waiting))
        case ReadQueueMeasured(tokens=tokens):
            state.queues.append(Queue(t, node, tokens))
        case BlockRejected(block=block, where=where, reason=reason):
            state.accidents.append(Accident(t, node, f"block {block} at {where}: {reason}"))
        case NodeLost(lost=lost):
            state.accidents.append(Accident(t, node, f"{lost} is lost"))
        case TurnReplaced(turn=turn, reason=reason, again=again):
            state.accidents.append(Accident(t, node, f"{turn} {'placed again' if again else 'given up'}: {reason}"))
