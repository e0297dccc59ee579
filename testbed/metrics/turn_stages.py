"""Where a turn's time to first token went: scheduling, allocation, reading, prefill (paper DualPath, Fig. 12 left).

scheduling  from the agent's sending to `placed`: the way to the scheduler and its queue
allocation  from `placed` to `allocated`: waiting for room in a buffer
reading     from `allocated` to `ready`: hit KV comes from storage
prefill     from `ready` to `prefilled`
rest        from `prefilled` to the first token at the agent

A stage that a turn never told lasts no time, and the next one begins where the one before ended. A turn that was
placed again counts by its last stages; what it lost before is scheduling.
"""

from __future__ import annotations

import msgspec

from testbed.events.client_events import RequestSent, TokenReceived
from testbed.events.kv_events import TurnStage
from testbed.events.log import Record
from testbed.machine import Event
from testbed.units import Nanoseconds

PARTS = ("scheduling", "allocation", "reading", "prefill", "rest")
"""Of a time to first token, in their order."""
ENDS = {"placed": "scheduling", "allocated": "allocation", "ready": "reading", "prefilled": "prefill"}
"""The part that each stage ends."""


class TurnTimes(msgspec.Struct):
    """Moments of one turn."""

    sent: Nanoseconds | None = None
    stages: dict[str, Nanoseconds] = {}
    """When each stage was entered last."""
    first_token: Nanoseconds | None = None


class StageState(msgspec.Struct):
    """By turn; also the result."""

    turns: dict[str, TurnTimes] = {}


class StageFold:
    """Follows each turn that told a stage, from its sending to its first token."""

    state = StageState
    takes: frozenset[type[Event]] = frozenset({RequestSent, TurnStage, TokenReceived})

    def start(self) -> StageState:
        """No turn yet."""
        return StageState()

    def step(self, state: StageState, record: Record) -> StageState:
        """Takes one moment of a turn."""
        match record.event:
            case RequestSent(name=name):
                state.turns.setdefault(name, TurnTimes()).sent = record.t
            case TurnStage(turn=name, stage=stage):
                state.turns.setdefault(name, TurnTimes()).stages[stage] = record.t
            case TokenReceived(name=name):
                turn = state.turns.setdefault(name, TurnTimes())
                if turn.first_token is None:
                    turn.first_token = record.t
        return state

    def result(self, state: StageState) -> StageState:
        """A copy of the turns that told a stage: requests of other systems have none."""
        return StageState(
            {
                name: msgspec.structs.replace(turn, stages=dict(turn.stages))
                for name, turn in state.turns.items()
                if turn.stages
            }
        )


def parts_of(turn: TurnTimes) -> dict[str, Nanoseconds] | None:
    """How long each part of the time to first token was; they add up to it. None until there is a first token."""
    if turn.sent is None or turn.first_token is None:
        return None
    found = dict.fromkeys(PARTS, 0)
    low = turn.sent
    for stage, part in ENDS.items():
        moment = turn.stages.get(stage)
        if moment is not None:
            high = min(max(low, moment), turn.first_token)
            found[part] = high - low
            low = high
    found["rest"] = turn.first_token - low
    return found
