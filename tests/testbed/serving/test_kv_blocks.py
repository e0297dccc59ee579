from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.machine import MachineError
from testbed.serving.kv_blocks import BlockPool


@pytest.mark.parametrize(("tokens", "blocks"), [(0, 0), (1, 1), (16, 1), (17, 2), (256, 16)])
def test_blocks_are_counted_up(tokens: int, blocks: int) -> None:
    assert BlockPool(10, 16).needed(tokens) == blocks


def test_too_many_blocks_change_nothing() -> None:
    pool = BlockPool(4, 16)
    held = pool.allocate(3)
    assert pool.allocate(2) is None
    assert pool.free == 1
    assert held is not None
    pool.release(held)
    assert pool.free == 4


@pytest.mark.parametrize("blocks", [(3,), (9,), (-1,), (0, 0), (0, 3)])
def test_what_is_not_held_cannot_be_given_back(blocks: tuple[int, ...]) -> None:
    pool = BlockPool(4, 16)
    assert pool.allocate(2) == (0, 1)
    with pytest.raises(MachineError):
        pool.release(blocks)
    assert pool.free == 2


@settings(max_examples=60)
@given(steps=st.lists(st.integers(-6, 6), max_size=60))
def test_every_block_is_free_or_held_once(steps: list[int]) -> None:
    pool = BlockPool(20, 16)
    held: list[tuple[int, ...]] = []
    for step in steps:
        if step >= 0:
            blocks = pool.allocate(step)
            assert (blocks is None) == (step > 20 - sum(map(len, held)))
            if blocks is not None:
                held.append(blocks)
        elif held:
            pool.release(held.pop(step % len(held)))
        everything = [block for blocks in held for block in blocks]
        assert len(set(everything)) == len(everything)
        assert pool.free + len(everything) == pool.total
    for blocks in held:
        pool.release(blocks)
    assert pool.free == 20
