"""What the resident scheduler writes back into the ring: tokens, counts, reasons, and the ends of requests.

The order is the contract with whoever reads the ring, by RDMA or after a crash: tokens into the arena, then the
progress word with count and reason, then the state. Whoever sees one sees those before it. It launches nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.blink.admission import SlotGeneration, SlotMover
from testbed.blink.ring import FinishReason, RingView
from testbed.blink.slots import STATE_MASK, SlotMove, SlotState, cancelled, incarnation_of
from testbed.events.run_events import LineLogged
from testbed.events.schema import TokensPublished
from testbed.machine import Effect, Emit
from testbed.serving.kv_blocks import BlockPool


class Publisher:
    """The scheduler's pen. It gives a request's KV blocks back when the request ends."""

    def __init__(self, ring: RingView, mover: SlotMover, pool: BlockPool, eos: int) -> None:
        self._ring = ring
        self._mover = mover
        self._pool = pool
        self._eos = eos

    def publish(
        self, launch: int, members: Sequence[SlotGeneration], tokens: Sequence[Sequence[int]], out: list[Effect]
    ) -> list[SlotGeneration]:
        """New tokens for each of `members`, at least one; those who are finished by them complete. Returns the others.

        What was drawn beyond the longest answer is dropped.
        """
        if not members:
            return []
        for member, drawn in zip(members, tokens, strict=True):
            for token in drawn[: member.max_tokens - member.generated]:
                self._ring.put_answer(member.answer_start + member.generated, token)
                member.push(token)
        reasons = [self._reason(member) for member in members]
        for member, reason in zip(members, reasons, strict=True):
            self._ring.publish(member.slot, member.generated, reason, member.incarnation)
        counts = tuple(member.generated for member in members)
        out.append(Emit(TokensPublished(launch, tuple(member.request for member in members), counts)))
        staying: list[SlotGeneration] = []
        for member, reason in zip(members, reasons, strict=True):
            if reason is FinishReason.NONE:
                staying.append(member)
            else:
                self._complete(member, out)
        return staying

    def merge(self, member: SlotGeneration, out: list[Effect]) -> bool:
        """Prefilled: the slot decodes from now on. False, and the blocks are free, if the slot is not ours any more."""
        if self._is_in(member, SlotState.DECODE_PROCESSING):
            return True  # it did before a restart, after which its KV was computed again
        if self._mover.move(member.slot, member.incarnation, SlotMove.MERGE, member.request, out):
            return True
        self._pool.release(member.blocks)
        return False

    def move_batch(self, members: Sequence[SlotGeneration], move: SlotMove, out: list[Effect]) -> None:
        """Pauses or resumes whom the move concerns: those who joined during a pause were never paused."""
        for member in members:
            if self._is_in(member, _FOUND_IN[move]):
                self._mover.move(member.slot, member.incarnation, move, member.request, out)

    def review(self, members: Sequence[SlotGeneration], out: list[Effect]) -> list[SlotGeneration]:
        """Ends those whose slot bears the cancel flag, forgets those whose slot a peer has taken away.

        Returns the others.
        """
        if not members:
            return []
        words = map(int, self._ring.states[[member.slot for member in members]])
        staying: list[SlotGeneration] = []
        for member, word in zip(members, words, strict=True):
            if incarnation_of(word) != member.incarnation:
                self._pool.release(member.blocks)
                out.append(Emit(LineLogged(f"slot {member.slot} was taken from request {member.request}", "error")))
            elif cancelled(word):
                self.end(member, FinishReason.CANCELLED, out)
            else:
                staying.append(member)
        return staying

    def end(self, member: SlotGeneration, reason: FinishReason, out: list[Effect]) -> None:
        """Ends a member without a new token, whatever it is doing."""
        self._ring.publish(member.slot, member.generated, reason, member.incarnation)
        if self._is_in(member, SlotState.DECODE_PAUSED):
            self._mover.move(member.slot, member.incarnation, SlotMove.RESUME, member.request, out)
        self._complete(member, out)

    def _complete(self, member: SlotGeneration, out: list[Effect]) -> None:
        self._mover.move(member.slot, member.incarnation, SlotMove.COMPLETE, member.request, out)
        self._pool.release(member.blocks)

    def _reason(self, member: SlotGeneration) -> FinishReason:
        if member.tail[1] == self._eos and not member.sampling.ignore_eos:
            return FinishReason.STOP
        return FinishReason.LENGTH if member.generated >= member.max_tokens else FinishReason.NONE

    def _is_in(self, member: SlotGeneration, state: SlotState) -> bool:
        return int(self._ring.states[member.slot]) & STATE_MASK == state


_FOUND_IN = {SlotMove.PAUSE: SlotState.DECODE_PROCESSING, SlotMove.RESUME: SlotState.DECODE_PAUSED}
