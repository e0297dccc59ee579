"""The cache of captured graphs: a dense grid of (batch, sequence) shapes, and one look-up to choose from it.

The host captures the grid once; the resident scheduler asks `choose` on every step and gets an answer in O(1) from a
table that was computed beforehand. A shape for which no grid point is large enough is served by the largest graph,
the fall-back of Blink (summary, "CUDA Graph cache and O(1) selection"). Grid points themselves are not in any
source: the defaults give 650 to 1,000 graphs, as the summary counts them. This file launches nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

PREFILL = "prefill"
DECODE = "decode"
CHUNK = "chunk"
"""Part of one prompt, behind KV that is there already."""
MIXED = "mixed"
"""A decode step that computes part of a prompt beside it, in a lane of its own."""


class Graph(NamedTuple):
    """One captured graph: a fixed shape. Two graphs with the same shape are the same graph."""

    kind: str
    """`prefill`, `decode`, `chunk` or `mixed`."""
    batch: int
    sequence: int
    """Longest sequence it can take, in tokens."""
    chunk: int = 0
    """Tokens of a prompt that it computes behind others, at most; 0 of graphs that compute no such part."""

    @property
    def lanes(self) -> int:
        """Sequences it can take: its batch, and beside a decode step the prompt's."""
        return self.batch + (self.kind == MIXED)

    @property
    def name(self) -> str:
        """As events and pages call it."""
        return f"{self.kind}-b{self.batch}-s{self.sequence}" + (f"-c{self.chunk}" if self.chunk else "")


class Choice(NamedTuple):
    """The answer of a look-up."""

    graph: Graph
    fallback: bool
    """True if no grid point fitted and the largest graph was taken."""


class GraphGrid:
    """All graphs of one kind. `batches` and `sequences` are ascending; the largest of both is always captured.

    `token_budget` leaves out shapes with more tokens in flight than could ever be there (batch x sequence); such a
    combination falls back to the largest graph. None captures the whole rectangle.
    """

    def __init__(
        self,
        kind: str,
        batches: Sequence[int],
        sequences: Sequence[int],
        token_budget: int | None = None,
        chunk: int = 0,
    ) -> None:
        if not batches or not sequences or list(batches) != sorted(set(batches)) or batches[0] < 1:
            raise ValueError(f"{kind}: batches must be ascending and positive, not {list(batches)}")
        if list(sequences) != sorted(set(sequences)) or sequences[0] < 1:
            raise ValueError(f"{kind}: sequences must be ascending and positive, not {list(sequences)}")
        self.kind = kind
        self.largest = Graph(kind, batches[-1], sequences[-1], chunk)
        points = [Graph(kind, batch, sequence, chunk) for batch in batches for sequence in sequences]
        captured = [
            token_budget is None or graph.batch * graph.sequence <= token_budget or graph == self.largest
            for graph in points
        ]
        self._points = tuple(points)
        self.graphs: tuple[Graph, ...] = tuple(graph for graph, there in zip(points, captured, strict=True) if there)
        # The sequence axis is cut at the greatest common step, so that a column is one division away.
        self._step = int(np.gcd.reduce(np.asarray(sequences)))
        rows = np.searchsorted(batches, np.arange(self.largest.batch + 1))
        columns = np.searchsorted(sequences, np.arange(self.largest.sequence // self._step + 1) * self._step)
        grid = np.where(captured, np.arange(len(points)), -1).reshape(len(batches), len(sequences))
        self._table = grid[np.ix_(rows, columns)]

    def choose(self, batch: int, sequence: int) -> Choice:
        """The smallest grid point that takes `batch` sequences of at most `sequence` tokens, else the largest graph.

        Raises ValueError if not even the largest does: the scheduler admitted too much.
        """
        if not (0 < batch <= self.largest.batch and 0 <= sequence <= self.largest.sequence):
            raise ValueError(f"{self.kind}: no graph takes a batch of {batch} with {sequence} tokens")
        index = int(self._table[batch, -(-sequence // self._step)])
        if index < 0:
            return Choice(self.largest, fallback=True)
        return Choice(self._points[index], fallback=False)


class ChunkGrids:
    """A grid for each captured length of a chunk; the shortest length that takes the chunk is used."""

    def __init__(self, kind: str, chunks: Sequence[int], batches: Sequence[int], sequences: Sequence[int]) -> None:
        self._lengths = tuple(chunks)
        self._grids = tuple(GraphGrid(kind, batches, sequences, chunk=chunk) for chunk in chunks)

    @property
    def graphs(self) -> tuple[Graph, ...]:
        """All of them."""
        return tuple(graph for grid in self._grids for graph in grid.graphs)

    def choose(self, tokens: int, batch: int, sequence: int) -> Choice:
        """The graph for a chunk of `tokens` tokens. Raises ValueError if there is none so long, or so large."""
        place = bisect_left(self._lengths, tokens)
        if place == len(self._lengths):
            raise ValueError(f"no graph takes a chunk of {tokens} tokens")
        return self._grids[place].choose(batch, sequence)


class GraphCache:
    """The grids of all kinds, and what they cost."""

    def __init__(
        self,
        prefill: GraphGrid,
        decode: GraphGrid,
        bytes_per_graph: int,
        *,
        chunk: ChunkGrids | None = None,
        mixed: ChunkGrids | None = None,
    ) -> None:
        """`chunk` and `mixed` where prompts are computed in parts, by themselves or beside decode steps."""
        self.prefill = prefill
        self.decode = decode
        self.chunk = chunk
        self.mixed = mixed
        self.bytes_per_graph = bytes_per_graph
        grids = [grid for grid in (prefill, decode, chunk, mixed) if grid is not None]
        self._names = frozenset(graph for grid in grids for graph in grid.graphs)

    def __contains__(self, graph: object) -> bool:
        return graph in self._names

    @property
    def count(self) -> int:
        """How many graphs are captured."""
        return len(self._names)

    @property
    def bytes(self) -> int:
        """HBM that they occupy; their shared buffers are not counted (one set, of the largest shape)."""
        return self.count * self.bytes_per_graph


def decode_batches(largest: int) -> tuple[int, ...]:
    """Batches of the dense grid: every one to 8, every fourth to 32, then every eighth, and the largest."""
    return _cut((*range(1, 9), *range(12, 33, 4), *range(40, largest + 8, 8)), largest)


def sequences_up_to(longest: int) -> tuple[int, ...]:
    """Sequence lengths of the dense grid: steps of 128 tokens to 2,048, doubling in size with the length, and all."""
    steps: list[int] = []
    step, end = 128, 2_048
    while (steps[-1] if steps else 0) < longest:
        steps.extend(range((steps[-1] if steps else 0) + step, end + 1, step))
        step, end = step * 2, end * 2
    return _cut(steps, longest)


def sequences_by_doubling(longest: int) -> tuple[int, ...]:
    """A coarse axis for graphs whose time does not depend on the captured length: 512 tokens, doubling, and all."""
    steps = [512]
    while steps[-1] < longest:
        steps.append(2 * steps[-1])
    return _cut(steps, longest)


def _cut(points: Iterable[int], last: int) -> tuple[int, ...]:
    return (*(point for point in points if point < last), last)
