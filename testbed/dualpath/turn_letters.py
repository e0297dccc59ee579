"""Letters of control: leaders fetch, the scheduler assigns, turns advance and end (design dualpath 1.2, 1.3).

Some go between the leaders of a turn's two sides too, where one ends it. A part of `testbed.dualpath.letters`.
"""

from __future__ import annotations

import msgspec

from testbed.dualpath.letter import Letter
from testbed.serving.turns import Turn


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


class ReadQueued(Letter, frozen=True, tag="read_queue"):
    """A node's disk-reading queue has changed: tokens that its storage reads still have to bring."""

    node: str
    tokens: int
    taken: int = -1
    """As in `FetchWork`."""


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


class Produced(Letter, frozen=True, tag="produced"):
    """Tokens of a turn's answer, on their way to the agent."""

    name: str
    tokens: int
    done: bool = False


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


class TurnEnded(Letter, frozen=True, tag="ended"):
    """An engine is done with a turn: it no longer counts in `seq_e` and `tok_e`."""

    name: str
    node: str
    engine: int
    failure: str = ""
    """Why it broke off; empty when all went well."""
    lost_blocks: bool = False
    """It broke off because storage could not give its hit blocks: placed again, the agent's hits are computed anew."""


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
