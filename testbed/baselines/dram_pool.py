"""A distributed DRAM pool of KV: which node holds which Full Block in which slot, and which one has to go.

After Mooncake (FAST'25) as DualPath compares with it: each node gives a part of its host memory, a directory knows
every block, prompts go to the prefill node that holds most of their prefix, and what is nowhere in DRAM is in storage.
Least recently used goes first, of one prompt the last blocks first. A block that is being read stays (known fault 31);
one that is being written is nobody's hit until it is there (known fault 34).

Accounting only: it moves no bytes and knows no clock; use is counted by the order of questions.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from testbed.machine import MachineError

NOWHERE = -1


class Copy(NamedTuple):
    """Where a block lies."""

    node: str
    slot: int


class Answer(NamedTuple):
    """What the directory says of one block that a node asks for."""

    copy: Copy | None
    """Where to read it; None: from storage. Pinned until the question is closed."""
    keep: int
    """Slot of the asking node that is kept for it; NOWHERE where it is there already or there is no room."""


class Counts(NamedTuple):
    """What became of the blocks of one question; all from 0, and their sum is the blocks asked for (known fault 28)."""

    local: int
    remote: int
    storage: int


class Shelf:
    """The slots of one node. `slots` is how many Full Blocks its part of the pool holds."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._free = list(range(slots - 1, -1, -1))
        self._held: OrderedDict[int, int] = OrderedDict()
        """Slot of each block that is there, least recently used first."""
        self._pins: dict[int, int] = {}
        """How many reads of a block are under way."""
        self._filling: dict[int, int] = {}
        """Slot of each block that is being written."""

    def __contains__(self, block: int) -> bool:
        return block in self._held

    @property
    def used(self) -> int:
        """Slots that hold a block or are kept for one."""
        return len(self._held) + len(self._filling)

    @property
    def pinned(self) -> int:
        """Blocks that are being read."""
        return len(self._pins)

    def read(self, block: int) -> int:
        """The slot of a block that is there; it stays until `unpin`. Raises KeyError."""
        slot = self._held[block]
        self._pins[block] = self._pins.get(block, 0) + 1
        return slot

    def unpin(self, block: int) -> None:
        """One read of a block has ended. Raises MachineError where none was under way."""
        if block not in self._pins:
            raise MachineError(f"block {block:016x} is not being read")
        self._pins[block] -= 1
        if not self._pins[block]:
            del self._pins[block]

    def touch(self, block: int) -> None:
        """The block has been used."""
        if block in self._held:
            self._held.move_to_end(block)

    def reserve(self, block: int) -> tuple[int, int | None]:
        """A slot to write the block to, and the block that had to go for it.

        (NOWHERE, None) where it is there or being written already, or all that is there is being read or written.
        """
        if block in self._held or block in self._filling:
            return NOWHERE, None
        gone = None
        if not self._free:
            gone = next((held for held in self._held if held not in self._pins), None)
            if gone is None:
                return NOWHERE, None
            self._free.append(self._held.pop(gone))
        self._filling[block] = self._free.pop()
        return self._filling[block], gone

    def fill(self, block: int) -> None:
        """A reserved block is there now. Raises MachineError where none was reserved."""
        self._held[block] = self._take_filling(block)

    def abandon(self, block: int) -> None:
        """A reserved block will not come. Raises MachineError likewise."""
        self._free.append(self._take_filling(block))

    def _take_filling(self, block: int) -> int:
        if block not in self._filling:
            raise MachineError(f"block {block:016x} has no slot kept for it")
        return self._filling.pop(block)


class _Question(NamedTuple):
    node: str
    pinned: tuple[tuple[str, int], ...]
    """(node, block)."""
    keeps: frozenset[int]


class Directory:
    """See the head of this file. `slots` are the Full Blocks that each node's part holds, in the order of the plan."""

    def __init__(self, slots: Mapping[str, int]) -> None:
        self._shelves = {node: Shelf(count) for node, count in slots.items()}
        self._where: dict[int, dict[str, None]] = {}
        """Nodes that hold each block, in the order in which they got it."""
        self._open: dict[tuple[str, int], _Question] = {}

    @property
    def used(self) -> dict[str, int]:
        """Slots in use, by node."""
        return {node: shelf.used for node, shelf in self._shelves.items()}

    @property
    def unfinished(self) -> int:
        """Questions that are not closed."""
        return len(self._open)

    def ask(self, node: str, number: int, blocks: Sequence[int], *, read: bool = True) -> tuple[Answer, ...]:
        """Where a prompt's `blocks` lie, in order; its own node first. `read=False` only keeps slots, for new blocks.

        What is answered is pinned, and what is kept is kept, until `close` with the same number. Raises MachineError
        for a number that is open or a node that has no part.
        """
        if (node, number) in self._open:
            raise MachineError(f"question {number} of {node} is open")
        if node not in self._shelves:
            raise MachineError(f"{node} has no part of the pool")
        shelf = self._shelves[node]
        copies = [self._pin(node, block) if read else None for block in blocks]
        keeps = [self._keep(node, shelf, block) for block in blocks]
        # Backwards, so that of one prompt the last blocks are the first to go: without its head a tail is no prefix.
        for block, copy in zip(reversed(blocks), reversed(copies), strict=True):
            if copy is not None:
                self._shelves[copy.node].touch(block)
        self._open[node, number] = _Question(
            node,
            tuple((copy.node, block) for block, copy in zip(blocks, copies, strict=True) if copy is not None),
            frozenset(block for block, keep in zip(blocks, keeps, strict=True) if keep != NOWHERE),
        )
        return tuple(Answer(copy, keep) for copy, keep in zip(copies, keeps, strict=True))

    def close(self, node: str, number: int, kept: Iterable[int]) -> None:
        """The reads are over; `kept` are the blocks that now lie in their slots. Raises MachineError for none open."""
        question = self._open.pop((node, number), None)
        if question is None:
            raise MachineError(f"{node} has no open question {number}")
        for holder, block in question.pinned:
            if holder in self._shelves:
                self._shelves[holder].unpin(block)
        shelf, there = self._shelves.get(node), set(kept)
        if shelf is None:
            return
        for block in sorted(question.keeps - there):
            shelf.abandon(block)
        for block in reversed([block for block in kept if block in question.keeps]):
            shelf.fill(block)
            self._where.setdefault(block, {})[node] = None

    def prefix(self, node: str, blocks: Sequence[int]) -> int:
        """Leading blocks that a node holds."""
        shelf = self._shelves.get(node)
        if shelf is None:
            return 0
        return next((place for place, block in enumerate(blocks) if block not in shelf), len(blocks))

    def lose(self, node: str) -> None:
        """A node is gone with all that it holds; its own questions are closed."""
        if self._shelves.pop(node, None) is None:
            return
        for block in [block for block, nodes in self._where.items() if node in nodes]:
            self._forget(block, node)
        for asker, number in [key for key in self._open if key[0] == node]:
            self.close(asker, number, ())

    def _pin(self, node: str, block: int) -> Copy | None:
        holders = self._where.get(block)
        if not holders:
            return None
        # Of several others the one that is read least just now, the first of equals.
        holder = node if node in holders else min(holders, key=lambda name: self._shelves[name].pinned)
        return Copy(holder, self._shelves[holder].read(block))

    def _keep(self, node: str, shelf: Shelf, block: int) -> int:
        slot, gone = shelf.reserve(block)
        if gone is not None:
            self._forget(gone, node)
        return slot

    def _forget(self, block: int, node: str) -> None:
        del self._where[block][node]
        if not self._where[block]:
            del self._where[block]


def counted(node: str, answers: Sequence[Answer]) -> Counts:
    """What became of a node's question."""
    local = sum(answer.copy is not None and answer.copy.node == node for answer in answers)
    found = sum(answer.copy is not None for answer in answers)
    return Counts(local, found - local, len(answers) - found)


class EngineView(NamedTuple):
    """What affinity knows of one prefill engine."""

    node: str
    tokens: int
    """Of turns that are assigned and not finished."""
    prefix_tokens: int
    """Of the prompt, that its node holds in DRAM."""


def choose(prompt_tokens: int, engines: Sequence[EngineView], slack_tokens: int) -> int:
    """The engine for a prompt, by its place in `engines`: affinity, unless that one is too far behind the others.

    The node with the longest prefix is preferred; its least loaded engine is taken while it is not more than
    `slack_tokens` and what the prefix saves behind the least loaded of all. Ties go to the first. Mooncake's rule in
    tokens: queue plus what is left to compute (its algorithm 1 adds times). Raises ValueError without engines.
    """

    def cost(place: int) -> int:
        engine = engines[place]
        return engine.tokens + prompt_tokens - engine.prefix_tokens

    if not engines:
        raise ValueError("there is no engine to choose from")
    cheapest = min(range(len(engines)), key=lambda place: (cost(place), place))
    most = max(engine.prefix_tokens for engine in engines)
    near = [place for place, engine in enumerate(engines) if engine.prefix_tokens == most]
    nearest = min(near, key=lambda place: (engines[place].tokens, place))
    return nearest if cost(nearest) <= cost(cheapest) + slack_tokens else cheapest
