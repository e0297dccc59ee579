"""The trie of Full Blocks: which prefixes are in storage, as whoever has been told of writes knows it.

One node a Full Block, named by the block's id; a child's id follows from its parent's and its own tokens
(`testbed.dualpath.blocks`), so a prompt's blocks are one way down from the root (DualPath A.5). A block counts from
the moment at which its write was acknowledged: hits of blocks that are on no disk cannot be promised.
"""

from __future__ import annotations

from collections.abc import Iterable

from testbed.dualpath.blocks import ROOT


class TrieOfBlocks:
    """Persisted blocks by id, with their places in the trie. Pure."""

    def __init__(self) -> None:
        self._parents: dict[int, int] = {}
        self._children: dict[int, set[int]] = {}

    def __len__(self) -> int:
        return len(self._parents)

    def __contains__(self, block: int) -> bool:
        return block in self._parents

    def add(self, block: int, parent: int = ROOT) -> None:
        """`block` is persisted. Its parent may follow later: writes of one prompt end in any order.

        Raises ValueError for a block that is its own parent or stands below another one already.
        """
        known = self._parents.get(block, parent)
        if block in (ROOT, parent) or known != parent:
            raise ValueError(f"block {block:016x} below {parent:016x}: it stands below {known:016x}")
        self._parents[block] = parent
        self._children.setdefault(parent, set()).add(block)

    def remove(self, block: int) -> None:
        """`block` is on no disk any more; what is below it cannot be hit until it is back. Raises KeyError."""
        siblings = self._children[self._parents.pop(block)]
        siblings.discard(block)

    def prefix(self, blocks: Iterable[int]) -> int:
        """How many leading blocks of a prompt are persisted: its hit, in blocks."""
        count = 0
        for block in blocks:
            if block not in self._parents:
                break
            count += 1
        return count

    def parent(self, block: int) -> int:
        """The block's parent. Raises KeyError."""
        return self._parents[block]

    def children(self, block: int = ROOT) -> frozenset[int]:
        """Persisted blocks that follow `block`."""
        return frozenset(self._children.get(block, ()))
