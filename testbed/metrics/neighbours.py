"""What the tenants beside a run got done, and the CPU time that they had: co-location is about both.

With them stands what protects the server from them. It knows events, not what runs them. What was done before the epoch
(their warming up) does not count.
"""

from __future__ import annotations

import msgspec

from testbed.events.host_events import MitigationApplied, NeighbourMeasured, NeighbourStarted
from testbed.events.log import Record
from testbed.machine import Event
from testbed.units import Nanoseconds


class Neighbour(msgspec.Struct):
    """One neighbour over the run."""

    kind: str
    threads: int
    containers: int
    program: str
    unit: str = ""
    done: float = 0.0
    interval: Nanoseconds = 0
    """Wall time over which that was measured."""
    cpu: Nanoseconds = 0


class Protection(msgspec.Struct):
    """One mitigation."""

    applied: bool
    detail: str
    reserved_cores: float


class NeighbourState(msgspec.Struct):
    """By name."""

    found: dict[str, Neighbour] = {}
    protections: dict[str, Protection] = {}


class NeighbourFold:
    """Adds up what each neighbour did."""

    state = NeighbourState
    takes: frozenset[type[Event]] = frozenset({NeighbourStarted, NeighbourMeasured, MitigationApplied})

    def start(self) -> NeighbourState:
        """None yet."""
        return NeighbourState()

    def step(self, state: NeighbourState, record: Record) -> NeighbourState:
        """Takes one reading."""
        match record.event:
            case NeighbourStarted(name=name) as event:
                state.found[name] = Neighbour(event.kind, event.threads, event.containers, event.program)
            case NeighbourMeasured(name=name) as event if record.t > 0 and name in state.found:
                row = state.found[name]
                row.unit = event.unit
                row.done = round(row.done + event.done, 6)
                row.interval += event.interval
                row.cpu += event.cpu
            case MitigationApplied(name=name) as event:
                state.protections[name] = Protection(event.applied, event.detail, event.reserved_cores)
        return state

    def result(self, state: NeighbourState) -> NeighbourState:
        """The state itself, apart from what is still to come."""
        found = {name: msgspec.structs.replace(row) for name, row in state.found.items()}
        return NeighbourState(found, dict(state.protections))
