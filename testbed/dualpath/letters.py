"""All letters in one union, and the envelope that one travels in, as `testbed.events.schema` has all events.

Each subject has a module of its own: control of turns, hand-over between prefill and decode, rounds, chunks of storage,
the pool. `testbed.dualpath.mail` carries them. A new letter is a class in one of those and a member here.
"""

from __future__ import annotations

from typing import TypeAlias, Union

import msgspec

from testbed.dualpath.chunk_letters import (
    AskVersion,
    ChunksRead,
    ChunkStored,
    ChunksWritten,
    ForwardChunk,
    Knock,
    ReadChunks,
    TellVersion,
    WriteChunks,
)
from testbed.dualpath.handover_letters import BufferGranted, HitsReady, LayerSent, LayerWanted, PrefillDone
from testbed.dualpath.pool_letters import PoolDone, PoolLookup, PoolPlaces
from testbed.dualpath.round_letters import PartArrived, RoundAsk, RoundDone, RoundOpen, RoundReady, RoundStart
from testbed.dualpath.turn_letters import (
    Abort,
    Assign,
    BlocksPersisted,
    Drained,
    FetchWork,
    NodeGone,
    Produced,
    ProducedMany,
    ReadQueued,
    TurnEnded,
)

AnyLetter: TypeAlias = Union[  # noqa: UP007  # a flat tagged union
    FetchWork,
    Assign,
    TurnEnded,
    Produced,
    ReadQueued,
    ProducedMany,
    BlocksPersisted,
    BufferGranted,
    HitsReady,
    LayerWanted,
    LayerSent,
    PrefillDone,
    Abort,
    Drained,
    NodeGone,
    RoundAsk,
    RoundOpen,
    RoundReady,
    RoundStart,
    RoundDone,
    ReadChunks,
    ChunksRead,
    WriteChunks,
    ChunksWritten,
    ForwardChunk,
    ChunkStored,
    AskVersion,
    TellVersion,
    Knock,
    PartArrived,
    PoolLookup,
    PoolPlaces,
    PoolDone,
]
"""All letters."""


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A letter on its way."""

    to: str
    """Name of a machine of the peer."""
    letter: AnyLetter
