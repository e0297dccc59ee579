"""Hash ids, cumulative and delta lengths, and fitting: which tokens a recorded session makes the same."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.dualpath.blocks import block_ids
from testbed.serving.turns import Turn, cut, length
from testbed.workload.recorded_sessions import (
    Input,
    RecordedRequest,
    RecordedSession,
    TokenSpace,
    TraceError,
    cut_to,
    shrink_to,
    trajectory_of,
)
from testbed.workload.trajectories import Replay, Trajectory, facts

BLOCK = 64
BEYOND_32_BITS = 1 << 32


def session(*requests: tuple[int, int, list[int]]) -> RecordedSession:
    return RecordedSession("s", tuple(RecordedRequest("here", *request[:2], tuple(request[2])) for request in requests))


def read(recorded: RecordedSession, told: Input = "cumulative", space: TokenSpace | None = None) -> list[Turn]:
    return turns_of(trajectory_of(recorded, space or TokenSpace(3, BLOCK), told, "f"))


def turns_of(trajectory: Trajectory) -> list[Turn]:
    replay = Replay(0, trajectory)
    return [replay.turn() for _ in trajectory.rounds]


def test_known_fault_23_the_same_lengths_mean_two_things() -> None:
    recorded = session((1000, 50, []), (1200, 60, []), (1500, 70, []))
    cumulative, delta = read(recorded), read(recorded, "delta")
    assert [turn.prompt_tokens for turn in cumulative] == [1000, 1200, 1500]
    assert [turn.append_tokens for turn in cumulative] == [1000, 150, 240]
    assert [turn.prompt_tokens for turn in delta] == [1000, 2250, 3810]
    assert [turn.append_tokens for turn in delta] == [1000, 1200, 1500]


def test_known_fault_23_delta_lengths_read_as_whole_prompts_are_noticed() -> None:
    with pytest.raises(TraceError, match=r'f: here: .* is this input = "delta"\?'):
        read(session((1000, 50, []), (80, 60, [])))


def test_known_fault_23_whole_prompts_read_as_delta_are_noticed_by_their_ids() -> None:
    ids = list(range(20))
    told = [(count * BLOCK, 5, ids[:count]) for count in (4, 9, 20)]
    with pytest.raises(TraceError, match=r'every prompt begins .* is this input = "cumulative"\?'):
        read(session(*told), "delta")
    # The same message twice is nothing odd, and neither is a conversation of which two turns are known.
    again = session((2 * BLOCK, 5, [1, 2]), (2 * BLOCK, 5, [1, 2]), (2 * BLOCK, 5, [1, 9]))
    assert [turn.prompt_tokens for turn in read(again, "delta")] == [2 * BLOCK, 4 * BLOCK + 5, 6 * BLOCK + 10]
    assert len(read(session(*told[:2]), "delta")) == 2


def test_a_prompt_that_holds_all_before_it_holds_the_answer_too() -> None:
    first = list(range(10))
    turns = read(session((10 * BLOCK + 30, 100, first), (12 * BLOCK + 40, 5, [*first, 20, 21])))
    assert turns[1].context_tokens == 10 * BLOCK + 30 + 100
    assert cut(turns[1].prompt, 10 * BLOCK + 30, 100) == turns[0].answer


def test_a_prompt_that_is_cut_back_keeps_the_blocks_that_its_ids_share() -> None:
    first = list(range(10))
    turns = read(session((10 * BLOCK, 100, first), (8 * BLOCK, 5, [*first[:6], 20, 21])))
    assert turns[1].context_tokens == 6 * BLOCK
    assert turns[1].append_tokens == 2 * BLOCK


def test_a_prompt_asked_again_still_has_a_token_to_compute() -> None:
    turns = read(session((4 * BLOCK, 10, [1, 2, 3, 4]), (4 * BLOCK, 10, [1, 2, 3, 4])))
    assert (turns[1].context_tokens, turns[1].append_tokens) == (4 * BLOCK - 1, 1)


def test_a_last_block_in_part_is_not_a_full_one() -> None:
    """Design serving 2.2: with its id taken for a block's, this would hit 3 blocks where only 2 are equal."""
    turns = read(session((2 * BLOCK + 10, 10, [1, 2, 3]), (3 * BLOCK, 10, [1, 2, 3])))
    before, after = (block_ids(turn.prompt, BLOCK) for turn in turns)
    assert before[:2] == after[:2]
    assert not set(before[2:]) & set(after[2:])


def test_equal_ids_are_equal_tokens_in_all_sessions_of_a_scope_and_only_there() -> None:
    space = TokenSpace(0, BLOCK)
    one = read(session((3 * BLOCK, 5, [7, 8, 9])), space=space)[0]
    other = read(session((3 * BLOCK, 5, [7, 8, 10])), space=space)[0]
    elsewhere = read(session((3 * BLOCK, 5, [7, 8, 9])), space=TokenSpace(1, BLOCK))[0]
    assert block_ids(one.prompt, BLOCK)[:2] == block_ids(other.prompt, BLOCK)[:2]
    assert block_ids(one.prompt, BLOCK)[2] != block_ids(other.prompt, BLOCK)[2]
    assert not set(block_ids(one.prompt, BLOCK)) & set(block_ids(elsewhere.prompt, BLOCK))


def test_known_fault_22_ids_that_are_equal_in_their_low_32_bits_are_not_equal() -> None:
    space = TokenSpace(0, BLOCK)
    low = read(session((2 * BLOCK, 5, [7, 8])), space=space)[0]
    high = read(session((2 * BLOCK, 5, [7, 8 + BEYOND_32_BITS])), space=space)[0]
    top = read(session((2 * BLOCK, 5, [7, 8 + (1 << 64)])), space=space)[0]
    seconds = {block_ids(turn.prompt, BLOCK)[1] for turn in (low, high, top)}
    assert len(seconds) == 3
    assert len({block_ids(turn.prompt, BLOCK)[0] for turn in (low, high, top)}) == 1


def test_a_branch_that_comes_back_finds_its_blocks_again_answer_and_all() -> None:
    """Ids that the trace gave to the blocks of an answer name the same tokens when another prompt has them."""
    long = [1, 2, 3, 4, 5, 6]
    turns = read(session((3 * BLOCK + 20, 100, [1, 2, 3]), (6 * BLOCK, 5, long), (BLOCK, 5, [1]), (6 * BLOCK, 5, long)))
    assert turns[1].context_tokens == 3 * BLOCK + 120
    assert [turn.context_tokens for turn in turns[2:]] == [BLOCK - 1, BLOCK]
    assert block_ids(turns[2].prompt, BLOCK) == block_ids(turns[1].prompt, BLOCK)[:1]
    assert block_ids(turns[3].prompt, BLOCK) == block_ids(turns[1].prompt, BLOCK)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_ids_are_as_many_as_blocks(count: int) -> None:
    with pytest.raises(TraceError, match=f"{count} hash ids for 200 tokens, in blocks of 64"):
        read(session((200, 5, list(range(count)))))


def test_an_empty_prompt_is_no_request_and_an_empty_answer_has_a_token() -> None:
    with pytest.raises(TraceError, match="at least 1"):
        read(session((0, 5, [])))
    assert read(session((9, 0, [])))[0].generate_tokens == 1


REQUESTS = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 90)), min_size=1, max_size=8)


@given(REQUESTS, st.booleans())
def test_lengths_are_those_of_the_recording(lengths: list[tuple[int, int]], with_ids: bool) -> None:
    """Cumulative sessions that only grow; ids are new wherever they are not shared."""
    recorded, total, ids, fresh = [], 0, [], iter(range(10**6))
    for append, answer in lengths:
        total += append
        ids = ids + [next(fresh) for _ in range(total // BLOCK - len(ids))]
        recorded.append((total, answer, ids if with_ids else []))
        total += max(1, answer)
    turns = read(session(*recorded))
    assert [turn.prompt_tokens for turn in turns] == [whole for whole, _, _ in recorded]
    assert [turn.append_tokens for turn in turns] == [append for append, _ in lengths]
    for before, after in pairwise(turns):
        kept = before.prompt_tokens + before.generate_tokens
        assert cut(after.prompt, 0, kept) == cut((*before.prompt, *before.answer), 0, kept)


@given(REQUESTS, st.integers(10, 2_000))
def test_cut_sessions_keep_whole_turns_and_no_more_than_fit(lengths: list[tuple[int, int]], most: int) -> None:
    whole = trajectory_of(session(*((a, g, []) for a, g in lengths)), TokenSpace(0, 1), "delta", "f")
    found = cut_to([whole], most)
    for one in found:
        assert facts(one).total <= most
        assert one.rounds == whole.rounds[: len(one.rounds)]
    if not found:
        assert facts(Trajectory(whole.rounds[:1])).total > most


@given(REQUESTS, st.integers(20, 2_000))
def test_shrunk_sessions_keep_their_turns_and_what_they_share(lengths: list[tuple[int, int]], most: int) -> None:
    whole = trajectory_of(session(*((a, g, []) for a, g in lengths)), TokenSpace(0, 1), "delta", "f")
    (small,) = shrink_to([whole], most)
    assert len(small.rounds) == len(whole.rounds)
    # A turn cannot have less than one token of each.
    assert facts(small).total <= max(most, 0) + 2 * len(whole.rounds) or small == whole
    turns = turns_of(small)
    for before, after in pairwise(turns):
        assert after.context_tokens == before.prompt_tokens + before.generate_tokens
        assert min(after.append_tokens, after.generate_tokens) >= 1


def test_shrinking_keeps_shared_prefixes_and_the_proportions_between_sessions() -> None:
    space = TokenSpace(0, BLOCK)
    ids = list(range(40))
    long = trajectory_of(session((40 * BLOCK, 64, ids)), space, "cumulative", "f")
    short = trajectory_of(session((20 * BLOCK, 64, [*ids[:15], *range(90, 95)])), space, "cumulative", "f")
    one, other = (turns_of(small)[0] for small in shrink_to([long, short], 41 * BLOCK // 4))
    assert length(one.prompt) == pytest.approx(10 * BLOCK, abs=2)
    assert length(other.prompt) == pytest.approx(5 * BLOCK, abs=2)
    shared = 15 * BLOCK // 4 - 2
    assert cut(one.prompt, 0, shared) == cut(other.prompt, 0, shared)
    assert shrink_to([long, short], 10**6) == [long, short]
