"""Times of chunks from the table of whole prompts."""

from __future__ import annotations

from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.serving.chunk_times import chunk_time, riding_time
from testbed.serving.cost_model import CostModel, read_profile
from testbed.serving.engine import Lane, lanes_time
from testbed.serving.graph_cache import CHUNK, MIXED, Graph
from testbed.serving.models import MODELS

COST = {name: CostModel(read_profile(model.profile)) for name, model in MODELS.items()}
LANE = Lane(1, 0, 0, (1, 2), 1.0, 1.0, 0, True)


@pytest.mark.parametrize("model", sorted(COST))
@given(chunks=st.lists(st.integers(1, 2_000), min_size=1, max_size=8))
def test_the_chunks_of_a_prompt_cost_its_prefill_and_a_launch_each(model: str, chunks: list[int]) -> None:
    cost = COST[model]
    ends = list(accumulate(chunks, initial=0))
    total = sum(chunk_time(cost, after - before, before).duration for before, after in pairwise(ends))
    assert total == cost.prefill(ends[-1]).duration + (len(chunks) - 1) * cost.prefill(0).duration


@given(st.integers(1, 2_000), st.integers(0, 6_000))
def test_a_chunk_costs_more_the_more_lies_before_it(tokens: int, before: int) -> None:
    cost = COST["llama-3-8b"]
    assert chunk_time(cost, tokens, before + 512).duration >= chunk_time(cost, tokens, before).duration > 0


def test_beside_a_decode_step_the_weights_are_read_once() -> None:
    cost = COST["llama-3-8b"]
    decode = cost.decode(8, 8_000)
    riding = riding_time(cost, decode, 256, 1_024)
    apart = decode.duration + chunk_time(cost, 256, 1_024).duration
    assert apart - riding.duration == cost.prefill(0).duration
    assert riding.extrapolated == decode.extrapolated


def test_a_graph_computes_its_captured_chunk_and_reads_the_kv_there_is() -> None:
    cost = COST["llama-3-8b"]
    alone = lanes_time(cost, Graph(CHUNK, 1, 2_048, 128), [LANE._replace(context=1_100, fresh=100)])
    assert alone == chunk_time(cost, 128, 1_000)
    lanes = [LANE._replace(context=700), LANE._replace(context=900), LANE._replace(context=1_100, fresh=100)]
    mixed = lanes_time(cost, Graph(MIXED, 4, 2_048, 128), lanes)
    assert mixed == riding_time(cost, cost.decode(4, 1_600), 128, 1_000)
