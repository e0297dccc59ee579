"""Read-path choice: the paper's rule, ties, hysteresis, splits; compiled and plain."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.dualpath.path_choice import (
    DECODE,
    NEITHER,
    PREFILL,
    TIE_ALTERNATE,
    TIE_DECODE,
    TIE_PREFILL,
    choose,
    split,
)
from tests.testbed.dualpath.compiled import compiled

queues = st.integers(0, 1_000)
sides = st.sampled_from([PREFILL, DECODE, NEITHER])
ties = st.sampled_from([TIE_PREFILL, TIE_DECODE, TIE_ALTERNATE])


def by_the_rules(prefill, decode, last, tie, hysteresis):
    """Design 1.4, and our parameters' docstrings, in words."""
    queue = {PREFILL: prefill, DECODE: decode}
    if hysteresis and last != NEITHER:
        other = {PREFILL: DECODE, DECODE: PREFILL}[last]
        return other if queue[last] - queue[other] > hysteresis else last
    shorter = [side for side in queue if queue[side] == min(queue.values())]
    if len(shorter) == 1:
        return shorter[0]
    return {TIE_PREFILL: PREFILL, TIE_DECODE: DECODE, TIE_ALTERNATE: DECODE if last == PREFILL else PREFILL}[tie]


@settings(deadline=None)
@given(queues, queues, sides, ties, st.integers(0, 300))
def test_plain_compiled_and_the_rules_in_words_agree(prefill, decode, last, tie, hysteresis):
    expected = by_the_rules(prefill, decode, last, tie, hysteresis)
    assert choose(prefill, decode, last, tie, hysteresis) == expected
    assert compiled(choose)(prefill, decode, last, tie, hysteresis) == expected


@given(queues, sides, ties)
def test_without_hysteresis_only_a_tie_asks_for_the_last_side(queue, last, tie):
    assert choose(queue, queue + 1, last, tie, 0) == PREFILL
    assert choose(queue + 1, queue, last, tie, 0) == DECODE


def test_ties_alternate():
    last, seen = NEITHER, []
    for _ in range(4):
        last = choose(7, 7, last, TIE_ALTERNATE, 0)
        seen.append(last)
    assert seen == [PREFILL, DECODE, PREFILL, DECODE]


def test_a_side_is_kept_until_the_other_is_shorter_by_more_than_the_hysteresis():
    assert choose(110, 10, PREFILL, TIE_DECODE, 100) == PREFILL
    assert choose(111, 10, PREFILL, TIE_DECODE, 100) == DECODE
    assert choose(10, 110, DECODE, TIE_DECODE, 100) == DECODE
    assert choose(111, 10, NEITHER, TIE_PREFILL, 100) == DECODE


@settings(deadline=None)
@given(st.integers(0, 500), st.integers(1, 128), st.integers(0, 40_000), st.integers(0, 40_000))
def test_a_split_levels_the_queues_as_far_as_whole_blocks_can(hits, tokens, prefill, decode):
    mine = split(hits, tokens, prefill, decode)
    assert compiled(split)(hits, tokens, prefill, decode) == mine
    assert 0 <= mine <= hits

    def gap(blocks):
        return abs(prefill + blocks * tokens - decode - (hits - blocks) * tokens)

    assert gap(mine) == min(gap(blocks) for blocks in range(hits + 1))


@pytest.mark.parametrize(
    ("hits", "prefill", "decode", "expected"),
    [(10, 0, 0, 5), (11, 0, 0, 5), (10, 10_000, 0, 0), (10, 0, 10_000, 10), (10, 128, 0, 4), (0, 0, 50, 0)],
)
def test_splits_of_blocks_of_64(hits, prefill, decode, expected):
    assert split(hits, 64, prefill, decode) == expected
