from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.dualpath.blocks import block_ids
from testbed.dualpath.trie import ROOT, TrieOfBlocks
from testbed.serving.turns import TokenRun

TOKENS = 4
prompts = st.lists(st.integers(0, 2), min_size=TOKENS, max_size=24)


def ids(tokens: list[int]) -> tuple[int, ...]:
    """Full blocks only."""
    whole = len(tokens) // TOKENS * TOKENS
    return block_ids([TokenRun(token, place, 1) for place, token in enumerate(tokens[:whole])], TOKENS)


def add_path(trie: TrieOfBlocks, blocks: tuple[int, ...]) -> None:
    """Each below the one before it."""
    for parent, block in pairwise((ROOT, *blocks)):
        trie.add(block, parent)


@given(st.lists(prompts, max_size=8), prompts)
def test_a_hit_is_the_longest_common_prefix_in_whole_blocks(stored: list[list[int]], asked: list[int]) -> None:
    trie = TrieOfBlocks()
    for prompt in stored:
        add_path(trie, ids(prompt))
    common = 0
    for prompt in stored:
        same = 0
        while same < min(len(prompt), len(asked)) and prompt[same] == asked[same]:
            same += 1
        common = max(common, min(same, len(prompt) // TOKENS * TOKENS) // TOKENS)
    assert trie.prefix(ids(asked)) == min(common, len(asked) // TOKENS)
    assert len(trie) == len({block for prompt in stored for block in ids(prompt)})


def test_blocks_may_be_written_in_any_order_and_a_hole_ends_the_hit() -> None:
    trie = TrieOfBlocks()
    trie.add(3, 2)
    trie.add(1)
    assert trie.prefix([1, 2, 3]) == 1
    trie.add(2, 1)
    assert trie.prefix([1, 2, 3]) == 3
    assert trie.prefix([]) == 0
    trie.remove(2)
    assert 2 not in trie
    assert trie.prefix([1, 2, 3]) == 1
    with pytest.raises(KeyError):
        trie.remove(2)


def test_places_in_the_trie() -> None:
    trie = TrieOfBlocks()
    add_path(trie, (1, 2))
    trie.add(5, 1)
    trie.add(5, 1)
    assert trie.children() == {1}
    assert trie.children(1) == {2, 5}
    assert trie.children(9) == frozenset()
    assert (trie.parent(2), trie.parent(1)) == (1, 0)


@pytest.mark.parametrize(("block", "parent"), [(1, 2), (0, 0), (7, 7)])
def test_a_block_has_one_parent(block: int, parent: int) -> None:
    trie = TrieOfBlocks()
    trie.add(1)
    with pytest.raises(ValueError, match="below"):
        trie.add(block, parent)
