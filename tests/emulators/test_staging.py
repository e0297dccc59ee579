"""The staging area against a plain model: extents never overlap, everything comes back, neighbours join."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emulators.staging import ALIGNMENT, StagingArea


@settings(max_examples=150, deadline=None)
@given(
    size=st.integers(0, 4096),
    moves=st.lists(st.one_of(st.integers(0, 1500), st.tuples(st.just("free"), st.integers(0, 50))), max_size=60),
)
def test_extents_never_overlap_and_all_comes_back(size: int, moves: list[int | tuple[str, int]]) -> None:
    area = StagingArea(size)
    held: list[tuple[int, int]] = []
    used: set[int] = set()
    for move in moves:
        if isinstance(move, tuple):
            if held:
                offset, length = held.pop(move[1] % len(held))
                area.give_back(offset, length)
                used -= set(range(offset, offset + length))
            continue
        offset_or_none = area.take(move)
        if offset_or_none is None:
            continue
        extent = set(range(offset_or_none, offset_or_none + move))
        assert offset_or_none % ALIGNMENT == 0
        assert offset_or_none + move <= size
        assert not extent & used
        used |= extent
        held.append((offset_or_none, move))
    for offset, length in held:
        area.give_back(offset, length)
    assert area.free == area.size
    assert area.size == 0 or area.take(area.size) == 0, "free neighbours were not joined"


@pytest.mark.parametrize(("offset", "length"), [(0, 64), (64, 64), (0, 1), (128, 200)])
def test_a_place_is_given_back_only_once(offset: int, length: int) -> None:
    area = StagingArea(512)
    assert area.take(512) == 0
    area.give_back(offset, length)
    with pytest.raises(ValueError, match="twice"):
        area.give_back(offset, length)


def test_a_place_outside_is_refused() -> None:
    area = StagingArea(128)
    area.take(128)
    with pytest.raises(ValueError, match="outside"):
        area.give_back(64, 128)
