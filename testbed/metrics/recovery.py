"""Recovery: how long a server was without its scheduler, as the ring, the watchdog and the clients saw it.

An outage begins with the fault that the bench carried out (`fault.injected` of a scheduler), or, where somebody else
did it, with the last sign of life before `watchdog.fired`. The service is back with the first `tokens.published` of the
next scheduler; a stream is back with its next token after that scheduler's start. Streams of which the client had
nothing yet when the outage began are not counted: what they wait for is a first token. Times are true nanoseconds.
"""

from __future__ import annotations

import msgspec

from testbed.events.blink_events import SchedulerRestarted, WatchdogCalmed, WatchdogFired, WatchdogGaveUp
from testbed.events.client_events import RequestFailed, RequestFinished, TokenReceived
from testbed.events.fidelity_events import FaultInjected
from testbed.events.log import Record
from testbed.events.schema import TokensPublished
from testbed.machine import Event
from testbed.units import Nanoseconds

OF_SCHEDULERS = frozenset({"kill-scheduler", "hang-scheduler"})
"""Faults after which a scheduler is to be replaced."""


class Outage(msgspec.Struct):
    """One scheduler's absence."""

    began: Nanoseconds
    kind: str
    """The fault's, or `silence` where nobody said that there was one."""
    fired: Nanoseconds | None = None
    restarted: Nanoseconds | None = None
    back: Nanoseconds | None = None
    waiting: dict[str, None] = {}
    """Streams that had begun and have had nothing since, by the client's name."""
    streams: list[Nanoseconds] = []
    """Of each of those that went on: from the beginning of the outage to its next token."""


class RecoveryState(msgspec.Struct):
    """What was seen so far; also the result."""

    outages: list[Outage] = []
    """Those that are over and, last, the one that may not be."""
    running: dict[str, None] = {}
    """Streams that have begun and not ended."""
    fired: int = 0
    calmed: int = 0
    gave_up: int = 0
    restarts: int = 0
    resumed: int = 0
    """Requests that new schedulers found and went on with."""
    interrupted: int = 0
    """Requests that they could not go on with."""


class RecoveryFold:
    """Measures outages."""

    state = RecoveryState
    takes: frozenset[type[Event]] = frozenset({
        FaultInjected, WatchdogFired, WatchdogCalmed, WatchdogGaveUp, SchedulerRestarted, TokensPublished,
        TokenReceived, RequestFinished, RequestFailed,
    })  # fmt: skip

    def start(self) -> RecoveryState:
        """Nothing has happened."""
        return RecoveryState()

    def step(self, state: RecoveryState, record: Record) -> RecoveryState:
        """Takes one event."""
        match record.event:
            case TokenReceived(name=name):
                _token(state, record.t, name)
            case RequestFinished(name=name) | RequestFailed(name=name):
                state.running.pop(name, None)
                for outage in state.outages[-1:]:
                    outage.waiting.pop(name, None)
            case TokensPublished():
                for outage in state.outages[-1:]:
                    if outage.restarted is not None and outage.back is None:
                        outage.back = record.t
            case FaultInjected(kind=kind) if kind in OF_SCHEDULERS:
                _begin(state, record.t, kind)
            case WatchdogFired(silent=silent):
                _fired(state, record.t, silent)
            case SchedulerRestarted() as event:
                _restarted(state, record.t, event)
            case WatchdogCalmed():
                state.calmed += 1
            case WatchdogGaveUp():
                state.gave_up += 1
        return state

    def result(self, state: RecoveryState) -> RecoveryState:
        """A copy of what was seen."""
        outages = [
            msgspec.structs.replace(outage, waiting=dict(outage.waiting), streams=list(outage.streams))
            for outage in state.outages
        ]
        return msgspec.structs.replace(state, outages=outages, running=dict(state.running))


def _begin(state: RecoveryState, t: Nanoseconds, kind: str) -> None:
    state.outages.append(Outage(t, kind, waiting=dict(state.running)))


def _fired(state: RecoveryState, t: Nanoseconds, silent: Nanoseconds) -> None:
    state.fired += 1
    if not state.outages or state.outages[-1].restarted is not None:
        _begin(state, t - silent, "silence")
    outage = state.outages[-1]
    outage.fired = t if outage.fired is None else outage.fired


def _restarted(state: RecoveryState, t: Nanoseconds, event: SchedulerRestarted) -> None:
    state.restarts += 1
    state.resumed += event.running + event.waiting
    state.interrupted += event.interrupted
    for outage in state.outages[-1:]:
        if outage.restarted is None:
            outage.restarted = t


def _token(state: RecoveryState, t: Nanoseconds, name: str) -> None:
    state.running[name] = None
    for outage in state.outages[-1:]:
        # What was under way when the scheduler died still arrives.
        if outage.restarted is not None and name in outage.waiting:
            del outage.waiting[name]
            outage.streams.append(t - outage.began)
