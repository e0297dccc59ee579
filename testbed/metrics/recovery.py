"""Recovery: how long a server was without its scheduler, as the ring, the watchdog and the clients saw it.

An outage begins with the fault that the bench carried out (`fault.injected` of a scheduler), or, where somebody else
did it, with the last sign of life before `watchdog.fired`. The service is back with the first `tokens.published` of the
next scheduler; a stream is back with its next token after that scheduler's start. Streams of which the client had
nothing yet when the outage began are not counted: what they wait for is a first token. Times are true nanoseconds.

Every GPU has a scheduler of its own. An outage is one GPU's: another's tokens do not end it, and the streams of another
go on. A watchdog of before it named the ring speaks of the newest outage there is.
"""

from __future__ import annotations

import msgspec

from testbed.events.blink_events import SchedulerRestarted, WatchdogCalmed, WatchdogFired, WatchdogGaveUp
from testbed.events.client_events import RequestFailed, RequestFinished, TokenReceived
from testbed.events.fidelity_events import FaultInjected
from testbed.events.log import Record
from testbed.events.schema import RequestArrived, SlotClaimed, TokensPublished
from testbed.machine import Event
from testbed.units import Nanoseconds

OF_SCHEDULERS = frozenset({"kill-scheduler", "hang-scheduler"})
"""Faults after which a scheduler is to be replaced."""


class Outage(msgspec.Struct):
    """One scheduler's absence."""

    began: Nanoseconds
    kind: str
    """The fault's, or `silence` where nobody said that there was one."""
    gpu: str = ""
    """The node whose scheduler it is; empty while nobody has said so."""
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
    names: dict[int, str] = {}
    """The client's name of each request that no scheduler has claimed yet."""
    gpus: dict[str, str] = {}
    """Where each stream that has not ended is served, by its name."""
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
        FaultInjected, WatchdogFired, WatchdogCalmed, WatchdogGaveUp, SchedulerRestarted, RequestArrived, SlotClaimed,
        TokensPublished, TokenReceived, RequestFinished, RequestFailed,
    })  # fmt: skip

    def start(self) -> RecoveryState:
        """Nothing has happened."""
        return RecoveryState()

    def step(self, state: RecoveryState, record: Record) -> RecoveryState:
        """Takes one event."""
        match record.event:
            case RequestArrived(request=request, name=name):
                state.names[request] = name
            case SlotClaimed(request=request):
                if name := state.names.pop(request, ""):
                    state.gpus[name] = record.node
            case TokenReceived(name=name):
                _token(state, record.t, name)
            case RequestFinished(name=name) | RequestFailed(name=name):
                _end(state, name)
            case TokensPublished():
                outage = _newest(state, record.node)
                if outage is not None and outage.restarted is not None and outage.back is None:
                    outage.back = record.t
            case FaultInjected(what=node, kind=kind) if kind in OF_SCHEDULERS:
                _begin(state, record.t, kind, node)
            case WatchdogFired(silent=silent, ring=gpu):
                _fired(state, record.t, silent, gpu)
            case SchedulerRestarted() as event:
                _restarted(state, record, event)
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
        return msgspec.structs.replace(
            state, outages=outages, running=dict(state.running), names=dict(state.names), gpus=dict(state.gpus)
        )


def _newest(state: RecoveryState, gpu: str) -> Outage | None:
    """The last outage of a GPU; where either is nameless, the last that can be it."""
    return next((one for one in reversed(state.outages) if not gpu or one.gpu in {"", gpu}), None)


def _begin(state: RecoveryState, t: Nanoseconds, kind: str, gpu: str) -> Outage:
    waiting = {name: None for name in state.running if not gpu or state.gpus.get(name, gpu) == gpu}
    state.outages.append(Outage(t, kind, gpu, waiting=waiting))
    return state.outages[-1]


def _fired(state: RecoveryState, t: Nanoseconds, silent: Nanoseconds, gpu: str) -> None:
    state.fired += 1
    outage = _newest(state, gpu)
    if outage is None or outage.restarted is not None:
        outage = _begin(state, t - silent, "silence", gpu)
    outage.fired = t if outage.fired is None else outage.fired


def _restarted(state: RecoveryState, record: Record, event: SchedulerRestarted) -> None:
    state.restarts += 1
    state.resumed += event.running + event.waiting
    state.interrupted += event.interrupted
    outage = _newest(state, record.node)
    if outage is not None and outage.restarted is None:
        outage.restarted, outage.gpu = record.t, record.node


def _token(state: RecoveryState, t: Nanoseconds, name: str) -> None:
    state.running[name] = None
    outage = _newest(state, state.gpus.get(name, ""))
    # What was under way when the scheduler died still arrives.
    if outage is not None and outage.restarted is not None and name in outage.waiting:
        del outage.waiting[name]
        outage.streams.append(t - outage.began)


def _end(state: RecoveryState, name: str) -> None:
    state.running.pop(name, None)
    state.gpus.pop(name, None)
    for outage in state.outages:
        outage.waiting.pop(name, None)
