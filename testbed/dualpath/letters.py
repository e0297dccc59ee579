"""Letters: what machines of different nodes tell each other, by SEND. One module holds them all, as events have one.

Letters are control only and small; KV moves by WRITE and READ (`testbed.dualpath.traffic_manager`). A letter names
no sender unless its reader needs it. `testbed.dualpath.mail` carries them.
"""

from __future__ import annotations

from typing import TypeAlias, Union

import msgspec

from testbed.machine import Message
from testbed.serving.turns import Turn


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
    """Full Blocks of the prompt that storage holds."""


class TurnEnded(Letter, frozen=True, tag="ended"):
    """An engine is done with a turn: it no longer counts in `seq_e` and `tok_e`."""

    name: str
    node: str
    engine: int
    failure: str = ""
    """Why it broke off; empty when all went well."""


class Produced(Letter, frozen=True, tag="produced"):
    """Tokens of a turn's answer, on their way to the agent."""

    name: str
    tokens: int
    done: bool = False


class ReadQueued(Letter, frozen=True, tag="read_queue"):
    """A node's disk-reading queue has changed: tokens that its storage reads still have to bring."""

    node: str
    tokens: int


AnyLetter: TypeAlias = Union[FetchWork, Assign, TurnEnded, Produced, ReadQueued]  # noqa: UP007  # a flat tagged union
"""All letters. A new one is a class here and a member of this union."""


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A letter on its way."""

    to: str
    """Name of a machine of the peer."""
    letter: AnyLetter
