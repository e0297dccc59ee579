"""What the central scheduler has given to the engines of one role, in arrays by engine, and the nodes' read queues.

`tok_e` and `seq_e` of design dualpath 1.2 and 1.3. Engines report them when they fetch; the ledger is those reports and
whatever is still on its way to them, so that a turn never counts twice or not at all. The arrays are what the rules of
placement work on. It decides nothing and knows no turn, letter or time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Integers = npt.NDArray[np.int64]


class EngineLedger:
    """Engines of all nodes of a role, numbered node by node. Nodes that are lost have none any more.

    So many nodes one after another are a group, the last one perhaps of fewer; None makes all of them one.
    """

    def __init__(
        self, nodes: Sequence[str], per_node: int, hbm_blocks: int = 0, group_nodes: int | None = None
    ) -> None:
        self.nodes = tuple(nodes)
        self.per_node = per_node
        count = len(nodes) * per_node
        self.node_of: Integers = np.repeat(np.arange(len(nodes), dtype=np.int64), per_node)
        self.tokens: Integers = np.zeros(count, np.int64)
        self.sequences: Integers = np.zeros(count, np.int64)
        self.free: Integers = np.full(count, hbm_blocks, np.int64)
        """KV blocks of HBM that nothing is promised of; decode engines only."""
        self.members: dict[str, Integers] = {
            node: np.arange(at * per_node, (at + 1) * per_node, dtype=np.int64) for at, node in enumerate(nodes)
        }
        """Engines of each node that is not lost."""
        self._group_nodes = group_nodes or len(nodes)
        self._turn = 0

    def place_of(self, engine: int) -> tuple[str, int]:
        """Node of an engine, and its number there."""
        return self.nodes[engine // self.per_node], engine % self.per_node

    def give(self, engine: int, tokens: int, blocks: int) -> None:
        """A turn that no rule of placement has counted yet."""
        self.tokens[engine] += tokens
        self.sequences[engine] += 1
        self.free[engine] -= blocks

    def take(self, engine: int, tokens: int, blocks: int) -> None:
        """A turn does not count any more."""
        self.tokens[engine] -= tokens
        self.sequences[engine] -= 1
        self.free[engine] += blocks

    def next_in_turn(self) -> int:
        """Round robin over all engines that are left. Raises LookupError when there are none."""
        count = len(self.node_of)
        for _ in range(count):
            engine = self._turn % count
            self._turn += 1
            if self.place_of(engine)[0] in self.members:
                return engine
        raise LookupError("no engine is left")

    def group_of(self, node: str) -> int:
        """Number of a node's group."""
        return self.nodes.index(node) // self._group_nodes

    @property
    def groups(self) -> list[int]:
        """Groups that have an engine, in order."""
        return sorted({self.group_of(node) for node in self.members})

    def engines_of(self, group: int) -> Integers:
        """Engines of a group: the first of each node, then the second of each, and so on; at least one."""
        nodes = [engines for node, engines in self.members.items() if self.group_of(node) == group]
        return np.stack(nodes).T.ravel()

    def group_tokens(self, groups: Sequence[int]) -> Integers:
        """Sum of tok over the engines of each group."""
        return np.array([int(self.tokens[self.engines_of(group)].sum()) for group in groups], np.int64)


class ReadQueues:
    """Tokens that each node's storage reads still have to bring: as last reported, and what was assigned since."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._reported = dict.fromkeys(nodes, 0)
        self._sent = dict.fromkeys(nodes, 0)
        self._unseen: dict[str, deque[tuple[int, int]]] = {node: deque() for node in nodes}

    def of(self, node: str) -> int:
        """The queue as it will be once the node has all letters."""
        return self._reported[node] + sum(tokens for _, tokens in self._unseen[node])

    def assigned(self, node: str, tokens: int) -> None:
        """An `Assign` goes to `node` that makes it read `tokens` tokens; 0 where they are not to count yet."""
        self._sent[node] += 1
        if tokens:
            self._unseen[node].append((self._sent[node], tokens))

    def reported(self, node: str, tokens: int, taken: int) -> None:
        """The node's own word, after `taken` letters (-1: not told, so all that were sent)."""
        self._reported[node] = tokens
        unseen = self._unseen[node]
        while unseen and (taken < 0 or unseen[0][0] <= taken):
            unseen.popleft()
