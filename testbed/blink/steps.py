"""What one launch computes: a token for each running sequence, a prompt or part of one, or both."""

from __future__ import annotations

from typing import NamedTuple

from testbed.blink.admission import SlotGeneration
from testbed.serving.engine import Lane
from testbed.serving.graph_cache import CHUNK, DECODE, MIXED, PREFILL


class Step(NamedTuple):
    """One launch of the resident scheduler. Lanes: the decoding ones in order, the prefilling one last."""

    decoding: tuple[SlotGeneration, ...] = ()
    prefilling: SlotGeneration | None = None
    fresh: int = 0
    """Tokens of the prefilling one's context that this step computes."""

    @property
    def kind(self) -> str:
        """Which kind of graph it needs."""
        if self.prefilling is None:
            return DECODE
        if self.decoding:
            return MIXED
        return PREFILL if self.fresh == self.prefilling.context else CHUNK

    @property
    def members(self) -> tuple[SlotGeneration, ...]:
        """All that take part, in order of their lanes."""
        return self.decoding if self.prefilling is None else (*self.decoding, self.prefilling)

    @property
    def completes_prompt(self) -> bool:
        """Whether the prefilling one has its first token after this step."""
        return self.prefilling is not None and self.prefilling.computed + self.fresh == self.prefilling.context

    def lanes(self) -> tuple[Lane, ...]:
        """The graph's input tensors."""
        lanes = tuple(member.lane() for member in self.decoding)
        return lanes if self.prefilling is None else (*lanes, self.prefilling.prompt_lane(self.fresh))
