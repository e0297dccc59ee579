from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.serving.graph_cache import (
    CHUNK,
    DECODE,
    MIXED,
    ChunkGrids,
    Graph,
    GraphGrid,
    decode_batches,
    sequences_up_to,
)

BATCHES, SEQUENCES = (1, 2, 4, 7), (128, 256, 640, 1_000)
GRID = GraphGrid(DECODE, BATCHES, SEQUENCES)
CUT = GraphGrid(DECODE, BATCHES, SEQUENCES, token_budget=1_500)


@given(batch=st.integers(1, 7), sequence=st.integers(0, 1_000))
def test_the_smallest_graph_that_fits_is_taken(batch: int, sequence: int) -> None:
    fits = [graph for graph in GRID.graphs if graph.batch >= batch and graph.sequence >= sequence]
    graph, fallback = GRID.choose(batch, sequence)
    assert graph == min(fits, key=lambda graph: (graph.batch, graph.sequence))
    assert not fallback


@given(batch=st.integers(1, 7), sequence=st.integers(0, 1_000))
def test_what_was_not_captured_falls_back_to_the_largest(batch: int, sequence: int) -> None:
    regular = GRID.choose(batch, sequence).graph
    graph, fallback = CUT.choose(batch, sequence)
    assert graph in CUT.graphs
    assert fallback == (regular not in CUT.graphs)
    assert graph == (CUT.largest if fallback else regular)


def test_the_cut_grid_really_lacks_graphs_and_keeps_the_largest() -> None:
    assert 0 < len(CUT.graphs) < len(GRID.graphs) == 16
    assert Graph(DECODE, 7, 1_000) in CUT.graphs
    assert Graph(DECODE, 4, 640) not in CUT.graphs


@pytest.mark.parametrize(("batch", "sequence"), [(0, 5), (8, 5), (1, 1_001), (1, -1)])
def test_what_no_graph_can_take_is_refused(batch: int, sequence: int) -> None:
    with pytest.raises(ValueError, match="no graph takes"):
        GRID.choose(batch, sequence)


@pytest.mark.parametrize(
    ("batches", "sequences"), [((), (1,)), ((1,), ()), ((2, 1), (1,)), ((1,), (5, 5)), ((0, 1), (1,)), ((1,), (0, 2))]
)
def test_a_grid_must_ascend(batches: tuple[int, ...], sequences: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="ascending"):
        GraphGrid(DECODE, batches, sequences)


@pytest.mark.parametrize("largest", [1, 2, 7, 8, 9, 32, 33, 80, 128])
def test_batches_ascend_to_the_largest(largest: int) -> None:
    batches = decode_batches(largest)
    assert list(batches) == sorted(set(batches))
    assert batches[0] == 1
    assert batches[-1] == largest


@pytest.mark.parametrize("longest", [2, 100, 128, 129, 2_048, 8_192, 40_960, 9_999])
def test_sequences_ascend_to_the_longest(longest: int) -> None:
    sequences = sequences_up_to(longest)
    assert list(sequences) == sorted(set(sequences))
    assert sequences[-1] == longest


def test_a_graph_says_its_shape() -> None:
    assert Graph(DECODE, 4, 640).name == "decode-b4-s640"


def test_a_chunk_takes_the_shortest_captured_length_that_holds_it() -> None:
    grids = ChunkGrids(CHUNK, (64, 128, 200), (1,), (512, 1_024))
    assert [grids.choose(tokens, 1, 300).graph.chunk for tokens in (1, 64, 65, 200)] == [64, 64, 128, 200]
    assert grids.choose(64, 1, 600).graph.name == "chunk-b1-s1024-c64"
    assert len(grids.graphs) == 6
    with pytest.raises(ValueError, match="no graph takes a chunk of 201 tokens"):
        grids.choose(201, 1, 300)


def test_a_mixed_graph_has_a_lane_beside_its_batch_for_the_prompt() -> None:
    assert Graph(MIXED, 8, 512, 64).lanes == 9
    assert Graph(DECODE, 8, 512).lanes == 8
