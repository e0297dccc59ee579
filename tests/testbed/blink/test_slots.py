from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.blink.slots import (
    CANCEL,
    CANCELLABLE,
    DPU_MOVES,
    INCARNATION_MASK,
    SLOT_TABLE,
    LostSlot,
    SlotMove,
    SlotState,
    UnreadableWord,
    cancelled,
    incarnation_of,
    move_slot,
    moved,
    pack,
    state_of,
    with_cancel,
)
from testbed.network.memory_region import PlainMemory
from testbed.serving.transitions import IllegalMove

E, P, F, D, Z, C = SlotState  # empty, pending, prefill, decode, paused, completed
EXPECTED = {
    (E, SlotMove.SUBMIT): P,
    (P, SlotMove.WITHDRAW): E,
    (P, SlotMove.CLAIM): F,
    (F, SlotMove.MERGE): D,
    (F, SlotMove.COMPLETE): C,
    (D, SlotMove.PAUSE): Z,
    (Z, SlotMove.RESUME): D,
    (D, SlotMove.COMPLETE): C,
    (C, SlotMove.RELEASE): E,
}

incarnations = st.integers(0, INCARNATION_MASK)


@pytest.mark.parametrize(("state", "move"), list(product(SlotState, SlotMove)), ids=lambda value: value.name.lower())
def test_every_move_in_every_state(state: SlotState, move: SlotMove) -> None:
    memory = PlainMemory(8)
    word = pack(state, 5)
    memory.store(0, word)
    if (state, move) in EXPECTED:
        before, after = move_slot(memory, 0, move, 5)
        assert (before, after) == (word, memory.load(0))
        assert state_of(after) is EXPECTED[state, move]
        assert incarnation_of(after) == 5 + (move is SlotMove.SUBMIT)
    else:
        with pytest.raises(IllegalMove):
            moved(word, move)
        with pytest.raises(LostSlot):
            move_slot(memory, 0, move, 5)
        assert memory.load(0) == word


def test_the_table_is_the_expected_one() -> None:
    assert SLOT_TABLE.table == EXPECTED


def test_every_state_can_be_reached_and_left() -> None:
    assert set(SLOT_TABLE.table.values()) == set(SlotState)
    assert {state for state, _ in SLOT_TABLE.table} == set(SlotState)


def test_dpu_and_gpu_never_make_the_same_move() -> None:
    assert {move for (_, move), after in EXPECTED.items() if after in (E, P)} == DPU_MOVES


def test_zeroed_memory_is_empty_slots() -> None:
    assert state_of(0) is SlotState.EMPTY
    assert incarnation_of(0) == 0


@given(state=st.sampled_from(SlotState), incarnation=incarnations, flags=st.sampled_from([0, CANCEL]))
def test_a_word_is_its_parts(state: SlotState, incarnation: int, flags: int) -> None:
    word = pack(state, incarnation, flags)
    assert 0 <= word < 1 << 64
    assert (state_of(word), incarnation_of(word), cancelled(word)) == (state, incarnation, bool(flags))


def test_the_layout_of_a_word_is_fixed() -> None:
    """Low byte state, second byte flags, 48 bits of incarnation: peers of other versions read it too."""
    assert pack(SlotState.DECODE_PAUSED, 0x123456789ABC, CANCEL) == 0x123456789ABC_01_04


@given(incarnation=incarnations)
def test_the_incarnation_goes_up_with_each_use_and_wraps(incarnation: int) -> None:
    word = moved(pack(SlotState.EMPTY, incarnation), SlotMove.SUBMIT)
    assert incarnation_of(word) == (incarnation + 1) & INCARNATION_MASK


@pytest.mark.parametrize("move", [SlotMove.WITHDRAW, SlotMove.RELEASE])
def test_a_slot_that_empties_loses_its_flags(move: SlotMove) -> None:
    (before,) = [state for state, known in EXPECTED if known is move]
    assert moved(pack(before, 3, CANCEL), move) == pack(SlotState.EMPTY, 3)


@pytest.mark.parametrize("move", [SlotMove.PAUSE, SlotMove.COMPLETE])
def test_the_cancel_flag_outlives_other_moves(move: SlotMove) -> None:
    assert cancelled(moved(pack(SlotState.DECODE_PROCESSING, 3, CANCEL), move))


@pytest.mark.parametrize("state", SlotState)
def test_the_cancel_flag_is_for_slots_at_work(state: SlotState) -> None:
    if state in CANCELLABLE:
        assert with_cancel(pack(state, 1)) == pack(state, 1, CANCEL)
    else:
        with pytest.raises(ValueError, match="cannot be cancelled"):
            with_cancel(pack(state, 1))


@pytest.mark.parametrize("word", [6, 0xFF, 0x1_00FE])
def test_a_word_without_a_state_is_the_peers_fault(word: int) -> None:
    with pytest.raises(UnreadableWord):
        state_of(word)
    memory = PlainMemory(8)
    memory.store(0, word)
    with pytest.raises(LostSlot):
        move_slot(memory, 0, SlotMove.CLAIM, incarnation_of(word))


def test_a_slot_of_another_incarnation_is_not_ours() -> None:
    memory = PlainMemory(8)
    memory.store(0, pack(SlotState.PREFILL_PENDING, 7))
    with pytest.raises(LostSlot):
        move_slot(memory, 0, SlotMove.CLAIM, 6)
    assert memory.load(0) == pack(SlotState.PREFILL_PENDING, 7)


class Contended(PlainMemory):
    """Memory on which a peer is quicker: before the first compare-and-swap it writes `theirs`."""

    def __init__(self, theirs: int) -> None:
        super().__init__(8)
        self.theirs: int | None = theirs

    def compare_swap(self, offset: int, expected: int, desired: int) -> int:
        if self.theirs is not None:
            self.store(offset, self.theirs)
            self.theirs = None
        return super().compare_swap(offset, expected, desired)


def test_a_cancel_flag_that_comes_between_is_kept() -> None:
    memory = Contended(pack(SlotState.DECODE_PROCESSING, 4, CANCEL))
    memory.store(0, pack(SlotState.DECODE_PROCESSING, 4))
    move_slot(memory, 0, SlotMove.PAUSE, 4)
    assert memory.load(0) == pack(SlotState.DECODE_PAUSED, 4, CANCEL)


def test_a_withdrawal_that_comes_between_wins() -> None:
    memory = Contended(pack(SlotState.EMPTY, 4))
    memory.store(0, pack(SlotState.PREFILL_PENDING, 4))
    with pytest.raises(LostSlot):
        move_slot(memory, 0, SlotMove.CLAIM, 4)
    assert memory.load(0) == pack(SlotState.EMPTY, 4)
