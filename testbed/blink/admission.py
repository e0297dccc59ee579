"""Finding new prompts and claiming them: the scheduler's way from a pending slot to a generation with KV blocks.

The parallel scan sees the state plane, the policy chooses in order of arrival, and each chosen slot is claimed by
compare-and-swap. Only then is its prompt believed, and only if descriptor and prompt match their checksums: a slot
whose writes arrived torn or out of order is finished with a reason, like one that the KV pool could never hold.
This file launches nothing and knows no time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.blink.prefix_reuse import PrefixReuse
from testbed.blink.ring import IGNORE_EOS, DamagedDescriptor, Descriptor, FinishReason, RingView, tokens_from
from testbed.blink.slots import (
    LostSlot,
    SlotMove,
    SlotState,
    incarnation_of,
    move_slot,
    state_of,
)
from testbed.events.prefix_events import PrefixReused
from testbed.events.run_events import LineLogged
from testbed.events.schema import SlotClaimed, SlotMoved
from testbed.machine import Effect, Emit
from testbed.serving.batch import Generation
from testbed.serving.kv_blocks import BlockPool
from testbed.serving.policy import AdmissionPolicy, AdmissionView, Candidate
from testbed.serving.requests import Sampling
from testbed.units import Nanoseconds


class SlotGeneration(Generation):
    """A generation that lives in a slot of the ring."""

    __slots__ = ("answer_start", "incarnation", "keys", "slot")

    def __init__(self, slot: int, incarnation: int, found: Descriptor, tail: tuple[int, int], blocks: tuple[int, ...]):
        sampling = Sampling(found.temperature, found.top_p, found.seed, bool(found.flags & IGNORE_EOS))
        super().__init__(found.request, found.prompt_tokens, found.max_tokens, sampling, tail, blocks)
        self.slot = slot
        self.incarnation = incarnation
        self.answer_start = found.answer_start
        self.keys: tuple[bytes, ...] = ()
        """Names of its prompt's whole KV blocks, where prefixes are remembered."""


class SlotMover:
    """Moves slots of the ring for the scheduler, with an event a move."""

    def __init__(self, ring: RingView) -> None:
        self.ring = ring

    def move(self, slot: int, incarnation: int, move: SlotMove, request: int, out: list[Effect]) -> bool:
        """Moves one slot; False, with a line in the log, if the slot is not ours any more (a peer's fault)."""
        try:
            before, after = move_slot(self.ring.memory, self.ring.layout.state(slot), move, incarnation)
        except LostSlot as lost:
            out.append(Emit(LineLogged(f"slot {slot} of request {request}: {lost}", "error")))
            return False
        names = state_of(before).name.lower(), state_of(after).name.lower()
        out.append(Emit(SlotMoved(slot, incarnation, *names, request)))
        return True

    def finish(self, slot: int, incarnation: int, request: int, reason: FinishReason, out: list[Effect]) -> None:
        """Ends a claimed slot that has no token: the reason is published, then the slot completes."""
        self.ring.publish(slot, 0, reason, incarnation)
        self.move(slot, incarnation, SlotMove.COMPLETE, request, out)


class _Found(NamedTuple):
    candidate: Candidate
    descriptor: Descriptor
    keys: tuple[bytes, ...]


class Admission:
    """Scan, choice and claim."""

    def __init__(
        self,
        ring: RingView,
        pool: BlockPool,
        policy: AdmissionPolicy,
        context_tokens: int,
        reuse: PrefixReuse | None = None,
    ) -> None:
        """`reuse` where KV of earlier prompts is found again."""
        self._reuse = reuse
        self._ring = ring
        self._pool = pool
        self._policy = policy
        self._context_tokens = context_tokens
        self._mover = SlotMover(ring)
        self.scans = 0
        """Scans so far."""
        self.pending = 0
        """Pending slots that the last scan saw and nobody has claimed since."""
        self.restored: deque[SlotGeneration] = deque()
        """Requests of an earlier life of the scheduler that are to be prefilled again, before all others."""

    def scan(self) -> npt.NDArray[np.int64]:
        """One parallel scan of all slots: the pending ones."""
        self.scans += 1
        slots = self._ring.slots_in(SlotState.PREFILL_PENDING)
        self.pending = len(slots)
        return slots

    def admit(
        self, now: Nanoseconds, slots: npt.NDArray[np.int64], running: int, places: int, out: list[Effect]
    ) -> list[SlotGeneration]:
        """Claims whom the policy admits among `slots`, at most `places`; the claimed have their KV blocks."""
        if self.restored:
            return list(self._readmit(places))
        if not len(slots) or places < 1:
            return []
        order = slots[np.argsort(self._ring.request_numbers(slots), kind="stable")]
        found = self._candidates(order, self._policy.lookahead or places, out)
        view = AdmissionView(tuple(each.candidate for each in found), running, places, self._pool.free)
        by_slot = {each.candidate.key: each for each in found}
        claimed = [self._claim(by_slot[candidate.key], out) for candidate in self._policy.choose(now, view)]
        return [generation for generation in claimed if generation is not None]

    def _readmit(self, places: int) -> Iterator[SlotGeneration]:
        """Of those restored the next ones for which there are KV blocks; nobody overtakes who waits for some."""
        for _ in range(places):
            if not self.restored:
                return
            member = self.restored[0]
            blocks = self._pool.allocate(self._pool.needed(member.prompt_tokens + member.max_tokens))
            if blocks is None:
                return
            member.blocks = blocks
            yield self.restored.popleft()

    def refuse(self, slots: npt.NDArray[np.int64], reason: FinishReason, out: list[Effect]) -> None:
        """Ends all `slots` with `reason`: the device cannot serve any more."""
        for slot in map(int, slots):
            incarnation = self._incarnation(slot)
            number = int(self._ring.request_numbers(np.asarray([slot]))[0])
            self._end(slot, incarnation, number, reason, out)

    def _candidates(self, order: npt.NDArray[np.int64], wanted: int, out: list[Effect]) -> list[_Found]:
        found: list[_Found] = []
        for slot in map(int, order):
            if len(found) == wanted:
                break
            incarnation = self._incarnation(slot)
            try:
                descriptor = self._ring.descriptor(slot, incarnation)
            except DamagedDescriptor as damaged:
                out.append(Emit(LineLogged(f"slot {slot}: {damaged}", "error")))
                self._end(slot, incarnation, 0, FinishReason.DAMAGED, out)
                continue
            longest = descriptor.prompt_tokens + descriptor.max_tokens
            blocks = self._pool.needed(longest)
            if blocks > self._pool.total or longest > self._context_tokens:
                self._end(slot, incarnation, descriptor.request, FinishReason.KV_TOO_SMALL, out)
                continue
            keys: tuple[bytes, ...] = ()
            if self._reuse is not None:
                keys = self._reuse.keys(descriptor)
                blocks -= self._reuse.shared(descriptor, keys)
            numbers = (descriptor.request, descriptor.prompt_tokens, descriptor.max_tokens, blocks)
            found.append(_Found(Candidate(slot, *numbers), descriptor, keys))
        return found

    def _claim(self, found: _Found, out: list[Effect]) -> SlotGeneration | None:
        candidate, descriptor, keys = found
        slot, incarnation = candidate.key, descriptor.incarnation
        given = self._blocks_for(descriptor, keys)
        if given is None:
            return None
        blocks, cached = given
        claimed: list[Effect] = []
        if not self._mover.move(slot, incarnation, SlotMove.CLAIM, candidate.request, claimed):
            # Withdrawn between scan and claim: the DPU's right, nothing to report.
            self._pool.release(blocks)
            return None
        self.pending -= 1
        out.append(Emit(SlotClaimed(candidate.request, slot, incarnation, self.scans)))
        out.extend(claimed)
        try:
            prompt = self._ring.prompt(descriptor)
        except DamagedDescriptor as damaged:
            out.append(Emit(LineLogged(f"slot {slot} of request {candidate.request}: {damaged}", "error")))
            self._mover.finish(slot, incarnation, candidate.request, FinishReason.DAMAGED, out)
            self._pool.release(blocks)
            return None
        if self._reuse is not None:
            self._reuse.note(descriptor, cached)
            numbers = (candidate.request, descriptor.prompt_tokens, cached, self._reuse.idle, self._reuse.evicted)
            out.append(Emit(PrefixReused(*numbers)))
        self._ring.publish(slot, 0, FinishReason.NONE, incarnation)
        last = tokens_from(prompt[-8:])
        generation = SlotGeneration(slot, incarnation, descriptor, (last[0], last[-1]), blocks)
        generation.computed, generation.keys = cached, keys
        return generation

    def _blocks_for(self, descriptor: Descriptor, keys: tuple[bytes, ...]) -> tuple[tuple[int, ...], int] | None:
        """KV blocks for prompt and longest answer, and how many tokens of the prompt lie in the first of them."""
        needed = self._pool.needed(descriptor.prompt_tokens + descriptor.max_tokens)
        if self._reuse is not None:
            return self._reuse.allocate(descriptor, keys, needed)
        blocks = self._pool.allocate(needed)
        return None if blocks is None else (blocks, 0)

    def _end(self, slot: int, incarnation: int, request: int, reason: FinishReason, out: list[Effect]) -> None:
        claimed: list[Effect] = []
        if self._mover.move(slot, incarnation, SlotMove.CLAIM, request, claimed):
            self.pending -= 1
            out.extend(claimed)
            self._mover.finish(slot, incarnation, request, reason, out)

    def _incarnation(self, slot: int) -> int:
        return incarnation_of(self._ring.memory.load(self._ring.layout.state(slot)))
