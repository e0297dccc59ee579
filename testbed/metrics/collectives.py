"""How long collective operations took, by operation, from the moment each was due.

Bursts of fewer packets than `FEWEST_PACKETS` are counted apart: the time of a burst of one packet is the wait for one
packet of another lane, which no arbiter can spare it, and says nothing of isolation (paper DualPath, App. A.1).
"""

from __future__ import annotations

import msgspec

from testbed.events.kv_events import CollectiveFinished
from testbed.events.log import Record
from testbed.machine import Event
from testbed.metrics.tally import Tally, add, copied

FEWEST_PACKETS = 16
"""Of a burst whose time is judged."""
ALL_TO_ALL = ("dispatch", "combine")
"""The operations of experts' exchange."""


class Operation(msgspec.Struct):
    """Sums over one kind of operation."""

    bytes: int = 0
    small: int = 0
    """Operations of fewer packets than `FEWEST_PACKETS`; not in `times`."""
    times: Tally = msgspec.field(default_factory=Tally)


class CollectiveState(msgspec.Struct):
    """By operation; also the result."""

    operations: dict[str, Operation] = {}


class CollectiveFold:
    """Gathers collective.finished."""

    state = CollectiveState
    takes: frozenset[type[Event]] = frozenset({CollectiveFinished})

    def start(self) -> CollectiveState:
        """None yet."""
        return CollectiveState()

    def step(self, state: CollectiveState, record: Record) -> CollectiveState:
        """Takes one operation of one engine."""
        event = record.event
        if isinstance(event, CollectiveFinished):
            operation = state.operations.setdefault(event.operation, Operation())
            operation.bytes += event.bytes
            if event.packets < FEWEST_PACKETS:
                operation.small += 1
            else:
                add(operation.times, event.duration)
        return state

    def result(self, state: CollectiveState) -> CollectiveState:
        """A copy."""
        return CollectiveState(
            {name: msgspec.structs.replace(one, times=copied(one.times)) for name, one in state.operations.items()}
        )
