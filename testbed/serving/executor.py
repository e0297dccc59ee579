"""Who runs a device's graphs and says how long each took: the cost model, or a device that measures.

The part of an accelerator that hardware in the loop exchanges (architecture §1, "timed compute, or a real device").
An emulated device keeps the rules of launching and asks an executor for the time alone. Durations are nanoseconds of
the modelled hardware, which for a measured one are the nanoseconds it took. This file knows no clock and no device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from testbed.serving.cost_model import StepTime
from testbed.serving.engine import Engine, Lane
from testbed.serving.graph_cache import Graph
from testbed.units import Nanoseconds

CANCELLED = "cancelled"
"""Failure of a launch that was cancelled before it ended."""


class Ended(NamedTuple):
    """The one answer to a launch whose time was not known when it began."""

    launch: int
    duration: Nanoseconds
    """How long the graph itself ran, without what waited before it; 0 where it failed."""
    failure: str = ""
    """Why there is no result; empty when there is one."""


class Executor(Protocol):
    """Runs graphs one at a time, in the order in which they were begun."""

    def begin(self, launch: int, graph: Graph, lanes: Sequence[Lane]) -> StepTime | None:
        """Begins a graph. Its time if that is known beforehand; else None, and `ended` will have it."""
        ...

    def waiting(self) -> bool:
        """Whether `ended` has something."""
        ...

    def ended(self) -> Sequence[Ended]:
        """Launches that have ended since the last call: each of those without a time exactly once, in order."""
        ...

    def cancel(self) -> None:
        """Gives up everything that was begun and has not ended; `ended` says CANCELLED of each."""
        ...


class ModelledExecutor:
    """Time as the cost model has it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def begin(self, launch: int, graph: Graph, lanes: Sequence[Lane]) -> StepTime:  # noqa: ARG002  # one time for all launches
        """The modelled time."""
        return self._engine.step_time(graph, lanes)

    def waiting(self) -> bool:
        """Never: every time is known when a graph begins."""
        return False

    def ended(self) -> Sequence[Ended]:
        """Nothing."""
        return ()

    def cancel(self) -> None:
        """Nothing is under way here."""
