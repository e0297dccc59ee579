"""Chains: which storage nodes hold a chunk, in which order. A chunk is one Full Block; its name is the block's id.

As in 3FS, a fixed table of chains is laid out once and a chunk's id picks its row, so that every node is head, middle
and tail equally often and every two nodes share equally many chains (3FS design notes, "data placement"; the DualPath
paper says of its storage only that it is 3FS). Pure functions of ids, names and replicas. Who is alive is
`ChainView`'s, an opinion of one node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import gcd

from testbed.units import Nanoseconds

_MOST_STRIDES = 16
"""Enough to spread the chunks of a lost node; a table of all strides would grow with the square of the nodes."""
_HEX = 16


class BadChains(Exception):
    """Nodes and replicas that make no chain."""

    def __init__(self, nodes: int, replicas: int) -> None:
        self.nodes = nodes
        self.replicas = replicas
        super().__init__(f"replicas: {replicas}: chains of that length need as many storage nodes, there are {nodes}")


def chunk_name(block: int) -> str:
    """A chunk's name on disk and in events: the block's id, 16 hexadecimal digits."""
    return f"{block:0{_HEX}x}"


def chain_table(nodes: Sequence[str], replicas: int) -> tuple[tuple[str, ...], ...]:
    """Every chain there is, each from head to tail. Raises `BadChains`."""
    count = len(nodes)
    if not 1 <= replicas <= count:
        raise BadChains(count, replicas)
    strides = [stride for stride in range(1, count) if gcd(stride, count) == 1][:_MOST_STRIDES] or [1]
    return tuple(
        tuple(nodes[(head + stride * place) % count] for place in range(replicas))
        for stride in strides
        for head in range(count)
    )


class ChainView:
    """The chains as one node sees them: what it has found lost is in none any more. A lost node stays lost.

    A view is an opinion: two nodes may differ until both have found out. What that means for reads and writes is
    the storage server's business.
    """

    def __init__(self, nodes: Sequence[str], replicas: int) -> None:
        self._nodes = frozenset(nodes)
        self._table = chain_table(nodes, replicas)
        self._live = list(self._table)
        self.lost: dict[str, Nanoseconds] = {}
        """Lost nodes, and when each was found to be."""

    def __contains__(self, node: str) -> bool:
        return node in self._nodes

    def planned(self, block: int) -> tuple[str, ...]:
        """The block's chain with all its nodes, head first."""
        return self._table[block % len(self._table)]

    def live(self, block: int) -> tuple[str, ...]:
        """The block's chain without lost nodes; empty when none is left."""
        return self._live[block % len(self._live)]

    def after(self, block: int, node: str) -> tuple[str, ...]:
        """Live nodes of the block's chain behind `node`, which is in it. Raises ValueError if it is not."""
        planned = self.planned(block)
        return tuple(self._alive(planned[planned.index(node) + 1 :]))

    def lose(self, now: Nanoseconds, node: str) -> bool:
        """`node` is gone; False if that was known. Raises KeyError for a node that is in no chain."""
        if node not in self._nodes:
            raise KeyError(node)
        if node in self.lost:
            return False
        self.lost[node] = now
        self._live = [tuple(self._alive(chain)) for chain in self._table]
        return True

    def _alive(self, chain: Sequence[str]) -> Iterator[str]:
        return (node for node in chain if node not in self.lost)
