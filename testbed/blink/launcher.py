"""Choosing and launching graphs: which captured graph takes the lanes, under which number, by which way of launching.

Blink fires and forgets (summary, "device-side graph launch"). The two ways that it is compared with are here as well:
`tail`, where each step's graph is enqueued behind the scheduler's own execution and the scheduler behind the graph,
and `host`, where a thread of the host launches what the scheduler has chosen. Rules of CUDA: blink.md 2.2. It watches
no output and publishes nothing.
"""

from __future__ import annotations

from testbed.blink.control_line import ControlLine
from testbed.blink.launch_window import LaunchWindow
from testbed.blink.launches import LAUNCH_MASK, LaunchGraph
from testbed.blink.modelled_steps import times_of
from testbed.blink.parameters import BlinkParameters
from testbed.blink.steps import Step
from testbed.events.schema import GraphLaunched, GraphSelected
from testbed.machine import Compute, Effect, Emit
from testbed.serving.cost_model import CostModel
from testbed.serving.graph_cache import DECODE, PREFILL, Choice
from testbed.units import Nanoseconds

UNBOUNDED = 1 << 30
"""Launches left where no window counts them."""


class GraphLauncher:
    """The scheduler's hand on the device."""

    def __init__(self, parameters: BlinkParameters, cost_model: CostModel | None, control: ControlLine) -> None:
        """`cost_model` tells when a graph's output can be there first; None where no model knows."""
        self._control = control
        self._graphs = parameters.graphs()
        self._times = None if cost_model is None else times_of(parameters, cost_model)
        self._cost = parameters.launch_cost(parameters.launch_mode)
        self.mode = parameters.launch_mode
        self.window = LaunchWindow(parameters.window)
        self.launch = control.read().launch
        """Number of the last launch; one of an earlier life's scheduler at first, whose output may still lie there."""

    @property
    def left(self) -> int:
        """Launches that this execution of the scheduler still has room for."""
        return self.window.left if self.mode == "fire_and_forget" else UNBOUNDED

    def fire(self, now: Nanoseconds, step: Step, out: list[Effect]) -> Nanoseconds:
        """Launches the graph for `step`; returns the earliest moment at which its output can be there."""
        kind, lanes = step.kind, step.lanes()
        longest = max(lane.context for lane in lanes)
        choice = self._choose(step, longest)
        self.launch = (self.launch + 1) & LAUNCH_MASK or 1
        self._control.note_launch(self.launch)
        launch, graph = self.launch, choice.graph
        requests = tuple(lane.request for lane in lanes)
        in_window = self.window.take() if self.mode == "fire_and_forget" else 0
        out += (
            Emit(GraphSelected(launch, kind, graph.name, requests, longest, choice.fallback)),
            Emit(
                GraphLaunched(launch, kind, graph.name, self.mode, len(lanes), self.window.index, in_window, self._cost)
            ),
            Compute(LaunchGraph(launch, graph, lanes, self.mode)),
        )
        expected = 0
        if self._times is not None:
            expected = self._times(graph, lanes).duration
        return now + self._cost + expected

    def _choose(self, step: Step, longest: int) -> Choice:
        graphs, decoding = self._graphs, len(step.decoding)
        if step.kind == PREFILL:
            return graphs.prefill.choose(1, longest)
        if step.kind == DECODE:
            return graphs.decode.choose(decoding, longest)
        parts = graphs.mixed if decoding else graphs.chunk
        assert parts is not None, "prompts are cut only where graphs for parts were captured"
        return parts.choose(step.fresh, max(decoding, 1), longest)
