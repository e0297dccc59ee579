"""A turn at a decode engine: its pages of HBM, how many tokens it has, what of it is under way.

Bookkeeping only; knows no engine and no message but the one that brings the turn.
"""

from __future__ import annotations

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.buffers import Extents
from testbed.dualpath.engine_messages import DecodeJob, StartDecode
from testbed.dualpath.places import Holding


class DecodeSequence:
    """A turn in this engine's HBM, or waiting for it."""

    def __init__(self, job: DecodeJob, shape: BlockShape) -> None:
        self.job = job
        self.prompt_blocks = shape.blocks_of(job.prompt_tokens)
        # The last token of an answer has no KV yet when the answer is done.
        self.answer_blocks = shape.blocks_of(job.prompt_tokens + job.answer_tokens - 1) - self.prompt_blocks
        self.extents: Extents | None = None
        self.place = Holding(())
        self.start: StartDecode | None = None
        """Set once the prompt's KV is on this node."""
        self.joined = False
        self.produced = 1
        """Tokens of the answer; prefill has made the first."""
        self.flying = 0
        """Moves into or out of its HBM that are not answered yet."""
        self.writing = 0
        """Writes to storage that are not answered yet."""
        self.unstaged = range(0)
        """Full blocks that wait for staging pages."""
        self.stored: set[int] = set()
        """New blocks that storage has."""
        self.told = job.stored_blocks
        """Leading full blocks that the scheduler was told to be in storage."""
        self.failure = ""

    @property
    def cached(self) -> int:
        """Tokens of KV."""
        return self.job.prompt_tokens + self.produced - 1

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be computed for it."""
        return bool(self.failure) or (self.joined and self.produced == self.job.answer_tokens)
