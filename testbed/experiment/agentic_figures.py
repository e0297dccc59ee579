"""The figures of agentic serving in a summary: what is measured of agents, read paths, NICs, attention and storage.

Structs only; `testbed.experiment.agentic_summary` makes them. Each part is None where nothing of its kind was logged,
so a system without KV traffic has none of them. Times and bytes are true ones; repeats are pooled: values of
distributions together, shares and ratios as the mean of the repeats'.
"""

from __future__ import annotations

import msgspec

from testbed.experiment.isolation_figures import IsolationFigures
from testbed.metrics.tally import Spread


class JobTimes(msgspec.Struct, frozen=True):
    """Job completion times, in seconds."""

    total_s: float | None
    """Of the run, first start to last end; the mean of the repeats."""
    least_s: float | None
    """Of the repeat that was quickest."""
    most_s: float | None
    agent_s: Spread
    """Of each agent that has all its answers."""
    agents: int
    failed: int
    """Agents that gave up."""
    running: int
    """Agents that were at work when the log ended."""
    in_objectives: float | None
    """Share of the ended turns with TTFT <= 4 s and TPOT <= 50 ms (paper, 1.11)."""


class TtftPart(msgspec.Struct, frozen=True):
    """One part of the times to first token."""

    share: float | None
    """Of the sum of all of them."""
    mean_ms: float | None


class TurnsByPath(msgspec.Struct, frozen=True):
    """Turns by the side that read their hit KV."""

    prefill: int
    decode: int
    split: int
    none: int
    """Nothing to read."""


class SideBytes(msgspec.Struct, frozen=True):
    """True bytes read from storage, by side."""

    prefill: int
    decode: int


class PathFigures(msgspec.Struct, frozen=True):
    """Placed turns and what they read."""

    turns: TurnsByPath
    hit_tokens: int
    prompt_tokens: int
    hit_rate: float | None
    """Hit tokens ÷ prompt tokens."""
    read_bytes: SideBytes
    decode_share: float | None
    """Of the bytes read, those over the decode nodes' SNICs."""


class HopFigures(msgspec.Struct, frozen=True):
    """One row of the table of hops."""

    count: int
    bytes: int
    blocks: int
    modelled_bytes: int | None
    """What the hop model gives for the placed turns; None where it does not speak of this run."""
    time_ms: Spread
    """Handed to the NIC until done."""


class ModelFigures(msgspec.Struct, frozen=True):
    """How far measured bytes are from the hop model: the worst port, in percent of the modelled bytes."""

    snic_percent: float | None
    cnic_percent: float | None
    counted_percent: float | None
    """SNICs by the kernel's counters, which have headers and control letters in them; None without an emulation."""
    where: str
    """The port that is farthest off in the first two."""


class SideUse(msgspec.Struct, frozen=True):
    """How busy the SNICs of one side were, from the first storage transfer of the run to the last."""

    busy: float | None
    """Share of the true rate into the node, mean of the side's SNICs; for storage nodes out of it."""
    busiest: float | None
    """Of its busiest SNIC."""
    loaded: float | None
    """As `busy`, until half of the agents had ended."""
    counted: float | None
    """As `busy`, by the kernel's counters (headers included); None under the simulated clock."""
    bytes: int


class NicFigures(msgspec.Struct, frozen=True):
    """Balance of NICs: the most that one carried in a window ÷ the mean of all, over windows of three lengths."""

    max_over_avg: dict[str, float | None]
    """By window of true time; the mean over all windows in which something was carried."""
    excess: dict[str, float | None]
    """The same less 1."""
    windows: dict[str, int]
    """How many there were."""
    ports: int


class SnicFigures(NicFigures, frozen=True):
    """Storage NICs: of engines' nodes where balance is meant."""

    pe: SideUse
    de: SideUse
    storage: SideUse


class ResourceUse(msgspec.Struct, frozen=True):
    """The resources of one kind on one side, from the first transfer of the run to the last."""

    busy: float | None
    """Mean share of their rate."""
    busiest: float | None
    loaded: float | None
    """As `busiest`, until half of the agents had ended."""
    bytes: int


class AttentionFigures(msgspec.Struct, frozen=True):
    """How evenly the engines of a group shared attention."""

    max_over_avg: dict[str, float | None]
    """`whole`, and `to_5_percent` … `to_100_percent` of the run's progress."""
    steps: int


class CollectiveFigures(msgspec.Struct, frozen=True):
    """One kind of collective operation."""

    n: int
    """Operations of 16 packets or more, whose times count."""
    small: int
    bytes: int
    time_us: Spread
    """Due until done."""


class BlockFigures(msgspec.Struct, frozen=True):
    """Blocks of storage."""

    read: int
    """Full Blocks that came from storage."""
    verified: int
    """Layer Blocks in HBM whose checksum was held against what they should be, before prefill or decode used them."""
    rejected: int
    """By a checksum, or since a replica could not give them."""
    reached_engines: int
    """Rejected ones that were found in the HBM of an engine only: none may."""
    reasons: dict[str, int]
    written: int
    """Full Blocks that went to storage."""


class ChunkFigures(msgspec.Struct, frozen=True):
    """One kind of chunk operation at the storage nodes."""

    n: int
    bytes: int
    disk_ms: Spread


class AccidentFigures(msgspec.Struct, frozen=True):
    """What was lost on the way."""

    nodes_lost: int
    turns_replaced: int
    turns_given_up: int
    lost: dict[str, str]
    """Node and who found it."""


class BatchFigures(msgspec.Struct, frozen=True):
    """Forward batches of one kind."""

    tokens: Spread
    """Computed in each."""
    turns: Spread
    cached_tokens: int
    computing: float | None
    """Share of the batches' time in which they computed; the rest waited for transfers."""
    attention_ms: float
    """The longest attention of one batch, all layers."""
    hbm_bytes: int
    """Most KV that an engine held during a batch."""


class RoomFigures(msgspec.Struct, frozen=True):
    """Memory for KV on one side."""

    peak_bytes: int
    """Of the fullest."""
    total_bytes: int
    """Of one."""
    waiting: int
    """Most turns that waited at one of them."""


class EngineFigures(msgspec.Struct, frozen=True):
    """Engines of one side."""

    busy: float | None
    """Mean share of time in which they computed."""
    least: float | None
    most: float | None
    tokens: int


class AgenticFigures(msgspec.Struct, frozen=True, kw_only=True):
    """All parts, by the names that metric paths use."""

    jct: JobTimes | None = None
    ttft_split: dict[str, TtftPart] | None = None
    """By part: scheduling, allocation, reading, prefill, rest."""
    paths: PathFigures | None = None
    hops: dict[str, HopFigures] | None = None
    hop_model: ModelFigures | None = None
    snic: SnicFigures | None = None
    cnic: NicFigures | None = None
    """By the bytes on their wires, of all engines' CNICs."""
    resources: dict[str, dict[str, ResourceUse]] | None = None
    """By side (pe, de, storage) and kind (snic_rx, cnic_read, …, dram)."""
    attention: AttentionFigures | None = None
    collectives: dict[str, CollectiveFigures] | None = None
    """By operation, and `all_to_all` for dispatch and combine together."""
    isolation: IsolationFigures | None = None
    """Only of systems that log a forecast of a port (docs/models/isolation.md)."""
    blocks: BlockFigures | None = None
    chunks: dict[str, ChunkFigures] | None = None
    """By operation."""
    accidents: AccidentFigures | None = None
    batches: dict[str, BatchFigures] | None = None
    """By kind: prefill or decode."""
    buffers: dict[str, RoomFigures] | None = None
    """By side: pe or de."""
    hbm: dict[str, RoomFigures] | None = None
    engines: dict[str, EngineFigures] | None = None
