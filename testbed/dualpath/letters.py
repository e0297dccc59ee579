"""Letters: what machines of different nodes tell each other, by SEND. One module holds them all, as events have one.

Letters are control only and small; KV moves by WRITE and READ (`testbed.dualpath.traffic_manager`). A letter names
no sender unless its reader needs it. `testbed.dualpath.mail` carries them.
"""

from __future__ import annotations

from typing import TypeAlias, Union

import msgspec

from testbed.machine import Message
from testbed.serving.turns import Turn
from testbed.units import Nanoseconds


class Letter(Message, frozen=True, tag_field="type", forbid_unknown_fields=True):
    """Base of all letters."""


# --- leader engines and the central scheduler (design dualpath 1.2, 1.3) --------------------------------------------


class EngineReport(msgspec.Struct, frozen=True, array_like=True):
    """What a leader says of one engine of its group when it fetches."""

    engine: int
    """Number of the engine on its node."""
    sequences: int
    """`seq_e`: requests assigned and not finished."""
    tokens: int
    """`tok_e`: total tokens of those."""
    free_blocks: int = 0
    """Free KV blocks of its HBM; decode engines only."""


class FetchWork(Letter, frozen=True, tag="fetch"):
    """A leader engine fetches for its group, which are all engines of its node."""

    node: str
    role: str
    """prefill or decode."""
    engines: tuple[EngineReport, ...]
    read_queue: int
    """Tokens that the node's storage reads still have to bring."""
    taken: int = -1
    """`Assign` letters that the leader has had so far, so that none is counted twice or not at all; -1: not told."""


class Assign(Letter, frozen=True, tag="assign"):
    """The scheduler's decision on one turn; goes to both nodes."""

    turn: Turn
    prefill_node: str
    prefill_engine: int
    decode_node: str
    decode_engine: int
    prefill_blocks: int
    """Leading hit blocks that are read on the prefill side; the others are read on the decode side. All or none
    unless reads are split."""
    hit_blocks: int
    """Full Blocks of the prompt that are read from storage."""
    stored_blocks: int = 0
    """Full Blocks of it that storage holds, where these are more than are read; they are not written again."""


class TurnEnded(Letter, frozen=True, tag="ended"):
    """An engine is done with a turn: it no longer counts in `seq_e` and `tok_e`."""

    name: str
    node: str
    engine: int
    failure: str = ""
    """Why it broke off; empty when all went well."""
    lost_blocks: bool = False
    """It broke off because storage could not give its hit blocks: placed again, the agent's hits are computed anew."""


class Produced(Letter, frozen=True, tag="produced"):
    """Tokens of a turn's answer, on their way to the agent."""

    name: str
    tokens: int
    done: bool = False


class ReadQueued(Letter, frozen=True, tag="read_queue"):
    """A node's disk-reading queue has changed: tokens that its storage reads still have to bring."""

    node: str
    tokens: int
    taken: int = -1
    """As in `FetchWork`."""


# --- the two engines of a turn (docs/models/dualpath.md) --------------------------------------------------------------


class TurnProgress(msgspec.Struct, frozen=True, array_like=True):
    """Tokens of one turn in a `ProducedMany`."""

    name: str
    tokens: int
    done: bool = False


class ProducedMany(Letter, frozen=True, tag="produced_many"):
    """As `Produced`, for several turns of one decode step."""

    turns: tuple[TurnProgress, ...]


class BlocksPersisted(Letter, frozen=True, tag="persisted"):
    """To the scheduler, from the decode side: the first `blocks` Full Blocks of the turn's prompt and answer are in
    storage now. Comes before the decode side's `TurnEnded`; the KV of an answer's last token is never made.
    """

    name: str
    blocks: int


class BufferGranted(Letter, frozen=True, tag="granted"):
    """From the decode leader to the prefill leader: where the turn's KV is to be written, layer by layer."""

    name: str
    region: str
    """The DE buffer, or hbm3 where KV lands straight in HBM."""
    extents: tuple[tuple[int, int], ...]
    """(first slot, slots) of Full Blocks; within an extent layers follow one another, blocks within each layer."""
    skipped: int
    """Hit blocks of the decode side that have no place among these slots."""


class HitsReady(Letter, frozen=True, tag="hits_ready"):
    """From the decode leader to the prefill leader: the hit blocks of the decode side are in its buffer."""

    name: str


class LayerWanted(Letter, frozen=True, tag="layer_wanted"):
    """From a prefill engine to the decode leader: WRITE blocks of one layer into my HBM, `count` from `first` on."""

    name: str
    node: str
    engine: int
    layer: int
    first: int
    count: int
    extents: tuple[tuple[int, int], ...]
    """(first slot, slots) of Layer Blocks of the HBM."""
    ticket: int


class LayerSent(Letter, frozen=True, tag="layer_sent"):
    """The answer to `LayerWanted`, once the WRITEs are complete."""

    ticket: int
    failure: str = ""


class PrefillDone(Letter, frozen=True, tag="prefill_done"):
    """From the prefill leader to the decode leader: all KV of the prompt is at the place that was granted."""

    name: str


class Abort(Letter, frozen=True, tag="abort"):
    """To a leader, from the other side's leader or from the scheduler: end this turn. Both sides answer the scheduler
    by `TurnEnded` when its memory is free.
    """

    name: str
    reason: str
    node: str = ""
    """Decode node whose leader waits for `Drained`; empty: nobody."""
    quiet: bool = False
    """From the prefill side, which touches nothing of the turn any more."""


class Drained(Letter, frozen=True, tag="drained"):
    """From the prefill leader to the decode leader, after `Abort`: nothing of the turn is written there any more."""

    name: str


class NodeGone(Letter, frozen=True, tag="node_gone"):
    """A node does not answer any more. From a leader that found out to the scheduler, and from the scheduler to all
    leaders: turns that it has a part in fail there, and the scheduler places them again.
    """

    node: str


# --- rounds: forward steps that engines of several nodes take together (`testbed.dualpath.rounds`) --------------------


class EngineLoad(msgspec.Struct, frozen=True, array_like=True):
    """What one engine brings into a round."""

    attention: Nanoseconds = 0
    """Modelled attention time of its batch, all layers; prefill only."""
    tokens: int = 0
    """Computed in this round."""
    context: int = 0
    """Tokens of KV; decode only."""


class RoundAsk(Letter, frozen=True, tag="round_ask"):
    """To the head of a group: an engine of `node` has work."""

    node: str


class RoundOpen(Letter, frozen=True, tag="round_open"):
    """From the head: form your batches."""

    number: int


class RoundReady(Letter, frozen=True, tag="round_ready"):
    """To the head: all engines of `node` have."""

    node: str
    number: int
    loads: tuple[EngineLoad, ...]


class RoundStart(Letter, frozen=True, tag="round_start"):
    """From the head: all engines of the group have."""

    number: int
    loads: tuple[EngineLoad, ...]
    """Node by node."""


class RoundDone(Letter, frozen=True, tag="round_done"):
    """To the head: all engines of `node` are through all layers."""

    node: str
    number: int
    more: bool
    """Whether one of them has work for another round."""


# --- storage: clients and servers, and the servers of a chain (docs/models/storage.md) --------------------------------


class ChunkPlace(msgspec.Struct, frozen=True, array_like=True):
    """A chunk, and where its image is in the memory of the letter's writer."""

    block: int
    address: int


class ChunkRefused(msgspec.Struct, frozen=True, array_like=True):
    """A chunk of a batch that could not be served."""

    place: int
    """Of the chunk in the batch, from 0."""
    reason: str


class ReadChunks(Letter, frozen=True, tag="read_chunks"):
    """From a storage client: WRITE these chunks to my memory. Answered by one or more `ChunksRead`."""

    node: str
    batch: int
    """The client's own number."""
    hop: str
    request: str
    port: str
    """The client's port, as snic0."""
    key: int
    until: int
    """True time after which no WRITE may be posted: the client's memory may be another's by then."""
    chunks: tuple[ChunkPlace, ...]


class ChunksRead(Letter, frozen=True, tag="chunks_read"):
    """From a storage server: so many more chunks of the batch are in the client's memory, or will not be."""

    node: str
    batch: int
    read: tuple[int, ...]
    """Places in the batch."""
    refused: tuple[ChunkRefused, ...] = ()


class WriteChunks(Letter, frozen=True, tag="write_chunks"):
    """From a storage client to the head of the chunks' chains: READ them from my memory and keep them.

    Answered by one or more `ChunksWritten`.
    """

    node: str
    batch: int
    request: str
    port: str
    key: int
    chunks: tuple[ChunkPlace, ...]


class ChunksWritten(Letter, frozen=True, tag="chunks_written"):
    """From the head: so many more chunks of the batch are committed on every live node of their chain, or will not."""

    node: str
    batch: int
    written: tuple[int, ...]
    refused: tuple[ChunkRefused, ...] = ()


class ForwardChunk(Letter, frozen=True, tag="forward_chunk"):
    """From a storage node to the next of the chain: READ this version from my memory and keep it."""

    node: str
    request: str
    block: int
    version: int
    address: int
    key: int


class ChunkStored(Letter, frozen=True, tag="chunk_stored"):
    """The answer to `ForwardChunk`: committed from here to the tail, or failed there."""

    node: str
    block: int
    version: int
    failure: str = ""


class AskVersion(Letter, frozen=True, tag="ask_version"):
    """From a storage node that has an uncommitted version to the tail: which one is committed (CRAQ)?"""

    node: str
    block: int


class TellVersion(Letter, frozen=True, tag="tell_version"):
    """The answer to `AskVersion`; 0 where there is none."""

    node: str
    block: int
    version: int


class Knock(Letter, frozen=True, tag="knock"):
    """To a storage node that has not answered for long. That it can be delivered is all that it asks."""

    node: str


class PartArrived(Letter, frozen=True, tag="part"):
    """From one engine of a group to another: my part of this collective is in your memory, before this letter."""

    sequence: int
    member: int
    """The sender's place in the group."""
    bytes: int


# --- a DRAM pool in front of storage (docs/models/dram_pool.md) -------------------------------------------------------


class PoolLookup(Letter, frozen=True, tag="pool_lookup"):
    """To the scheduler, which has the directory: where are these blocks, and which slots of mine may keep them?"""

    node: str
    number: int
    """The node's own, of this question."""
    blocks: tuple[int, ...]
    read: bool = True
    """False for new blocks, which are only to be kept."""


class PoolPlace(msgspec.Struct, frozen=True, array_like=True):
    """What the directory says of one block."""

    holder: int
    """Place of the node that holds it among the prefill and then the decode nodes; -1 for storage alone."""
    slot: int
    """Of that node's part of the pool."""
    keep: int
    """Slot of the asker's part in which it is to be kept; -1 for none."""


class PoolPlaces(Letter, frozen=True, tag="pool_places"):
    """The answer. What is told to lie somewhere stays there, and what is kept is kept, until `PoolDone`."""

    number: int
    places: tuple[PoolPlace, ...]


class PoolDone(Letter, frozen=True, tag="pool_done"):
    """To the scheduler: the reads of a question are over, and these blocks now lie in the slots kept for them."""

    node: str
    number: int
    kept: tuple[int, ...]


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
"""All letters. A new one is a class here and a member of this union."""


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A letter on its way."""

    to: str
    """Name of a machine of the peer."""
    letter: AnyLetter
