"""Choosing and launching graphs: which captured graph takes the lanes, under which number, by which way of launching.

Blink fires and forgets (summary, "device-side graph launch"). The two ways that it is compared with are here as well:
`tail`, where each step's graph is enqueued behind the scheduler's own execution and the scheduler behind the graph,
and `host`, where a thread of the host launches what the scheduler has chosen. Rules of CUDA: blink.md 2.2. It watches
no output and publishes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.blink.admission import SlotGeneration
from testbed.blink.launch_window import LaunchWindow
from testbed.blink.launches import LAUNCH_MASK, LaunchGraph
from testbed.blink.parameters import BlinkParameters
from testbed.events.schema import GraphLaunched, GraphSelected
from testbed.machine import Compute, Effect, Emit
from testbed.serving.cost_model import CostModel
from testbed.serving.engine import step_time
from testbed.serving.graph_cache import PREFILL
from testbed.units import Nanoseconds

UNBOUNDED = 1 << 30
"""Launches left where no window counts them."""


class GraphLauncher:
    """The scheduler's hand on the device."""

    def __init__(self, parameters: BlinkParameters, cost_model: CostModel | None) -> None:
        """`cost_model` tells when a graph's output can be there first; None where no model knows."""
        self._graphs = parameters.graphs()
        self._cost_model = cost_model
        self._cost = parameters.launch_cost(parameters.launch_mode)
        self.mode = parameters.launch_mode
        self.window = LaunchWindow(parameters.window)
        self.launch = 0
        """Number of the last launch."""

    @property
    def left(self) -> int:
        """Launches that this execution of the scheduler still has room for."""
        return self.window.left if self.mode == "fire_and_forget" else UNBOUNDED

    def fire(self, now: Nanoseconds, kind: str, members: Sequence[SlotGeneration], out: list[Effect]) -> Nanoseconds:
        """Launches the graph for `members`; returns the earliest moment at which its output can be there."""
        grid = self._graphs.prefill if kind == PREFILL else self._graphs.decode
        longest = max(member.context for member in members)
        choice = grid.choose(len(members), longest)
        self.launch = (self.launch + 1) & LAUNCH_MASK or 1
        launch, graph = self.launch, choice.graph
        requests = tuple(member.request for member in members)
        in_window = self.window.take() if self.mode == "fire_and_forget" else 0
        out += (
            Emit(GraphSelected(launch, kind, graph.name, requests, longest, choice.fallback)),
            Emit(
                GraphLaunched(
                    launch, kind, graph.name, self.mode, len(members), self.window.index, in_window, self._cost
                )
            ),
            Compute(LaunchGraph(launch, graph, tuple(member.lane() for member in members), self.mode)),
        )
        expected = 0
        if self._cost_model is not None:
            expected = step_time(self._cost_model, graph, sum(member.context for member in members)).duration
        return now + self._cost + expected
