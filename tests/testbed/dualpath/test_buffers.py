"""Pages of buffers and HBM: conservation, order of those who wait, what is refused (serving rows 25, 26, 31, 32)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.dualpath.buffers import MOST_EXTENTS, Extents, Pages, Room
from testbed.events.kv_events import BufferMeasured
from testbed.machine import MachineError


def _ids(extents: Extents) -> list[int]:
    return [page for first, count in extents for page in range(first, first + count)]


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=60))
def test_pages_are_given_once_and_all_come_back_whatever_the_order(moves: list[tuple[bool, int]]) -> None:
    pages = Pages(64)
    held: list[Extents] = []
    for give, number in moves:
        if give:
            extents = pages.allocate(number)
            in_use = {page for each in held for page in _ids(each)}
            assert (extents is None) == (number > 64 - len(in_use))
            if extents is not None:
                assert len(_ids(extents)) == number
                assert not in_use & set(_ids(extents))
                held.append(extents)
        elif held:
            pages.release(held.pop(number % len(held)))
        assert pages.free == 64 - sum(len(_ids(each)) for each in held)
    for each in held:
        pages.release(each)
    assert pages.allocate(64) == ((0, 64),)


def test_a_run_that_holds_all_is_preferred_to_several() -> None:
    pages = Pages(10)
    first, third = pages.allocate(4), (pages.allocate(1), pages.allocate(5))[1]
    assert first
    assert third
    pages.release(first)
    pages.release(third)
    assert pages.allocate(5) == ((5, 5),)
    assert pages.allocate(3) == ((0, 3),)


def test_an_allocation_has_as_many_runs_as_a_letter_can_name() -> None:
    pages = Pages(4 * MOST_EXTENTS)
    single = [pages.allocate(1) for _ in range(4 * MOST_EXTENTS)]
    for extents in single[::2]:
        assert extents
        pages.release(extents)
    assert pages.free == 2 * MOST_EXTENTS
    assert len(pages.allocate(MOST_EXTENTS) or ()) == MOST_EXTENTS
    assert pages.allocate(MOST_EXTENTS) is not None
    assert pages.allocate(1) is None


def test_more_runs_than_a_letter_can_name_are_waited_for() -> None:
    pages = Pages(4 * MOST_EXTENTS)
    single = [pages.allocate(1) for _ in range(4 * MOST_EXTENTS)]
    for extents in single[::2]:
        assert extents
        pages.release(extents)
    assert pages.allocate(MOST_EXTENTS + 1) is None
    assert pages.free == 2 * MOST_EXTENTS
    for extents in single[1::2]:
        assert extents
        pages.release(extents)
    assert pages.allocate(MOST_EXTENTS + 1) == ((0, MOST_EXTENTS + 1),)


@pytest.mark.parametrize("wrong", [((0, 2),), ((3, 2),), ((7, 2),), ((-1, 1),)])
def test_what_is_not_held_is_not_taken_back_known_fault_26(wrong: Extents) -> None:
    pages = Pages(8)
    assert pages.allocate(4) == ((0, 4),)
    pages.release(((0, 2),))
    with pytest.raises(MachineError):
        pages.release(wrong)
    assert pages.free == 6
    pages.release(((2, 2),))
    assert pages.allocate(8) == ((0, 8),)


def test_those_who_wait_are_served_in_order_and_nobody_goes_ahead() -> None:
    room = Room("buffer", 10, 100)
    first = room.ask("a", 8)
    assert first == ((0, 8),)
    assert room.ask("b", 9) is None
    assert room.ask("c", 1) is None, "there is room, but b came before"
    assert room.measured() == BufferMeasured("buffer", 800, 1000, 2)
    granted = room.release(first)
    assert granted == [("b", ((0, 9),)), ("c", ((9, 1),))]
    assert room.held_bytes == 1000


def test_one_who_withdraws_lets_those_behind_go_on() -> None:
    room = Room("buffer", 4, 1)
    assert room.ask("a", 2)
    assert room.ask("b", 4) is None
    assert room.ask("c", 2) is None
    assert room.withdraw("b") == [("c", ((2, 2),))]


def test_what_can_never_fit_is_refused_known_fault_25() -> None:
    room = Room("hbm0", 4, 1)
    assert room.can_ever(4)
    assert not room.can_ever(5)
    with pytest.raises(ValueError, match="asks for 5 pages of hbm0, which has 4"):
        room.ask("a", 5)
    assert room.measured().waiting == 0
