"""Shared KV blocks: what is found, who holds it, what makes room."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from testbed.machine import MachineError
from testbed.serving.prefix_blocks import SharedBlockPool, block_keys


def keys(text: str) -> tuple[bytes, ...]:
    """A block a letter."""
    return block_keys(text.encode(), 1)


def test_a_key_stands_for_a_block_and_all_before_it() -> None:
    assert block_keys(b"abcd", 2) == block_keys(b"abcde", 2)
    assert block_keys(b"abcd", 2)[0] == block_keys(b"abxx", 2)[0]
    assert block_keys(b"abcd", 2)[1] != block_keys(b"xxcd", 2)[1]
    assert block_keys(b"a", 2) == ()


def test_what_was_remembered_is_found_as_far_as_it_is_the_same() -> None:
    pool = SharedBlockPool(8, 1)
    first = pool.remember(keys("abc"), pool.allocate(3) or ())
    assert pool.find(keys("abx")) == first[:2]
    assert pool.find(keys("xbc")) == ()


def test_a_block_is_idle_when_its_last_holder_is_gone_and_can_be_had_or_found() -> None:
    pool = SharedBlockPool(4, 1)
    first = pool.remember(keys("ab"), pool.allocate(2) or ())
    again = pool.find(keys("ab"))
    pool.release(first)
    assert (pool.idle, pool.free) == (0, 2)
    pool.release(again)
    assert (pool.idle, pool.free) == (2, 4)
    assert pool.find(keys("ab")) == first


def test_the_longest_idle_makes_room_first_and_of_a_prefix_its_end() -> None:
    pool = SharedBlockPool(5, 1)
    for text in ("ab", "xy"):
        pool.release(pool.remember(keys(text), pool.allocate(2) or ()))
    assert pool.allocate(2) is not None
    assert pool.evicted == 1
    assert len(pool.find(keys("ab"))) == 1
    assert len(pool.find(keys("xy"))) == 2


def test_two_who_computed_the_same_share_it_afterwards() -> None:
    pool = SharedBlockPool(6, 1)
    one, two = pool.allocate(3) or (), pool.allocate(3) or ()
    kept = pool.remember(keys("abc"), one)
    assert pool.remember(keys("ab"), two) == (*kept[:2], two[2])
    assert pool.free == 2


def test_only_what_somebody_holds_is_had_for_nothing() -> None:
    pool = SharedBlockPool(6, 1)
    held = pool.remember(keys("abc"), pool.allocate(3) or ())
    assert pool.held_prefix(keys("abx")) == 2
    pool.release(held)
    assert pool.held_prefix(keys("abx")) == 0


def test_more_than_there_is_changes_nothing() -> None:
    pool = SharedBlockPool(4, 1)
    pool.release(pool.remember(keys("ab"), pool.allocate(2) or ()))
    assert pool.allocate(5) is None
    assert (pool.idle, pool.free, pool.evicted) == (2, 4, 0)


@pytest.mark.parametrize("blocks", [(0, 0), (3,), (-1,), (9,)])
def test_a_block_that_is_not_held_cannot_be_given_back(blocks: tuple[int, ...]) -> None:
    pool = SharedBlockPool(4, 1)
    pool.allocate(2)
    with pytest.raises(MachineError):
        pool.release(blocks)
    assert pool.free == 2


class Sharers(RuleBasedStateMachine):
    """Sequences that come, find, compute, remember and go, over a pool that is too small for all."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = SharedBlockPool(7, 1)
        self.holding: list[tuple[tuple[bytes, ...], tuple[int, ...]]] = []
        self.content: dict[int, bytes] = {}
        """What lies in each block, as its last writer left it."""

    @rule(text=st.text("ab", min_size=1, max_size=5))
    def come(self, text: str) -> None:
        names = keys(text)
        charged = len(names) - self.pool.held_prefix(names)
        room = self.pool.free
        found = self.pool.find(names)
        assert [self.content[block] for block in found] == list(names[: len(found)])
        fresh = self.pool.allocate(len(names) - len(found))
        assert (fresh is not None) == (charged <= room)
        if fresh is None:
            self.pool.release(found)
            return
        for block, name in zip(fresh, names[len(found) :], strict=True):
            self.content[block] = name
        self.holding.append((names, found + fresh))

    @precondition(lambda self: self.holding)
    @rule(data=st.data(), computed=st.booleans())
    def go(self, data: st.DataObject, computed: bool) -> None:
        names, blocks = self.holding.pop(data.draw(st.integers(0, len(self.holding) - 1)))
        self.pool.release(self.pool.remember(names, blocks) if computed else blocks)

    @precondition(lambda self: self.holding)
    @rule(data=st.data())
    def remember(self, data: st.DataObject) -> None:
        place = data.draw(st.integers(0, len(self.holding) - 1))
        names, blocks = self.holding[place]
        self.holding[place] = names, self.pool.remember(names, blocks)

    @invariant()
    def blocks_are_held_or_free_and_hold_what_they_say(self) -> None:
        held = {block for _, blocks in self.holding for block in blocks}
        assert self.pool.free + len(held) == 7
        for names, blocks in self.holding:
            assert [self.content[block] for block in blocks] == list(names)

    @invariant()
    def what_is_known_is_known_from_its_beginning(self) -> None:
        known = self.pool._block_of
        for text in ("aaaaa", "ababa", "abbbb", "babab", "bbbba"):
            there = [name in known for name in keys(text)]
            assert there == sorted(there, reverse=True)


TestSharers = Sharers.TestCase
TestSharers.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


@given(st.binary(max_size=64), st.integers(1, 9))
def test_there_is_a_key_for_each_whole_block(tokens: bytes, size: int) -> None:
    assert len(block_keys(tokens, size)) == len(tokens) // size
