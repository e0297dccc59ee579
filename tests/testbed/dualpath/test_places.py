"""Gather lists: Layer Blocks go from any layout and any pages to any others, and every block arrives at its place."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from testbed.dualpath.blocks import BlockShape, check_full, check_layer, full_image, layer_image
from testbed.dualpath.buffers import Extents
from testbed.dualpath.local_messages import Piece
from testbed.dualpath.places import Area, Errand, Holding, Part, full_errands, layer_errands, merged, split

SHAPE = BlockShape(layers=3, tokens=4, token_layer_bytes=8, scale=1)
PAGES = 40


@st.composite
def extents(draw: st.DrawFn, pages: int) -> Extents:
    """`pages` pages of a region, in some runs."""
    found: list[tuple[int, int]] = []
    at, left = 0, pages
    while left:
        at += draw(st.integers(0, 2))
        count = draw(st.integers(1, left))
        found.append((at, count))
        at, left = at + count, left - count
    return tuple(draw(st.permutations(found)))


@st.composite
def places(draw: st.DrawFn) -> tuple[int, Area, Area]:
    """A number of blocks, and two places for them."""
    count = draw(st.integers(1, 9))
    source = Area("here", draw(extents(count)), SHAPE.layers, SHAPE.layer_image, draw(st.booleans()))
    target = Area("there", draw(extents(count)), SHAPE.layers, SHAPE.layer_image, draw(st.booleans()))
    return count, source, target


def _filled(area: Area, count: int) -> bytearray:
    memory = bytearray(PAGES * SHAPE.full_image)
    for layer in range(area.layers):
        for block, offset in enumerate(_all(area).layer_offsets(layer, 0, count)):
            image = layer_image(SHAPE, block + 1, layer, SHAPE.tokens)
            memory[offset : offset + len(image)] = image
    return memory


def _all(area: Area) -> Holding:
    return Holding((Part(area, 0, 0, area.columns),))


def _carry_out(errands: list[Errand], source: bytearray, target: bytearray) -> None:
    for errand in errands:
        data = b"".join(source[piece.offset : piece.offset + piece.length] for piece in errand.pieces)
        target[errand.offset : errand.offset + len(data)] = data


@given(places())
def test_all_layers_of_all_blocks_arrive_in_one_write_a_run(found: tuple[int, Area, Area]) -> None:
    count, source, target = found
    errands = full_errands(_all(source), target, 0)
    assert len(errands) == len(target.extents)
    memory = bytearray(PAGES * SHAPE.full_image)
    _carry_out(errands, _filled(source, count), memory)
    assert memory == _filled(target, count)


@given(places(), st.integers(0, 2), st.data())
def test_one_layer_of_some_blocks_arrives_where_it_belongs(
    found: tuple[int, Area, Area], layer: int, data: st.DataObject
) -> None:
    count, source, target = found
    first = data.draw(st.integers(0, count - 1))
    some = data.draw(st.integers(1, count - first))
    memory = bytearray(PAGES * SHAPE.full_image)
    errands = layer_errands(_all(source), _all(target), (layer, layer), first, some)
    _carry_out(errands, _filled(source, count), memory)
    for block, offset in enumerate(_all(target).layer_offsets(layer, first, some), first):
        assert check_layer(SHAPE, memory[offset : offset + SHAPE.layer_image], block + 1, layer) == SHAPE.tokens
    assert len(memory) - memory.count(0) <= some * SHAPE.layer_image, "nothing else was touched"


def test_rows_take_a_layer_in_one_piece_and_full_blocks_one_a_block() -> None:
    rows = Area("r", ((2, 3),), 3, 10, rows=True)
    assert list(rows.pieces(1, 0, 3)) == [Piece("r", 2 * 30 + 30, 30)]
    blocks = Area("r", ((2, 3),), 3, 10, rows=False)
    assert [piece.offset for piece in blocks.pieces(1, 0, 3)] == [70, 100, 130]


def test_layer_blocks_one_after_another_are_the_full_block_without_conversion() -> None:
    """Design dualpath 1.9: rows gathered block by block give images that storage and its checks take as they are."""
    source = Area("here", ((1, 2), (5, 1)), SHAPE.layers, SHAPE.layer_image, rows=True)
    target = Area("there", ((0, 3),), SHAPE.layers, SHAPE.layer_image, rows=False)
    memory = bytearray(3 * SHAPE.full_image)
    _carry_out(full_errands(_all(source), target, 0), _filled(source, 3), memory)
    for block in range(3):
        image = memory[block * SHAPE.full_image : (block + 1) * SHAPE.full_image]
        assert image == full_image(SHAPE, block + 1, SHAPE.tokens)
        check_full(SHAPE, image, block + 1)


def test_a_holding_of_parts_finds_each_block_in_its_part() -> None:
    hits = Area("buffer", ((0, 2),), 2, 10, rows=False)
    rows = Area("hbm0", ((4, 3),), 2, 10, rows=True)
    holding = Holding((Part(rows, 0, 0, 1), Part(hits, 0, 1, 2), Part(rows, 1, 3, 2)))
    assert [(piece.region, piece.offset, piece.length) for piece in holding.pieces(1, 0, 5)] == [
        ("hbm0", 80 + 30, 10), ("buffer", 10, 10), ("buffer", 30, 10), ("hbm0", 80 + 40, 20),
    ]  # fmt: skip


def test_pieces_that_touch_are_one() -> None:
    pieces = [Piece("r", 0, 5), Piece("r", 5, 5), Piece("q", 10, 5), Piece("q", 20, 5)]
    assert merged(pieces) == (Piece("r", 0, 10), Piece("q", 10, 5), Piece("q", 20, 5))


@given(extents(9), st.integers(0, 9))
def test_extents_are_split_without_loss(some: Extents, pages: int) -> None:
    head, tail = split(some, pages)
    assert sum(count for _, count in head) == pages
    ids = [page for first, count in (*head, *tail) for page in range(first, first + count)]
    assert ids == [page for first, count in some for page in range(first, first + count)]
