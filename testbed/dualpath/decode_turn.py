"""A turn at the leader of its decode node: the stages it goes through, its places, and what is under way for it.

Knows no message's way and no time. docs/models/dualpath.md draws the table.
"""

from __future__ import annotations

from enum import Enum

from testbed.dualpath.buffers import Extents
from testbed.dualpath.engine_messages import DecodeJob
from testbed.dualpath.places import Area, Holding
from testbed.dualpath.turn_letters import Assign
from testbed.serving.transitions import Transitions


class DecodeStage(Enum):
    """Where a turn is."""

    RESERVING = "reserving"
    """Waits for HBM, where KV lands there."""
    QUEUED = "queued"
    """Waits for room in the DE buffer."""
    GRANTED = "granted"
    """The prefill side has its place; hits of this side are read, layers served."""
    DECODING = "decoding"
    """At its engine."""
    BREAKING = "breaking"
    """Failed; something of it is still under way."""


class DecodeMove(Enum):
    """What moves a turn on."""

    RESERVE = "reserve"
    ROOM = "room"
    PREFILLED = "prefilled"
    BREAK = "break"


DECODE_TABLE: Transitions[DecodeStage, DecodeMove] = Transitions(
    "turn at its decode leader",
    DecodeStage.RESERVING,
    {
        (DecodeStage.RESERVING, DecodeMove.RESERVE): DecodeStage.QUEUED,
        (DecodeStage.QUEUED, DecodeMove.ROOM): DecodeStage.GRANTED,
        (DecodeStage.GRANTED, DecodeMove.PREFILLED): DecodeStage.DECODING,
        (DecodeStage.RESERVING, DecodeMove.BREAK): DecodeStage.BREAKING,
        (DecodeStage.QUEUED, DecodeMove.BREAK): DecodeStage.BREAKING,
        (DecodeStage.GRANTED, DecodeMove.BREAK): DecodeStage.BREAKING,
        (DecodeStage.DECODING, DecodeMove.BREAK): DecodeStage.BREAKING,
    },
)


class DecodeTurn:
    """A turn of which this node has the decode."""

    def __init__(self, assign: Assign, job: DecodeJob, prompt_blocks: int) -> None:
        self.assign = assign
        self.job = job
        self.prompt_blocks = prompt_blocks
        self.far_hits = assign.hit_blocks - assign.prefill_blocks
        """Hit blocks that are read on this side."""
        self.stage = DECODE_TABLE.first
        self.extents: Extents = ()
        self.hbm: Area | None = None
        self.landing = Holding(())
        """Where the prefill side writes."""
        self.hits = Holding(())
        """Where the hits of this side lie."""
        self.reading = False
        self.serving = 0
        """Layers that are on their way to the prefill side."""
        self.at_engine = False
        self.quiet = False
        """The prefill side touches nothing of this turn any more."""
        self.failure = ""
        self.lost_blocks = False
        """It failed since storage could not give its hits."""

    @property
    def is_breaking(self) -> bool:
        """Whether it has failed."""
        return self.stage is DecodeStage.BREAKING

    def move(self, move: DecodeMove) -> None:
        """Goes to the next stage. Raises `IllegalMove` and changes nothing if there is none."""
        self.stage = DECODE_TABLE.after(self.stage, move)
