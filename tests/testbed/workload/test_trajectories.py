"""Replay rules of DualPath A.3, copies, and the numbers of a trajectory."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from testbed.serving.turns import TokenRun, cut, length
from testbed.workload.trajectories import Replay, Round, Trajectory, facts, for_agents, of_lengths

LENGTHS = st.lists(st.tuples(st.integers(1, 500), st.integers(1, 90)), min_size=1, max_size=12)


@given(LENGTHS)
def test_a_prompt_is_everything_before_and_the_append(lengths: list[tuple[int, int]]) -> None:
    made = of_lengths(5, lengths)
    replay = Replay(3, made)
    before: tuple[TokenRun, ...] = ()
    for number, here in enumerate(made.rounds):
        assert replay.left == len(lengths) - number
        turn = replay.turn()
        assert (turn.agent, turn.number, turn.name) == (3, number, f"a0003.t{number:03d}")
        assert turn.context_tokens == length(before)
        assert cut(turn.prompt, 0, turn.context_tokens) == cut(before, 0, length(before))
        assert cut(turn.prompt, turn.context_tokens, turn.append_tokens) == here.append
        assert turn.answer == here.answer
        before = (*turn.prompt, *turn.answer)
    assert replay.left == 0


def test_a_round_may_cut_its_context_back() -> None:
    first, second = of_lengths(1, [(100, 10), (20, 5)]).rounds
    replay = Replay(0, Trajectory((first, msgspec.structs.replace(second, kept=64))))
    replay.turn()
    turn = replay.turn()
    assert turn.prompt == (TokenRun(1, 0, 64), TokenRun(1, 110, 20))
    assert turn.context_tokens == 64


def test_a_copy_begins_with_random_tokens_and_one_token_of_answer() -> None:
    originals = [of_lengths(stream, [(200, 10), (30, 5)]) for stream in (1, 2)]
    given_out = for_agents(originals, 5, seed=9, prepended=64)
    assert given_out[:2] == originals
    prefixes = set()
    for copy in given_out[2:]:
        first, *rest = copy.rounds
        assert (length(first.append), length(first.answer)) == (64, 1)
        assert tuple(rest) in {original.rounds for original in originals}
        prefixes.add(first.append[0].stream)
        replay = Replay(0, copy)
        replay.turn()
        turn = replay.turn()
        assert turn.prompt[0].stream == first.append[0].stream, "what follows lies behind the copy's own tokens"
        assert turn.context_tokens == 65
    assert len(prefixes) == 3, "nothing is shared between copies"


def test_copies_of_cut_contexts_keep_their_own_beginning() -> None:
    first, second = of_lengths(1, [(100, 10), (20, 5)]).rounds
    original = Trajectory((first, msgspec.structs.replace(second, kept=0)))
    (_, copy) = for_agents([original], 2, seed=1, prepended=64)
    replay = Replay(1, copy)
    turns = [replay.turn() for _ in copy.rounds]
    assert [turn.context_tokens for turn in turns] == [0, 65, 65]


def test_known_fault_17_an_agent_asks_the_same_however_many_there_are() -> None:
    originals = [of_lengths(stream, [(200, 10)]) for stream in range(3)]
    few, many = (for_agents(originals, agents, seed=4, prepended=8) for agents in (5, 40))
    assert many[:5] == few
    assert for_agents(originals, 40, seed=5, prepended=8)[3:] != many[3:]


def test_facts_are_the_means_of_one_trajectory() -> None:
    found = facts(of_lengths(1, [(100, 10), (20, 4), (30, 6)]))
    assert (found.turns, found.append, found.answer) == (3, 50, 20 / 3)
    assert found.total == 170
    assert found.context == (0 + 110 + 134) / 3


def test_rounds_are_small_to_write_down() -> None:
    here = Round((TokenRun(1, 0, 5),), (TokenRun(1, 5, 2),))
    assert msgspec.json.decode(msgspec.json.encode(here), type=Round) == here
