"""The inference engine behind a device: how long a captured graph runs and which tokens its sampling leaves.

It stands for a TensorRT engine and is used by every serving system here, so differences between systems come from
orchestration alone. Times come from the cost model, tokens from the text model (synthetic). It is stateless: a lane
carries what a real engine would find in its KV blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeAlias

from testbed.serving.chunk_times import chunk_time, riding_time
from testbed.serving.cost_model import CostModel, StepTime
from testbed.serving.graph_cache import MIXED, PREFILL, Graph
from testbed.serving.text_model import TextModel


class Lane(NamedTuple):
    """One sequence's part of a graph's input tensors."""

    request: int
    place: int
    """Which token of the answer this step draws, from 0."""
    context: int
    """Tokens of KV that it reads; for a prefill, the prompt."""
    tail: tuple[int, int]
    """The last two tokens, in place of the KV's contents."""
    temperature: float
    top_p: float
    seed: int
    ignore_eos: bool
    fresh: int = 0
    """Tokens of the prompt that a chunk computes, the last of `context`; 0 for a whole prompt or a decode step."""
    draws: bool = True
    """Whether the step draws a token for it; a chunk draws none before the prompt's end."""


def step_time(cost_model: CostModel, graph: Graph, context: int) -> StepTime:
    """How long `graph` runs when its lanes hold `context` tokens together.

    A prefill computes its whole captured shape; a decode step's lanes cost their place in the batch whether they
    are used or not, and read the KV that there is.
    """
    if graph.kind == PREFILL:
        one = cost_model.prefill(graph.sequence)
        return StepTime(one.duration * graph.batch, one.extrapolated or graph.batch > 1)
    return cost_model.decode(graph.batch, context)


def lanes_time(cost_model: CostModel, graph: Graph, lanes: Sequence[Lane]) -> StepTime:
    """How long `graph` runs with these lanes. A chunk computes its whole captured length, like a prefill."""
    if not graph.chunk:
        return step_time(cost_model, graph, sum(lane.context for lane in lanes))
    before = lanes[-1].context - lanes[-1].fresh
    if graph.kind != MIXED:
        return chunk_time(cost_model, graph.chunk, before)
    decode = cost_model.decode(graph.batch, sum(lane.context for lane in lanes[:-1]))
    return riding_time(cost_model, decode, graph.chunk, before)


StepTimes: TypeAlias = Callable[[Graph, Sequence[Lane]], StepTime]
"""How long a graph runs with these lanes."""


class Engine:
    """One model on one device."""

    def __init__(self, cost_model: CostModel, text_model: TextModel, times: StepTimes | None = None) -> None:
        """`times` where a step takes something else than the kernels of `cost_model`."""
        self.cost_model = cost_model
        self._text_model = text_model
        self._times = times or partial(lanes_time, cost_model)

    def step_time(self, graph: Graph, lanes: Sequence[Lane]) -> StepTime:
        """How long `graph` runs with these lanes."""
        return self._times(graph, lanes)

    def run(self, lane: Lane, count: int) -> tuple[int, ...]:
        """`count` tokens of one lane, each behind the one before it; fewer where an end of the answer is drawn."""
        drawn: list[int] = []
        while len(drawn) < count:
            (token,) = self.sample((lane,))
            drawn.append(token)
            if token == self._text_model.eos and not lane.ignore_eos:
                break
            lane = lane._replace(place=lane.place + 1, context=lane.context + 1, tail=(lane.tail[1], token))
        return tuple(drawn)

    def sample(self, lanes: Sequence[Lane]) -> tuple[int, ...]:
        """One token a lane, by the lane's own seed and place; 0 for a lane that draws none."""
        draw = self._text_model.next_token
        return tuple(
            draw(
                lane.tail,
                seed=lane.seed,
                place=lane.place,
                temperature=lane.temperature,
                top_p=lane.top_p,
                ignore_eos=lane.ignore_eos,
            )
            if lane.draws
            else 0
            for lane in lanes
        )
