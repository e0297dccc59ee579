"""A turn at the leader of its prefill node: the stages it goes through, and what is under way for it.

Knows no message's way and no time. docs/models/dualpath.md draws the table.
"""

from __future__ import annotations

from enum import Enum

from testbed.dualpath.buffers import Extents
from testbed.dualpath.handover_letters import BufferGranted
from testbed.dualpath.turn_letters import Assign
from testbed.serving.transitions import Transitions


class PrefillStage(Enum):
    """Where a turn is."""

    WANTED = "wanted"
    """Assigned; the decode side has not granted a place yet."""
    QUEUED = "queued"
    """Waits for room in the PE buffer."""
    READING = "reading"
    """Hits are being read, on either side."""
    PREFILLING = "prefilling"
    """At its engine."""
    BREAKING = "breaking"
    """Failed; something of it is still under way."""


class PrefillMove(Enum):
    """What moves a turn on."""

    GRANT = "grant"
    ROOM = "room"
    READ = "read"
    BREAK = "break"


PREFILL_TABLE: Transitions[PrefillStage, PrefillMove] = Transitions(
    "turn at its prefill leader",
    PrefillStage.WANTED,
    {
        (PrefillStage.WANTED, PrefillMove.GRANT): PrefillStage.QUEUED,
        (PrefillStage.QUEUED, PrefillMove.ROOM): PrefillStage.READING,
        (PrefillStage.READING, PrefillMove.READ): PrefillStage.PREFILLING,
        (PrefillStage.WANTED, PrefillMove.BREAK): PrefillStage.BREAKING,
        (PrefillStage.QUEUED, PrefillMove.BREAK): PrefillStage.BREAKING,
        (PrefillStage.READING, PrefillMove.BREAK): PrefillStage.BREAKING,
        (PrefillStage.PREFILLING, PrefillMove.BREAK): PrefillStage.BREAKING,
    },
)


class PrefillTurn:
    """A turn of which this node has the prefill."""

    def __init__(self, assign: Assign, ids: tuple[int, ...]) -> None:
        self.assign = assign
        self.ids = ids
        """Blocks of its prompt, the last one perhaps of fewer tokens."""
        self.stage = PREFILL_TABLE.first
        self.there: BufferGranted | None = None
        self.extents: Extents = ()
        self.reading = False
        """Its hits of this side are being read."""
        self.far_ready = assign.prefill_blocks == assign.hit_blocks
        """Hits of the decode side are in its buffer, or there are none."""
        self.at_engine = False
        self.failure = ""
        self.lost_blocks = False
        """It failed since storage could not give its hits."""
        self.answer_to = ""
        """Decode node that waits for `Drained`."""
        self.decode_lost = False

    @property
    def is_breaking(self) -> bool:
        """Whether it has failed."""
        return self.stage is PrefillStage.BREAKING

    def move(self, move: PrefillMove) -> None:
        """Goes to the next stage. Raises `IllegalMove` and changes nothing if there is none."""
        self.stage = PREFILL_TABLE.after(self.stage, move)
