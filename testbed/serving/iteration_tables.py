"""The arrays that `testbed.serving.iteration` runs on, from a cost model and a graph cache."""

from __future__ import annotations

import numpy as np

from testbed.serving.cost_model import CostModel
from testbed.serving.engine import step_time
from testbed.serving.graph_cache import GraphCache
from testbed.serving.iteration import StepTables


def step_tables(cost_model: CostModel, graphs: GraphCache) -> StepTables:
    """Times of every prefill graph and the decode table with its grid: the same nanoseconds as `CostModel`."""
    longest, lanes = graphs.prefill.largest.sequence, graphs.decode.largest.batch
    times: dict[int, int] = {}
    prefill = np.zeros(longest + 1, np.int64)
    start = 0
    for end in sorted({graph.sequence for graph in graphs.prefill.graphs}):
        graph = graphs.prefill.choose(1, end).graph
        times[end] = step_time(cost_model, graph, end).duration
        prefill[start : end + 1] = times[end]
        start = end + 1
    decode = cost_model.profile.decode
    return StepTables(
        prefill=prefill,
        graph_batch=np.array([0, *(graphs.decode.choose(batch, 1).graph.batch for batch in range(1, lanes + 1))]),
        batches=np.array(decode.batches, np.int64),
        contexts=np.array(decode.contexts, np.int64),
        decode=np.array(cost_model.decode_times, np.int64),
        floor=cost_model.floor,
    )
