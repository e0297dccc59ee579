from __future__ import annotations

from itertools import product

import pytest

from testbed.blink.slot_clearing import Verdict, next_step
from testbed.blink.slots import CANCEL, CANCELLABLE, SlotState, pack


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
