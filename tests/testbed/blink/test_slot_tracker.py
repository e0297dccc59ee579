from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.blink.slot_tracker import SlotTracker
from testbed.blink.slots import SlotState, pack

EMPTY, DONE = pack(SlotState.EMPTY, 9), pack(SlotState.DECODE_COMPLETED, 9)


def tracker(*words: int) -> SlotTracker:
    fresh = SlotTracker(len(words))
    fresh.refresh(0, fresh.begin_refresh(), np.asarray(words, np.uint64))
    return fresh


def test_nothing_is_known_before_the_first_refresh() -> None:
    fresh = SlotTracker(4)
    assert fresh.free == 0
    assert fresh.take() is None
    assert fresh.stale(0, 1_000)


def test_it_grows_stale_with_time() -> None:
    known = tracker(EMPTY)
    assert not known.stale(1_000, 1_000)
    assert known.stale(1_001, 1_000)


def test_slots_are_found_in_turn_each_with_one_probe() -> None:
    known = tracker(*[EMPTY] * 4)
    assert [known.take() for _ in range(4)] == [(0, EMPTY, 1), (1, EMPTY, 1), (2, EMPTY, 1), (3, EMPTY, 1)]
    assert known.take() is None


def test_taken_slots_are_passed_by_and_counted() -> None:
    known = tracker(EMPTY, DONE, DONE, EMPTY)
    known.take()
    found = known.take()
    assert found is not None
    assert (found.slot, found.probes) == (3, 3)


def test_a_slot_given_back_is_found_again_only_if_it_is_empty() -> None:
    known = tracker(EMPTY, EMPTY)
    known.take()
    known.take()
    known.give(0, DONE)
    assert known.take() is None
    known.give(1, pack(SlotState.EMPTY, 10))
    assert known.take() == (1, pack(SlotState.EMPTY, 10), 2)


def test_a_refresh_does_not_free_what_is_held() -> None:
    known = tracker(EMPTY, EMPTY)
    known.take()
    known.refresh(5, known.begin_refresh(), np.asarray([EMPTY, EMPTY], np.uint64))
    assert known.free == 1


def test_a_refresh_older_than_a_change_says_nothing_about_it() -> None:
    known = tracker(EMPTY, EMPTY)
    known.take()
    mark = known.begin_refresh()
    known.give(0, pack(SlotState.EMPTY, 10))
    known.refresh(5, mark, np.asarray([DONE, EMPTY], np.uint64))
    assert known.free == 2
    known.refresh(6, known.begin_refresh(), np.asarray([DONE, EMPTY], np.uint64))
    assert known.free == 1


def test_searching_is_amortised_over_the_ring() -> None:
    """4,096 slots taken one by one: the hint spares all but a few looks."""
    known = tracker(*[EMPTY] * 4_096)
    probes = 0
    for _ in range(4_096):
        found = known.take()
        assert found is not None
        probes += found.probes
    assert probes == 4_096


@settings(max_examples=60)
@given(steps=st.lists(st.integers(-8, 8), max_size=60))
def test_no_slot_is_lent_twice(steps: list[int]) -> None:
    known = tracker(*[EMPTY] * 8)
    held: list[int] = []
    for step in steps:
        if step >= 0:
            found = known.take()
            assert (found is None) == (len(held) == 8)
            if found is not None:
                assert found.slot not in held
                held.append(found.slot)
        elif held:
            known.give(held.pop(step % len(held)), EMPTY)
        assert known.free == 8 - len(held)
