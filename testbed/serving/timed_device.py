"""The accelerator of nodes whose engines compute for a modelled time: one queue an engine, in order.

It stands for g GPUs of a node. The time of a piece of work is handed in with it (cost models are their owners'
business); each engine does one piece after another, engines do not disturb each other. It decides nothing else.
"""

from __future__ import annotations

from collections import deque
from typing import Any

import msgspec

from testbed.machine import NOTHING, Deliver, Effect, Effects, Message
from testbed.units import Nanoseconds


class TimedWork(msgspec.Struct, frozen=True):
    """Work for one engine of the node."""

    engine: int
    """Number of the GPU on its node, from 0."""
    owner: str
    """Machine that is told when it is done."""
    ticket: int
    """The owner's own number for it."""
    duration: Nanoseconds
    """Modelled time, at least 0."""


class Computed(Message, frozen=True):
    """To the owner: the work `ticket` is done."""

    ticket: int


class TimedDevice:
    """The `Accelerator` (testbed.clocks.node_host) of `engines` GPUs."""

    def __init__(self, engines: int) -> None:
        self._queues: list[deque[TimedWork]] = [deque() for _ in range(engines)]
        self._ends: list[Nanoseconds] = [0] * engines
        self.busy: list[Nanoseconds] = [0] * engines
        """Time that each engine has computed so far, work under way included."""

    def submit(self, now: Nanoseconds, work: Any) -> Effects:
        """Starts the work when its engine is free. Raises IndexError for an engine that there is none of."""
        queue = self._queues[work.engine]
        queue.append(work)
        self.busy[work.engine] += work.duration
        if len(queue) == 1:
            self._ends[work.engine] = now + work.duration
        return NOTHING

    def wake(self, now: Nanoseconds) -> Effects:
        """Ends what is due; the next piece begins when the one before it ended, however late this call is."""
        effects: list[Effect] = []
        for engine, queue in enumerate(self._queues):
            while queue and self._ends[engine] <= now:
                done = queue.popleft()
                effects.append(Deliver(done.owner, Computed(done.ticket)))
                if queue:
                    self._ends[engine] += queue[0].duration
        return effects

    def deadline(self) -> Nanoseconds | None:
        """When the next work ends."""
        return min((end for end, queue in zip(self._ends, self._queues, strict=True) if queue), default=None)
