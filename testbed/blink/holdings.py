"""What the DPU owns of the ring and lends to requests: slots and extents of both arenas.

Given out together and taken back together, so that nothing is lost on any path a request can take (tested: at drain,
everything given out has come back).
"""

from __future__ import annotations

from testbed.blink.arenas import ArenaAllocator
from testbed.blink.parameters import BlinkParameters
from testbed.blink.request_tracker import NOWHERE, TrackedRequest
from testbed.blink.slot_tracker import Found, SlotTracker
from testbed.blink.slots import SlotMove, incarnation_of, moved


class Holdings:
    """Slot tracker and arenas."""

    def __init__(self, parameters: BlinkParameters) -> None:
        self.slots = SlotTracker(parameters.slots)
        self.prompts = ArenaAllocator(parameters.input_arena_tokens)
        self.answers = ArenaAllocator(parameters.token_arena_tokens)
        self._header = parameters.answer_header

    def reserve(self, tracked: TrackedRequest) -> Found | str:
        """Gives a request its slot and extents, or says what there is none of (and gives nothing)."""
        if not self._reserve_extents(tracked):
            return "no room in the arenas for another prompt or answer"
        found = self.slots.take()
        if found is None:
            self.drop_extents(tracked)
            return f"all {self.slots.slots} slots are taken"
        tracked.slot = found.slot
        tracked.word = found.word
        tracked.incarnation = incarnation_of(moved(found.word, SlotMove.SUBMIT))
        return found

    def drop_extents(self, tracked: TrackedRequest) -> None:
        """Takes both extents back, at the request's end: a restarted scheduler reads prompts again."""
        if tracked.input_start != NOWHERE:
            self.prompts.release(tracked.input_start)
            tracked.input_start = NOWHERE
        if tracked.answer_start != NOWHERE:
            self.answers.release(tracked.answer_start - self._header)
            tracked.answer_start = NOWHERE

    def drop_slot(self, tracked: TrackedRequest) -> None:
        """Takes the slot back; `tracked.word` says whether it is empty."""
        if tracked.slot != NOWHERE:
            self.slots.give(tracked.slot, tracked.word)
            tracked.slot = NOWHERE

    def drop(self, tracked: TrackedRequest) -> None:
        """Takes everything back."""
        self.drop_extents(tracked)
        self.drop_slot(tracked)

    def _reserve_extents(self, tracked: TrackedRequest) -> bool:
        """Extents for prompt and answer, unless it has them from an earlier attempt."""
        if tracked.input_start != NOWHERE:
            return True
        prompt = self.prompts.allocate(len(tracked.prompt))
        if prompt is None:
            return False
        answer = self.answers.allocate(tracked.request.max_tokens + self._header)
        if answer is None:
            self.prompts.release(prompt)
            return False
        tracked.input_start, tracked.answer_start = prompt, answer + self._header
        return True
