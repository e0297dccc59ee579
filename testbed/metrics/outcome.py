"""What the run says of itself: how it was set, how far it came and how it ended."""

from __future__ import annotations

import msgspec

from testbed.events.log import Record
from testbed.events.run_events import HostProvisioned, NodeReady, NodeStopped, RunFinished, RunStarted, StageEntered
from testbed.events.schema import DeviceFaulted, VerbFailed
from testbed.machine import Event
from testbed.units import Nanoseconds

SHOWN_FAULTS = 20
"""So many faults are kept in words; all are counted."""


class StoryState(msgspec.Struct):
    """Facts so far; also the result."""

    system: str = ""
    clock: str = ""
    dilation: float = 1.0
    byte_scale: int = 1
    seed: int = 0
    requests: int = 0
    """How many the workload will send; 0 when it is open-ended."""
    started: Nanoseconds | None = None
    provisioned: Nanoseconds | None = None
    finished: Nanoseconds | None = None
    outcome: str = ""
    """Empty until run.finished."""
    detail: str = ""
    stage: str = ""
    nodes: dict[str, str] = {}
    """Role by node, of those that were ready at the barrier."""
    died: dict[str, str] = {}
    """Last words by node, of those that ended with a code other than 0."""
    faults: list[str] = []
    """Refusals of the emulated device and failed verbs, in words, at most `SHOWN_FAULTS`."""
    fault_count: int = 0


class StoryFold:
    """Keeps the facts of a run."""

    state = StoryState
    takes: frozenset[type[Event]] = frozenset(
        {RunStarted, RunFinished, StageEntered, NodeReady, NodeStopped, HostProvisioned, DeviceFaulted, VerbFailed}
    )

    def start(self) -> StoryState:
        """Nothing is known."""
        return StoryState()

    def step(self, state: StoryState, record: Record) -> StoryState:
        """Takes one fact."""
        match record.event:
            case RunStarted() as event:
                state.started = record.t
                state.system, state.clock, state.seed = event.system, event.clock, event.seed
                state.dilation, state.byte_scale, state.requests = event.dilation, event.byte_scale, event.requests
            case RunFinished(outcome=outcome, detail=detail):
                state.finished, state.outcome, state.detail = record.t, outcome, detail
            case StageEntered(stage=stage):
                state.stage = stage
            case NodeReady(role=role):
                state.nodes[record.node] = role
            case NodeStopped(code=code, detail=detail) if code != 0:
                state.died[record.node] = detail or f"exit code {code}"
            case HostProvisioned():
                state.provisioned = record.t
            case DeviceFaulted(code=code, detail=detail):
                _fault(state, f"{record.node}: device refused: {code}: {detail}")
            case VerbFailed(verb=verb, peer=peer, status=status):
                _fault(state, f"{record.node}: {verb} to {peer}: {status}")
        return state

    def result(self, state: StoryState) -> StoryState:
        """A copy of the facts."""
        return msgspec.structs.replace(state, nodes=dict(state.nodes), died=dict(state.died), faults=list(state.faults))


def _fault(state: StoryState, words: str) -> None:
    state.fault_count += 1
    if len(state.faults) < SHOWN_FAULTS:
        state.faults.append(words)
