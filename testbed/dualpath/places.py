"""Where the Layer Blocks of a turn lie in a node's memory, as gather lists and as targets of WRITEs.

Two layouts of the same pages. Full Blocks as storage has them: a page a block, its layers one after another. Rows: an
extent holds all its blocks' parts of layer 0, then those of layer 1, so that one WRITE of a layer covers many blocks.
Going from one to the other is a gather list of whole Layer Blocks; no byte is converted (design dualpath 1.9).
Offsets are of images. Pure arithmetic; knows no region's contents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from testbed.dualpath.buffers import Extents
from testbed.dualpath.local_messages import Piece


class Area(msgspec.Struct, frozen=True):
    """Pages of one region that hold `layers` Layer Blocks each."""

    region: str
    extents: Extents
    layers: int
    image: int
    """Bytes of a Layer Block's image."""
    rows: bool
    """The layout: rows, or Full Blocks."""

    @property
    def columns(self) -> int:
        """Blocks that fit."""
        return sum(count for _, count in self.extents)

    def runs(self, first: int, count: int) -> Iterator[tuple[int, int, int, int]]:
        """(extent's first page, its pages, first column within it, columns) of columns from `first` on."""
        at = 0
        for page, pages in self.extents:
            low, high = max(first, at), min(first + count, at + pages)
            if low < high:
                yield page, pages, low - at, high - low
            at += pages

    def pieces(self, layer: int, first: int, count: int) -> Iterator[Piece]:
        """Where `count` columns of one layer lie."""
        image, layers = self.image, self.layers
        for page, pages, column, columns in self.runs(first, count):
            if self.rows:
                yield Piece(self.region, (page * layers + layer * pages + column) * image, columns * image)
            else:
                for each in range(page + column, page + column + columns):
                    yield Piece(self.region, (each * layers + layer) * image, image)


class Part(msgspec.Struct, frozen=True):
    """Blocks `first` to `first + count - 1` of a turn, in an area from `column` on."""

    area: Area
    column: int
    first: int
    count: int


class Holding(msgspec.Struct, frozen=True):
    """All parts of a turn's KV that lie on one node, in order of blocks."""

    parts: tuple[Part, ...]

    def pieces(self, layer: int, first: int, count: int) -> Iterator[Piece]:
        """Where `count` blocks of one layer lie; fewer where they are not held."""
        for part in self.parts:
            low, high = max(first, part.first), min(first + count, part.first + part.count)
            if low < high:
                yield from part.area.pieces(layer, part.column + low - part.first, high - low)

    def layer_offsets(self, layer: int, first: int, count: int) -> Iterator[int]:
        """Offset of each of these Layer Blocks in its region, in order of blocks."""
        for part in self.parts:
            low, high = max(first, part.first), min(first + count, part.first + part.count)
            for piece in part.area.pieces(layer, part.column + low - part.first, max(0, high - low)):
                yield from range(piece.offset, piece.offset + piece.length, part.area.image)


class Errand(msgspec.Struct, frozen=True):
    """One contiguous WRITE: what to gather, and the offset in the target region."""

    pieces: tuple[Piece, ...]
    offset: int


def merged(pieces: Iterable[Piece]) -> tuple[Piece, ...]:
    """The same bytes in the same order in as few pieces as there can be."""
    out: list[Piece] = []
    for piece in pieces:
        last = out[-1] if out else None
        if last is not None and last.region == piece.region and last.offset + last.length == piece.offset:
            out[-1] = Piece(last.region, last.offset, last.length + piece.length)
        else:
            out.append(piece)
    return tuple(out)


def layer_errands(source: Holding, target: Holding, layers: tuple[int, int], first: int, count: int) -> list[Errand]:
    """WRITEs that bring `count` blocks of a layer from one place to another; `layers` are its rows at both ends."""
    errands: list[Errand] = []
    block = first
    for piece in merged(target.pieces(layers[1], first, count)):
        blocks = piece.length // target.parts[0].area.image
        errands.append(Errand(merged(source.pieces(layers[0], block, blocks)), piece.offset))
        block += blocks
    return errands


def full_errands(source: Holding, target: Area, first: int) -> list[Errand]:
    """WRITEs that bring blocks from `first` on, all layers, into all of an area: one for each of its extents."""
    errands: list[Errand] = []
    block = first
    for page, pages in target.extents:
        if target.rows:
            pieces = [piece for layer in range(target.layers) for piece in source.pieces(layer, block, pages)]
        else:
            pieces = [
                piece
                for each in range(block, block + pages)
                for layer in range(target.layers)
                for piece in source.pieces(layer, each, 1)
            ]
        errands.append(Errand(merged(pieces), page * target.layers * target.image))
        block += pages
    return errands


def split(extents: Extents, pages: int) -> tuple[Extents, Extents]:
    """The first `pages` pages of some extents, and the others."""
    head: list[tuple[int, int]] = []
    tail: list[tuple[int, int]] = []
    for first, count in extents:
        taken = min(count, pages)
        pages -= taken
        if taken:
            head.append((first, taken))
        if count > taken:
            tail.append((first + taken, count - taken))
    return tuple(head), tuple(tail)
