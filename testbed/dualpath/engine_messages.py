"""What a node's leader engine and its engines tell each other about turns.

The leader owns the node's DRAM buffer and speaks with the scheduler and the other side; an engine owns its HBM.
Places are of the node's own regions (`testbed.dualpath.places`).
"""

from __future__ import annotations

import msgspec

from testbed.dualpath.places import Area, Holding
from testbed.dualpath.round_letters import EngineLoad
from testbed.machine import Message, RemoteAddress

LEADER = "leader"
"""Name of the leader engine's machine on engines' nodes."""


def engine_name(number: int) -> str:
    """Name of the machine of one engine."""
    return f"engine{number}"


class PrefillJob(msgspec.Struct, frozen=True):
    """A turn whose hit KV can be fetched and whose target is granted."""

    name: str
    block_ids: tuple[int, ...]
    """Of the prompt, the last block perhaps of fewer tokens."""
    prompt_tokens: int
    answer_tokens: int
    hit_blocks: int
    here: Holding
    """Hit blocks in this node's PE buffer: the first ones of the prompt, all or none unless reads are split."""
    here_blocks: int
    decode_node: str
    decode_engine: int
    there: Holding
    """Places of what this side sends, in the decode node's region."""
    base: RemoteAddress
    """First byte of that region."""
    landing: str
    """buffer or hbm: which rows of the table of hops apply."""


class StartPrefill(Message, frozen=True):
    """Leader to prefill engine. Answered by one `PrefillEnded`, whatever happens."""

    job: PrefillJob


class PrefillEnded(Message, frozen=True):
    """Prefill engine to leader: nothing of the turn is in HBM or under way any more."""

    name: str
    failure: str = ""


class Cancel(Message, frozen=True):
    """Leader to engine: end the turn as soon as nothing of it is under way."""

    name: str
    reason: str
    lost: str = ""
    """Node that is gone for good: nothing is waited for from it."""


class DecodeJob(msgspec.Struct, frozen=True):
    """A turn that a decode engine will answer."""

    name: str
    block_ids: tuple[int, ...]
    """Of prompt and answer, as far as they are full."""
    prompt_ids: tuple[int, ...]
    prompt_tokens: int
    answer_tokens: int
    stored_blocks: int
    """Full Blocks of the prompt that storage holds already."""


class ReserveHbm(Message, frozen=True):
    """Leader to decode engine: room for all KV of a turn, before its prefill (`decode_landing = "hbm"`)."""

    job: DecodeJob


class HbmReserved(Message, frozen=True):
    """The answer to `ReserveHbm`, once there is room."""

    name: str
    prompt: Area


class StartDecode(Message, frozen=True):
    """Leader to decode engine: the prompt's KV is here. Answered by `Landed`, then by one `DecodeEnded`."""

    job: DecodeJob
    source: Holding
    """What is still to be copied into HBM."""
    hop: str
    """pe8-9 or de6-7."""


class Landed(Message, frozen=True):
    """Decode engine to leader: the host buffer is not needed any more."""

    name: str


class DecodeEnded(Message, frozen=True):
    """Decode engine to leader: answered and persisted, or broken off; its HBM is free."""

    name: str
    failure: str = ""


class HbmChanged(Message, frozen=True):
    """Decode engine to leader."""

    engine: int
    free_blocks: int


# --- steps that engines take together (`testbed.dualpath.rounds`) -----------------------------------------------------


class RoundWanted(Message, frozen=True):
    """Engine to rounds: it has work and is in no round."""


class RoundBegins(Message, frozen=True):
    """Rounds to engine: form a batch, perhaps of nothing. Answered by `RoundFormed`."""

    number: int


class RoundFormed(Message, frozen=True):
    """The answer to `RoundBegins`."""

    engine: int
    load: EngineLoad


class RoundGoes(Message, frozen=True):
    """Rounds to engine: all have formed theirs. Answered by `RoundOver` after the last layer."""

    number: int
    loads: tuple[EngineLoad, ...]
    """Of all engines of the group, node by node."""


class RoundOver(Message, frozen=True):
    """The answer to `RoundGoes`."""

    engine: int
    more: bool
    """Whether it has work for another round."""


class GroupBroken(Message, frozen=True):
    """Rounds to engine: the group will never step again."""

    reason: str
