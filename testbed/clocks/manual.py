"""A clock that stands still until it is told to move: for tests and for labs that go step by step.

Verbs, events and messages to the outside are collected instead of carried anywhere; whoever holds the clock looks at
them and answers with `deliver` and `complete` of the hosts. It knows no wire and no file.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from testbed.clocks.node_host import Accelerator, NodeHost
from testbed.machine import Deliver, Event, Machine, Verb
from testbed.units import Nanoseconds


class Posted(NamedTuple):
    """A verb that a node has posted."""

    t: Nanoseconds
    node: str
    verb: Verb


class Emitted(NamedTuple):
    """An event that a node has emitted."""

    t: Nanoseconds
    node: str
    event: Event


class Departed(NamedTuple):
    """A message that has left a node for a name that is none of its machines."""

    t: Nanoseconds
    node: str
    deliver: Deliver


class ManualClock:
    """Drives the hosts that `host` has made. At equal times hosts go in the order in which they were made."""

    def __init__(self, now: Nanoseconds = 0) -> None:
        self.now = now
        self.hosts: dict[str, NodeHost] = {}
        self.posted: list[Posted] = []
        self.emitted: list[Emitted] = []
        self.departed: list[Departed] = []

    def host(self, name: str, machines: Iterable[Machine], accelerator: Accelerator | None = None) -> NodeHost:
        """A new node on this clock. Raises ValueError if there is one of this name."""
        if name in self.hosts:
            raise ValueError(f"there is a node {name!r} already")
        host = NodeHost(
            name,
            machines,
            post=lambda now, verb: self.posted.append(Posted(now, name, verb)),
            emit=lambda now, event: self.emitted.append(Emitted(now, name, event)),
            outside=lambda now, deliver: self.departed.append(Departed(now, name, deliver)),
            accelerator=accelerator,
        )
        self.hosts[name] = host
        return host

    def deadline(self) -> Nanoseconds | None:
        """The earliest deadline of all hosts."""
        deadlines = (host.deadline() for host in self.hosts.values())
        return min((moment for moment in deadlines if moment is not None), default=None)

    def step(self) -> Nanoseconds | None:
        """Moves to the next deadline (never back) and wakes all that are due then; None if nobody is."""
        deadline = self.deadline()
        if deadline is None:
            return None
        self.now = max(self.now, deadline)
        for host in self.hosts.values():
            host.wake(self.now)
        return self.now

    def advance(self, to: Nanoseconds, most: int = 1_000_000) -> None:
        """Moves to `to`, waking every host at each of its deadlines on the way.

        Raises ValueError for a moment in the past, RuntimeError if `most` steps do not get there.
        """
        if to < self.now:
            raise ValueError(f"time cannot go back from {self.now} to {to}")
        for _ in range(most):
            deadline = self.deadline()
            if deadline is None or deadline > to:
                self.now = to
                return
            self.step()
        raise RuntimeError(f"after {most} steps the clock is at {self.now}, not at {to}")
