from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from testbed.baselines.dram_pool import (
    NOWHERE,
    Answer,
    Copy,
    Directory,
    EngineView,
    Shelf,
    choose,
    counted,
)
from testbed.machine import MachineError


def put(directory: Directory, node: str, *blocks: int) -> None:
    directory.ask(node, 900, blocks, read=False)
    directory.close(node, 900, blocks)


def test_a_block_is_read_where_it_lies_and_a_copy_is_kept_by_the_reader() -> None:
    directory = Directory({"pe0": 4, "pe1": 4})
    put(directory, "pe0", 11, 12)
    assert directory.ask("pe1", 1, (11, 12, 13)) == (
        Answer(Copy("pe0", 0), 0),
        Answer(Copy("pe0", 1), 1),
        Answer(None, 2),
    )
    directory.close("pe1", 1, (11, 12, 13))
    assert directory.ask("pe1", 2, (11, 13)) == (Answer(Copy("pe1", 0), NOWHERE), Answer(Copy("pe1", 2), NOWHERE))


def test_known_fault_34_what_is_being_written_is_nobodys_hit() -> None:
    directory = Directory({"pe0": 4, "pe1": 4})
    directory.ask("pe0", 1, (11,), read=False)
    assert directory.ask("pe1", 1, (11,)) == (Answer(None, 0),)
    assert directory.prefix("pe0", (11,)) == 0
    directory.close("pe0", 1, (11,))
    assert directory.prefix("pe0", (11,)) == 1


def test_known_fault_31_what_is_being_read_is_never_evicted() -> None:
    """LMCache PR #1922: local blocks that were not pinned went while they were loaded; here the pool is full."""
    directory = Directory({"pe0": 2, "pe1": 2})
    put(directory, "pe0", 11, 12)
    directory.ask("pe1", 1, (11, 12))
    assert directory.ask("pe0", 1, (21, 22)) == (Answer(None, NOWHERE), Answer(None, NOWHERE))
    assert directory.prefix("pe0", (11, 12)) == 2
    directory.close("pe1", 1, ())
    assert [answer.keep for answer in directory.ask("pe0", 2, (21, 22))] == [1, 0]


@given(st.lists(st.integers(1, 12), unique=True), st.lists(st.integers(1, 12), unique=True, min_size=1))
def test_known_fault_28_loads_are_never_negative_and_remote_is_hits_without_local(
    held: list[int], asked: list[int]
) -> None:
    """LMCache#2106 had "need to load: -64", PR #2091 counted local hits among the external ones."""
    directory = Directory({"pe0": 16, "pe1": 16})
    put(directory, "pe0", *held[::2])
    put(directory, "pe1", *held)
    local, remote, storage = counted("pe0", directory.ask("pe0", 1, asked))
    assert min(local, remote, storage) >= 0
    assert local == len(set(held[::2]) & set(asked))
    assert remote == len((set(held) - set(held[::2])) & set(asked))
    assert local + remote + storage == len(asked)


def test_the_least_recently_used_goes_first_and_of_a_prompt_its_tail() -> None:
    directory = Directory({"pe0": 4})
    put(directory, "pe0", 11, 12)
    put(directory, "pe0", 21, 22)
    directory.ask("pe0", 1, (11, 12))
    directory.close("pe0", 1, ())
    put(directory, "pe0", 31)
    assert (directory.prefix("pe0", (21, 22)), directory.prefix("pe0", (11, 12))) == (1, 2)
    put(directory, "pe0", 32)
    put(directory, "pe0", 33)
    assert directory.prefix("pe0", (11, 12)) == 1


def test_a_squeezed_pool_keeps_nothing() -> None:
    directory = Directory({"pe0": 0})
    assert directory.ask("pe0", 1, (11,)) == (Answer(None, NOWHERE),)
    directory.close("pe0", 1, ())


def test_a_block_that_did_not_come_leaves_its_slot_free() -> None:
    directory = Directory({"pe0": 1})
    assert directory.ask("pe0", 1, (11,)) == (Answer(None, 0),)
    directory.close("pe0", 1, ())
    assert directory.ask("pe0", 2, (12,)) == (Answer(None, 0),)


def test_a_lost_node_takes_its_blocks_along_and_leaves_no_question_open() -> None:
    directory = Directory({"pe0": 2, "pe1": 2, "de0": 2})
    put(directory, "pe0", 11)
    put(directory, "de0", 12)
    directory.ask("pe0", 1, (12,))
    directory.ask("pe1", 1, (11, 12))
    directory.lose("pe0")
    directory.lose("pe0")
    directory.close("pe1", 1, (12,))
    assert directory.unfinished == 0
    assert directory.ask("pe1", 2, (11,))[0].copy is None
    assert directory.prefix("pe0", (11,)) == 0
    with pytest.raises(MachineError, match="no part"):
        directory.ask("pe0", 3, (11,))


def test_remote_reads_are_spread_over_the_holders() -> None:
    directory = Directory({"pe0": 2, "pe1": 2, "de0": 2})
    put(directory, "pe0", 11, 12)
    put(directory, "pe1", 11, 12)
    assert [answer.copy for answer in directory.ask("de0", 1, (11, 12))] == [Copy("pe0", 0), Copy("pe1", 1)]


def test_whoever_breaks_the_contract_is_told() -> None:
    directory = Directory({"pe0": 2})
    directory.ask("pe0", 1, (11,))
    with pytest.raises(MachineError, match="is open"):
        directory.ask("pe0", 1, (12,))
    with pytest.raises(MachineError, match="no open question"):
        directory.close("pe0", 2, ())
    shelf = Shelf(1)
    with pytest.raises(MachineError, match="not being read"):
        shelf.unpin(11)
    with pytest.raises(MachineError, match="no slot kept"):
        shelf.fill(11)


@pytest.mark.parametrize(
    ("tokens", "prefixes", "slack", "chosen"),
    [
        ((0, 0), (0, 900), 0, 1),
        ((0, 900), (0, 900), 0, 1),
        ((0, 901), (0, 900), 0, 0),
        ((0, 901), (0, 900), 1, 1),
        ((5, 5), (0, 0), 0, 0),
        ((5, 4), (0, 0), 0, 1),
        ((9, 3, 5), (100, 100, 0), 0, 1),
    ],
)
def test_affinity_gives_way_to_load(
    tokens: tuple[int, ...], prefixes: tuple[int, ...], slack: int, chosen: int
) -> None:
    engines = [
        EngineView(f"pe{at}", load, prefix) for at, (load, prefix) in enumerate(zip(tokens, prefixes, strict=True))
    ]
    assert choose(1000, engines, slack) == chosen


def test_affinity_needs_an_engine() -> None:
    with pytest.raises(ValueError, match="no engine"):
        choose(1, [], 0)


class PoolUnderLoad(RuleBasedStateMachine):
    """Any order of questions and answers: what the directory says is there is there, and nothing is lost or doubled."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = {"pe0": 3, "pe1": 2, "de0": 0}
        self.directory = Directory(self.slots)
        self.memory: dict[tuple[str, int], int] = {}
        """The block whose bytes lie in a slot."""
        self.open: dict[tuple[str, int], tuple[list[int], tuple[Answer, ...]]] = {}
        self.number = 0

    @rule(
        node=st.sampled_from(["pe0", "pe1", "de0"]),
        blocks=st.lists(st.integers(1, 8), unique=True, min_size=1, max_size=4),
        read=st.booleans(),
    )
    def ask(self, node: str, blocks: list[int], read: bool) -> None:
        self.number += 1
        answers = self.directory.ask(node, self.number, blocks, read=read)
        reading = {copy for _, others in self.open.values() for copy, _ in others if copy is not None}
        for block, answer in zip(blocks, answers, strict=True):
            if answer.copy is not None:
                assert self.memory[answer.copy] == block
            if answer.keep != NOWHERE:
                assert Copy(node, answer.keep) not in reading
                # Whatever lay there is overwritten from now on.
                self.memory[node, answer.keep] = 0
        self.open[node, self.number] = blocks, answers

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def close(self, data: st.DataObject) -> None:
        key = data.draw(st.sampled_from(sorted(self.open)))
        blocks, answers = self.open.pop(key)
        for block, answer in zip(blocks, answers, strict=True):
            if answer.copy is not None:
                assert self.memory[answer.copy] == block, "evicted while it was read"
        kept = [block for block, answer in zip(blocks, answers, strict=True) if answer.keep != NOWHERE]
        kept = kept[: data.draw(st.integers(0, len(kept)))]
        for block, answer in zip(blocks, answers, strict=True):
            if block in kept:
                self.memory[key[0], answer.keep] = block
        self.directory.close(*key, kept)

    @invariant()
    def no_node_holds_more_than_it_has(self) -> None:
        assert all(self.directory.used[node] <= slots for node, slots in self.slots.items())


TestPoolUnderLoad = PoolUnderLoad.TestCase
