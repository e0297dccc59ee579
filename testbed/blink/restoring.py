"""A new scheduler takes over the ring that a dead one left: from the ring alone, whatever was being written.

The dead one wrote in an order (`publishing`): tokens into the arena, then count and reason in one word, then the
state. So the word of progress says how many tokens are whole, whatever lies behind them, and the state is at most one
move behind it. Tokens are drawn by seed and place, so what is drawn again is the same. Whoever had begun goes on;
whose descriptor or prompt does not match its checksum any more is ended with a reason. Killed in the middle, it can be
done again by the next. Our design, the paper has no recovery: docs/models/recovery.md. It launches nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from testbed.blink.admission import SlotGeneration, SlotMover
from testbed.blink.ring import (
    ECHO_MASK,
    DamagedDescriptor,
    FinishReason,
    Progress,
    RingView,
    tokens_from,
    unpack_progress,
)
from testbed.blink.slots import SlotMove, SlotState, cancelled, incarnation_of, state_of
from testbed.events.run_events import LineLogged
from testbed.machine import Effect, Emit
from testbed.serving.kv_blocks import BlockPool

CLAIMED = (SlotState.PREFILL_PROCESSING, SlotState.DECODE_PROCESSING, SlotState.DECODE_PAUSED)
"""States of slots that a scheduler has made its own."""


class Restored(NamedTuple):
    """What was found."""

    running: list[SlotGeneration]
    """Go on with the KV that they had; their slots decode."""
    waiting: list[SlotGeneration]
    """To be prefilled, those with tokens already together with them; in order of arrival."""
    ended: int
    interrupted: int


class _CannotGoOn(Exception):
    """A request that ends here, and why."""

    def __init__(self, reason: FinishReason, words: str) -> None:
        self.reason = reason
        self.words = words
        super().__init__(reason, words)


class Restoring:
    """Goes through a ring, once."""

    def __init__(
        self, ring: RingView, mover: SlotMover, pool: BlockPool, *, context_tokens: int, keep_kv: bool
    ) -> None:
        """`keep_kv` says that the KV in HBM is believed; else it is computed again."""
        self._ring = ring
        self._mover = mover
        self._pool = pool
        self._context_tokens = context_tokens
        self._keep_kv = keep_kv

    def restore(self, out: list[Effect]) -> Restored:
        """Takes over every claimed slot, those that arrived first first."""
        found = Restored([], [], 0, 0)
        ended = interrupted = 0
        for slot in self._claimed():
            word = self._ring.memory.load(self._ring.layout.state(slot))
            progress = self._progress(slot, word)
            if progress.reason is not FinishReason.NONE:
                self._complete(slot, word, out)
                ended += 1
                continue
            if cancelled(word):
                self._end(slot, word, progress, FinishReason.CANCELLED, out)
                ended += 1
                continue
            try:
                member = self._member(slot, word, progress)
            except _CannotGoOn as end:
                out.append(Emit(LineLogged(f"slot {slot} after a restart: {end.words}", "error")))
                self._end(slot, word, progress, end.reason, out)
                interrupted += 1
                continue
            self._settle(member, word, out)
            (found.running if self._goes_on(member) else found.waiting).append(member)
        return found._replace(ended=ended, interrupted=interrupted)

    def _claimed(self) -> Iterator[int]:
        slots = np.concatenate([self._ring.slots_in(state) for state in CLAIMED])
        order = np.argsort(self._ring.request_numbers(slots), kind="stable")
        return map(int, slots[order])

    def _progress(self, slot: int, word: int) -> Progress:
        """What is published of this use of the slot; between a claim and its first word that is nothing."""
        progress = unpack_progress(self._ring.memory.load(self._ring.layout.progress(slot)))
        if progress.echo != incarnation_of(word) & ECHO_MASK:
            return Progress(0, FinishReason.NONE, incarnation_of(word) & ECHO_MASK)
        return progress

    def _member(self, slot: int, word: int, progress: Progress) -> SlotGeneration:
        incarnation, generated = incarnation_of(word), progress.generated
        # A slot that nobody had got a token from is judged as admission would have judged it.
        damaged = FinishReason.INTERRUPTED if generated else FinishReason.DAMAGED
        try:
            descriptor = self._ring.descriptor(slot, incarnation)
            prompt = tokens_from(self._ring.prompt(descriptor)[-8:])
        except DamagedDescriptor as damage:
            raise _CannotGoOn(damaged, str(damage)) from damage
        longest = descriptor.prompt_tokens + descriptor.max_tokens
        if self._pool.needed(longest) > self._pool.total or longest > self._context_tokens:
            raise _CannotGoOn(FinishReason.KV_TOO_SMALL, f"{longest} tokens are more than the device holds")
        if generated >= descriptor.max_tokens or (not generated and state_of(word) is not _FIRST):
            raise _CannotGoOn(FinishReason.INTERRUPTED, f"{generated} tokens do not fit its state")
        member = SlotGeneration(slot, incarnation, descriptor, (prompt[0], prompt[-1]), ())
        tail = min(generated, 2)
        member.generated = generated - tail
        for token in self._ring.answers(descriptor.answer_start + member.generated, tail):
            member.push(token)
        return member

    def _goes_on(self, member: SlotGeneration) -> bool:
        """Whether it decodes with the KV that it had; it has its blocks then. Whoever waits gets them later."""
        if not (self._keep_kv and member.generated):
            return False
        blocks = self._pool.allocate(self._pool.needed(member.prompt_tokens + member.max_tokens))
        if blocks is None:
            return False
        member.blocks = blocks
        return True

    def _settle(self, member: SlotGeneration, word: int, out: list[Effect]) -> None:
        """The slot's state catches up with its progress."""
        state, slot = state_of(word), member.slot
        if state is SlotState.DECODE_PAUSED:
            self._mover.move(slot, member.incarnation, SlotMove.RESUME, member.request, out)
        elif state is SlotState.PREFILL_PROCESSING and member.generated:
            self._mover.move(slot, member.incarnation, SlotMove.MERGE, member.request, out)
        elif not member.generated:
            self._ring.publish(slot, 0, FinishReason.NONE, member.incarnation)

    def _end(self, slot: int, word: int, progress: Progress, reason: FinishReason, out: list[Effect]) -> None:
        self._ring.publish(slot, progress.generated, reason, incarnation_of(word))
        self._complete(slot, word, out)

    def _complete(self, slot: int, word: int, out: list[Effect]) -> None:
        incarnation = incarnation_of(word)
        request = int(self._ring.request_numbers(np.asarray([slot]))[0])
        if state_of(word) is SlotState.DECODE_PAUSED:
            self._mover.move(slot, incarnation, SlotMove.RESUME, request, out)
        self._mover.move(slot, incarnation, SlotMove.COMPLETE, request, out)


_FIRST = SlotState.PREFILL_PROCESSING
