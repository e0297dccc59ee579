from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from testbed.blink.holdings import Holdings
from testbed.blink.request_tracker import Stage, TrackedRequest
from testbed.blink.ring_link import RingLink, Swap, Task
from testbed.blink.slot_clearing import SlotClearing, Verdict, next_step
from testbed.blink.slots import CANCEL, CANCELLABLE, SlotState, pack
from testbed.blink.task_pool import TaskPool
from testbed.machine import CompareSwap, Completion, Effect, RemoteAddress
from testbed.serving.client_side import ClientSide
from testbed.serving.requests import Request
from testbed.serving.tokens import ByteVocabulary
from tests.testbed.blink.world import small


@pytest.mark.parametrize(("state", "flags", "finishing"), list(product(SlotState, (0, CANCEL), (False, True))))
def test_every_word_has_one_answer(state: SlotState, flags: int, finishing: bool) -> None:
    word = pack(state, 5, flags)
    step = next_step(word, 5, finishing=finishing)
    if state is SlotState.EMPTY:
        assert step is Verdict.EMPTY
    elif state in (SlotState.PREFILL_PENDING, SlotState.DECODE_COMPLETED):
        assert step == pack(SlotState.EMPTY, 5)
    elif state in CANCELLABLE and not flags and not finishing:
        assert step == pack(state, 5, CANCEL)
    else:
        assert step is Verdict.WAIT


@pytest.mark.parametrize("state", SlotState)
def test_a_slot_of_another_incarnation_is_not_touched(state: SlotState) -> None:
    assert next_step(pack(state, 6), 5, finishing=False) is Verdict.EMPTY
    assert next_step(pack(state, 4), 5, finishing=False) is Verdict.EMPTY


def test_a_word_without_a_state_is_waited_for() -> None:
    assert next_step(0xEE, 0, finishing=False) is Verdict.WAIT


def test_a_read_that_is_older_than_the_news_is_not_acted_upon() -> None:
    parameters = small()
    holdings, pool = Holdings(parameters), TaskPool[Task](8)
    link = RingLink("gpu0", RemoteAddress(0, 1), 0, pool)
    clearing = SlotClearing(link, parameters.layout(), holdings, ClientSide[TrackedRequest]("api"))
    empty = np.zeros(16, np.uint64)
    holdings.slots.refresh(0, holdings.slots.begin_refresh(), empty)
    tracked = TrackedRequest(Request("a", "", 5), 1, [1, 2], ByteVocabulary())
    tracked.listening = False
    holdings.reserve(tracked)
    tracked.stage = Stage.SUBMITTING

    posted_before = holdings.slots.begin_refresh()
    out: list[Effect] = []
    clearing.await_word(tracked)  # its swap failed on the wire: did it happen?
    clearing.observe(posted_before, empty, out)
    assert len(clearing) == 1
    assert not out

    posted_after = holdings.slots.begin_refresh()
    pending = empty.copy()
    pending[0] = pack(SlotState.PREFILL_PENDING, 1)
    clearing.observe(posted_after, pending, out)
    (withdraw,) = out
    assert isinstance(withdraw, CompareSwap)
    assert (withdraw.expected, withdraw.desired) == (pack(SlotState.PREFILL_PENDING, 1), pack(SlotState.EMPTY, 1))
    swap, _ = link.complete(Completion(withdraw.ticket, original=withdraw.expected), out)
    assert isinstance(swap, Swap)
    clearing.swapped(swap, withdraw.expected, out, good=True)
    assert len(clearing) == 0
    assert holdings.prompts.held == holdings.answers.held == 0
