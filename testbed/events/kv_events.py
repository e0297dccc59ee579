"""Events of KV traffic: placement, read paths, transfers, forward batches, collectives, storage (DualPath).

Members of the one schema (`testbed.events.schema`), in a module of their own for length. `turn` is the name that the
agent gave its request; bytes are true ones, for images too; times are true nanoseconds, and an event's own `t` is the
end of what it tells.
"""

from __future__ import annotations

from typing import ClassVar

from testbed.machine import Event
from testbed.units import Nanoseconds


class TurnPlaced(Event, frozen=True, tag="turn.placed"):
    """The central scheduler has given a turn its engines."""

    turn: str
    prefill_node: str
    prefill_engine: int
    decode_node: str
    decode_engine: int
    hit_tokens: int
    prompt_tokens: int
    waited: Nanoseconds
    """Since the turn reached the scheduler."""


class PathChosen(Event, frozen=True, tag="path.chosen"):
    """The side that reads a turn's hit KV; `prefill_queue` and `decode_queue` are what was compared, in tokens."""

    turn: str
    path: str
    """prefill, decode, split or none (nothing to read)."""
    prefill_blocks: int
    decode_blocks: int
    prefill_queue: int
    decode_queue: int


class TurnStage(Event, frozen=True, tag="turn.stage"):
    """A turn goes from one stage to the next."""

    turn: str
    stage: str
    """queued, placed, allocated, reading, ready, prefilling, prefilled, landing, decoding, ended or failed."""
    detail: str = ""


class TransferFinished(Event, frozen=True, tag="transfer.finished"):
    """One hop of the data path is done: a real transfer, from the moment it was handed to the NIC."""

    turn: str
    hop: str
    """Row of the table of hops (docs/models/dualpath.md), as pe1-2 for steps 1 and 2 of the PE read path."""
    layer: int
    """-1 for all layers."""
    source: str
    """Node and port, as storage0.snic0."""
    target: str
    bytes: int
    blocks: int
    began: Nanoseconds
    crossed: tuple[str, ...]
    """Resources that the bytes crossed: snic_rx, snic_tx, cnic_read, cnic_write (PCIe), wire, dram, each as
    NODE.PORT.KIND or NODE.dram."""
    level: ClassVar[str] = "debug"


class CollectiveFinished(Event, frozen=True, tag="collective.finished"):
    """A collective operation is done at this engine: all parts of all peers have arrived."""

    operation: str
    """dispatch, combine, reduce_scatter or all_gather."""
    engine: int
    sequence: int
    bytes: int
    """Sent by this engine."""
    packets: int
    """In which these bytes went, at the path MTU."""
    duration: Nanoseconds
    """From the moment at which it was due."""
    level: ClassVar[str] = "debug"


class ForwardFinished(Event, frozen=True, tag="forward.finished"):
    """One forward batch of an engine is done."""

    engine: int
    kind: str
    """prefill or decode."""
    turns: tuple[str, ...]
    tokens: int
    """Computed in this batch."""
    cached: int
    """Tokens of KV that were there already."""
    began: Nanoseconds
    attention: Nanoseconds
    """Modelled attention time of all layers; 0 for decode."""
    computed: Nanoseconds
    """Modelled compute time of all layers; the rest of the batch's time is waiting for transfers."""
    hbm_bytes: int
    """Most KV that the engine held in HBM during the batch."""
    verified: int = 0
    """Layer Blocks in HBM whose checksum was held against what they should be, before they were computed with."""
    level: ClassVar[str] = "debug"


class AttentionMeasured(Event, frozen=True, tag="attention.measured"):
    """Attention time of each engine of a group in one forward step that they take together (design dualpath 1.5)."""

    step: int
    times: tuple[Nanoseconds, ...]
    level: ClassVar[str] = "debug"


class EngineMeasured(Event, frozen=True, tag="engine.measured"):
    """What an engine has computed since the last such event."""

    engine: int
    interval: Nanoseconds
    busy: Nanoseconds
    sequences: int
    tokens: int
    level: ClassVar[str] = "debug"


class ReadQueueMeasured(Event, frozen=True, tag="read_queue.measured"):
    """Tokens that the node's storage reads still have to bring."""

    tokens: int
    level: ClassVar[str] = "debug"


class BufferMeasured(Event, frozen=True, tag="buffer.measured"):
    """Memory held: DRAM buffer or HBM of an engine, in true bytes."""

    what: str
    """buffer, or hbm0, hbm1, …"""
    held: int
    total: int
    waiting: int
    """Turns that wait for room."""
    level: ClassVar[str] = "debug"


class BlockRejected(Event, frozen=True, tag="block.rejected"):
    """A block's checksum did not fit, or a replica could not give it; it is read elsewhere if it can be."""

    block: str
    """Id in hexadecimal."""
    where: str
    reason: str
    level: ClassVar[str] = "warning"


class ChunkServed(Event, frozen=True, tag="chunk.served"):
    """A storage node has served one chunk operation from its disk."""

    operation: str
    """read, write or commit."""
    block: str
    version: int
    bytes: int
    disk: Nanoseconds
    """Time of the disk alone."""
    level: ClassVar[str] = "debug"


class NodeLost(Event, frozen=True, tag="node.lost"):
    """Somebody has found that a node does not answer any more."""

    lost: str
    found_by: str
    level: ClassVar[str] = "warning"


class TurnReplaced(Event, frozen=True, tag="turn.replaced"):
    """A turn whose engine was lost is back in the scheduler's queue, or failed for good."""

    turn: str
    reason: str
    again: bool
    level: ClassVar[str] = "warning"


# --- agents -----------------------------------------------------------------------------------------------------


class AgentStarted(Event, frozen=True, tag="agent.started"):
    """An agent sends its first turn. Its turns are called `agent`.t000, `agent`.t001, …"""

    agent: str
    turns: int
    """How many it will send."""
    scheduled: Nanoseconds
    """When it was to start: its job's completion time counts from here."""


class AgentFinished(Event, frozen=True, tag="agent.finished"):
    """An agent has its last answer, or gave up since a turn failed."""

    agent: str
    outcome: str
    """finished or failed."""
    turns: int
    """Turns that were answered."""
    duration: Nanoseconds
    """Since its scheduled start; its completion time where it finished."""


class PortForecast(Event, frozen=True, tag="port.forecast"):
    """What the exact arbiter says of the port into this node, before anything was sent (docs/models/isolation.md).

    Times are of the bursts of this very run, from due until done; 0 where there are none.
    """

    kv: str
    """How KV and collectives are laid on lanes: none, own, same or wrong."""
    rate_bits_per_s: int
    """Of the port."""
    frame_bytes: int
    """Of a full packet."""
    window_packets: int
    """Most KV packets at the port at once; its buffer holds more."""
    burst_p50: Nanoseconds
    burst_p99: Nanoseconds
    floor_ppm: int
    """Share of the port's bytes that KV keeps while the collectives' lane is backlogged too, in millionths."""
    saturating: bool
    """Whether collectives keep the port busy."""
