"""How long a graph runs once the switches that go beyond the paper are counted in: one function for all who ask.

The device asks how long to compute, the scheduler when to look; both must hear the same. Each switch is a module of
its own and changes the time that the one before it gives: kernels by the table, tensor parallelism, absent experts,
speculative decoding.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.blink.parameters import BlinkParameters
from testbed.serving.architectures import ARCHITECTURES
from testbed.serving.cost_model import CostModel, StepTime
from testbed.serving.engine import Lane, StepTimes, lanes_time
from testbed.serving.graph_cache import Graph


def times_of(parameters: BlinkParameters, cost_model: CostModel) -> StepTimes:
    """The times of a server with `parameters` whose kernels take what `cost_model` says."""
    architecture = ARCHITECTURES[parameters.model]
    parallel, offload, speculation = parameters.tensor_parallel, parameters.expert_offload, parameters.speculation

    def time(graph: Graph, lanes: Sequence[Lane]) -> StepTime:
        step = lanes_time(cost_model, graph, lanes)
        if parallel is not None:
            step = parallel.time(architecture, graph, step)
        if offload is not None:
            step = offload.time(architecture, graph, step)
        if speculation is not None:
            step = speculation.time(cost_model, graph, step)
        return step

    return time
