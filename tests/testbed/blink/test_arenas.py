from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.blink.arenas import UNIT, ArenaAllocator
from testbed.machine import MachineError


def test_a_burst_lies_side_by_side() -> None:
    arena = ArenaAllocator(1_024)
    assert [arena.allocate(tokens) for tokens in (10, 16, 17, 100)] == [0, 16, 32, 64]


def test_the_search_goes_on_where_the_last_extent_ended_and_comes_round() -> None:
    arena = ArenaAllocator(64)
    starts = [arena.allocate(16) for _ in range(4)]
    assert starts == [0, 16, 32, 48]
    arena.release(0)
    arena.release(32)
    assert arena.allocate(16) == 0
    assert arena.allocate(16) == 32
    assert arena.allocate(1) is None


def test_neighbours_that_are_given_back_become_one() -> None:
    arena = ArenaAllocator(64)
    for start in range(0, 64, 16):
        assert arena.allocate(16) == start
    for start in (16, 48, 32, 0):
        arena.release(start)
    assert arena.allocate(64) == 0


@pytest.mark.parametrize("start", [0, 16, 8, -1])
def test_what_is_not_held_cannot_be_given_back(start: int) -> None:
    arena = ArenaAllocator(64)
    if start == 0:
        arena.release(arena.allocate(5) or 0)
    with pytest.raises(MachineError):
        arena.release(start)
    assert arena.free == 64


@settings(max_examples=100)
@given(steps=st.lists(st.one_of(st.integers(1, 300), st.integers(-50, -1)), max_size=80))
def test_every_token_is_free_or_in_one_extent(steps: list[int]) -> None:
    arena = ArenaAllocator(1_024)
    held: dict[int, int] = {}
    for step in steps:
        if step > 0:
            start = arena.allocate(step)
            if start is not None:
                held[start] = -(-step // UNIT) * UNIT
        elif held:
            start = sorted(held)[step % len(held)]
            arena.release(start)
            del held[start]
        places = sorted(held.items())
        for (start, length), (following, _) in pairwise([*places, (1_024, 0)]):
            assert start + length <= following
        assert arena.held == sum(held.values())
        assert arena.free + arena.held == 1_024
    for start in held:
        arena.release(start)
    assert arena.allocate(1_024) == 0
