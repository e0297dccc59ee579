from __future__ import annotations

import itertools

import pytest

from webui.runs.states import MOVES, Move, State, UnexpectedMove, moved, sources


@pytest.mark.parametrize(("state", "move"), list(itertools.product(State, Move)))
def test_every_state_with_every_move(state: State, move: Move) -> None:
    if (state, move) in MOVES:
        assert moved(state, move) is MOVES[state, move]
    else:
        with pytest.raises(UnexpectedMove, match=state.value):
            moved(state, move)


def test_nothing_leads_out_of_finished() -> None:
    assert not [move for (state, move) in MOVES if state is State.FINISHED]


def test_every_state_can_finish() -> None:
    assert set(sources(Move.FINISH)) == set(State) - {State.FINISHED}


def test_each_move_has_one_aim() -> None:
    """Services write `moved(sources(move)[0], move)`, so all sources of a move must lead to the same state."""
    for move in Move:
        assert len({MOVES[state, move] for state in sources(move)}) == 1
