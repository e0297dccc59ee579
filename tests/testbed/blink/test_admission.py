from __future__ import annotations

import zlib

import numpy as np
import pytest

from testbed.blink.admission import Admission, SlotGeneration
from testbed.blink.ring import Descriptor, FinishReason, RingLayout, RingView, token_bytes, unpack_progress
from testbed.blink.slots import SlotMove, SlotState, incarnation_of, move_slot, pack, state_of
from testbed.events.run_events import LineLogged
from testbed.events.schema import SlotClaimed
from testbed.machine import Effect, Emit
from testbed.network.memory_region import PlainMemory
from testbed.serving.kv_blocks import BlockPool
from testbed.serving.policy import AdmissionPolicy, AdmissionView, Candidate, FirstComeFirstServed

LAYOUT = RingLayout(8, 256, 256)


class Ring:
    """A ring that a front end has filled by hand."""

    def __init__(self, policy: AdmissionPolicy | None = None, blocks: int = 16) -> None:
        self.memory = PlainMemory(LAYOUT.size)
        self.view = RingView(self.memory, LAYOUT)
        self.pool = BlockPool(blocks, 16)
        self.admission = Admission(self.view, self.pool, policy or FirstComeFirstServed(), context_tokens=128)
        self.out: list[Effect] = []

    def put(self, slot: int, request: int, prompt: int = 10, answer: int = 6) -> None:
        tokens = token_bytes(range(request, request + prompt))
        start = LAYOUT.prompt(slot * 16)
        self.memory.view[start : start + len(tokens)] = tokens
        found = Descriptor(request, slot * 16, prompt, slot * 16, answer, 1.0, 0.5, 7, 1, zlib.crc32(tokens), 1)
        self.memory.view[LAYOUT.descriptor(slot) : LAYOUT.descriptor(slot + 1)] = found.pack()
        self.memory.store(LAYOUT.state(slot), pack(SlotState.PREFILL_PENDING, 1))

    def admit(self, places: int = 8) -> list[SlotGeneration]:
        return self.admission.admit(0, self.admission.scan(), 0, places, self.out)

    def state(self, slot: int) -> SlotState:
        return state_of(self.memory.load(LAYOUT.state(slot)))

    def claimed(self) -> list[int]:
        return [e.event.request for e in self.out if isinstance(e, Emit) and isinstance(e.event, SlotClaimed)]


def test_those_who_wait_are_claimed_in_order_of_arrival_wherever_they_lie() -> None:
    ring = Ring()
    for slot, request in ((6, 1), (0, 3), (3, 2)):
        ring.put(slot, request)
    admitted = ring.admit(places=2)
    assert [(one.request, one.slot) for one in admitted] == [(1, 6), (2, 3)]
    assert ring.claimed() == [1, 2]
    assert ring.state(0) is SlotState.PREFILL_PENDING
    assert ring.admission.pending == 1
    assert ring.pool.free == 14


def test_a_generation_knows_what_its_descriptor_says() -> None:
    ring = Ring()
    ring.put(2, 40, prompt=9, answer=5)
    (one,) = ring.admit()
    assert (one.slot, one.incarnation, one.answer_start, one.prompt_tokens, one.max_tokens) == (2, 1, 32, 9, 5)
    assert one.tail == (47, 48)
    assert (one.sampling.temperature, one.sampling.top_p, one.sampling.seed, one.sampling.ignore_eos) == (
        1,
        0.5,
        7,
        True,
    )
    assert unpack_progress(ring.memory.load(LAYOUT.progress(2))) == (0, FinishReason.NONE, 1)


def test_the_tail_of_a_prompt_of_one_token_is_that_token_twice() -> None:
    ring = Ring()
    ring.put(0, 5, prompt=1)
    assert ring.admit()[0].tail == (5, 5)


class Meddling(FirstComeFirstServed):
    """While it chooses, the DPU withdraws slot 0: the race between scan and claim."""

    ring: Ring

    def choose(self, now: int, view: AdmissionView) -> tuple[Candidate, ...]:
        move_slot(self.ring.memory, LAYOUT.state(0), SlotMove.WITHDRAW, 1)
        return super().choose(now, view)


def test_a_prompt_withdrawn_before_its_claim_costs_nothing() -> None:
    policy = Meddling()
    ring = policy.ring = Ring(policy)
    ring.put(0, 1)
    ring.put(1, 2)
    assert [one.request for one in ring.admit()] == [2]
    assert ring.claimed() == [2]
    assert ring.state(0) is SlotState.EMPTY
    assert ring.pool.free == 16 - 1


class Greedy:
    """A policy that breaks its contract: it admits more than there are blocks for."""

    lookahead = 8

    def choose(self, now: int, view: AdmissionView) -> tuple[Candidate, ...]:
        return view.candidates


def test_a_policy_that_asks_for_too_many_blocks_gets_what_there_is() -> None:
    ring = Ring(Greedy(), blocks=2)
    for slot in range(4):
        ring.put(slot, slot + 1)
    assert len(ring.admit()) == 2
    assert ring.pool.free == 0
    assert ring.state(3) is SlotState.PREFILL_PENDING


@pytest.mark.parametrize(("prompt", "answer"), [(120, 9), (1, 128)])
def test_what_exceeds_context_or_pool_is_finished_with_a_reason(prompt: int, answer: int) -> None:
    ring = Ring(blocks=8)
    ring.put(0, 1, prompt, answer)
    ring.put(1, 2)
    assert [one.request for one in ring.admit()] == [2]
    assert ring.state(0) is SlotState.DECODE_COMPLETED
    assert unpack_progress(ring.memory.load(LAYOUT.progress(0))).reason is FinishReason.KV_TOO_SMALL


def test_damaged_slots_do_not_use_up_places() -> None:
    ring = Ring()
    for slot in range(3):
        ring.put(slot, slot + 1)
    ring.memory.view[LAYOUT.descriptor(0)] ^= 0xFF
    ring.memory.view[LAYOUT.prompt(16)] ^= 0xFF  # the prompt of slot 1
    admitted = ring.admit(places=2)
    assert [one.request for one in admitted] in ([3], [])
    admitted += ring.admit(places=2)
    assert [one.request for one in admitted] == [3]
    assert [ring.state(slot) for slot in (0, 1)] == [SlotState.DECODE_COMPLETED] * 2
    lines = [e.event.text for e in ring.out if isinstance(e, Emit) and isinstance(e.event, LineLogged)]
    assert len(lines) == 2
    assert ring.pool.free == 15


def test_without_places_nobody_is_looked_at() -> None:
    ring = Ring()
    ring.put(0, 1)
    ring.memory.view[LAYOUT.descriptor(0)] ^= 0xFF
    assert ring.admit(places=0) == []
    assert ring.state(0) is SlotState.PREFILL_PENDING


def test_everybody_can_be_refused_even_the_damaged() -> None:
    ring = Ring()
    ring.put(0, 1)
    ring.put(5, 2)
    ring.memory.view[LAYOUT.descriptor(5)] ^= 0xFF
    ring.admission.refuse(ring.admission.scan(), FinishReason.FAULT, ring.out)
    for slot in (0, 5):
        assert ring.state(slot) is SlotState.DECODE_COMPLETED
        assert unpack_progress(ring.memory.load(LAYOUT.progress(slot))).reason is FinishReason.FAULT
        assert incarnation_of(ring.memory.load(LAYOUT.state(slot))) == 1
    assert list(ring.admission.scan()) == list(np.zeros(0))
