"""States of a host-driven server's three machines, as tables: a request at the API server, the core, the worker."""

from __future__ import annotations

from enum import Enum

from testbed.serving.transitions import Transitions


class Stage(Enum):
    """What the API server is doing with a request."""

    TOKENISING = "tokenising"
    SERVING = "serving"
    """The engine core has it."""
    ENDED = "ended"


class StageMove(Enum):
    """What moves it on."""

    SUBMIT = "submit"
    END = "end"


STAGE_TABLE: Transitions[Stage, StageMove] = Transitions(
    "request",
    Stage.TOKENISING,
    {
        (Stage.TOKENISING, StageMove.SUBMIT): Stage.SERVING,
        (Stage.TOKENISING, StageMove.END): Stage.ENDED,
        (Stage.SERVING, StageMove.END): Stage.ENDED,
    },
)


class CoreState(Enum):
    """What the engine core is doing."""

    IDLE = "idle"
    STEPPING = "stepping"
    """The worker has one step, or two where scheduling is overlapped."""
    UPDATING = "updating"
    """Host work on the tokens of a step; one thing at a time."""
    FAULTED = "faulted"
    """The device is of no use any more."""


class CoreMove(Enum):
    """What moves it on."""

    SCHEDULE = "schedule"
    TAKE = "take"
    """Tokens of a step have come."""
    SETTLE = "settle"
    """They are dealt with, and the worker has another step already."""
    DRAIN = "drain"
    """They are dealt with, and the worker has none."""
    FAIL = "fail"


_C, _CM = CoreState, CoreMove
CORE_TABLE: Transitions[CoreState, CoreMove] = Transitions(
    "core",
    _C.IDLE,
    {
        (_C.IDLE, _CM.SCHEDULE): _C.STEPPING,
        (_C.STEPPING, _CM.SCHEDULE): _C.STEPPING,
        (_C.STEPPING, _CM.TAKE): _C.UPDATING,
        (_C.UPDATING, _CM.SETTLE): _C.STEPPING,
        (_C.UPDATING, _CM.DRAIN): _C.IDLE,
        (_C.STEPPING, _CM.FAIL): _C.FAULTED,
        (_C.UPDATING, _CM.FAIL): _C.FAULTED,
    },
)


class WorkerState(Enum):
    """What the worker is doing."""

    IDLE = "idle"
    PREPARING = "preparing"
    """Host work before a launch: the last tokens are collected, input tensors filled."""
    LAUNCHING = "launching"
    RUNNING = "running"
    """The device has the step."""
    LOST = "lost"
    """The device is of no use any more."""


class WorkerMove(Enum):
    """What moves it on."""

    PREPARE = "prepare"
    LAUNCH = "launch"
    RUN = "run"
    REST = "rest"
    """The step has ended and there is no other."""
    LOSE = "lose"


_W, _WM = WorkerState, WorkerMove
WORKER_TABLE: Transitions[WorkerState, WorkerMove] = Transitions(
    "worker",
    _W.IDLE,
    {
        (_W.IDLE, _WM.PREPARE): _W.PREPARING,
        (_W.PREPARING, _WM.LAUNCH): _W.LAUNCHING,
        (_W.LAUNCHING, _WM.RUN): _W.RUNNING,
        (_W.RUNNING, _WM.PREPARE): _W.PREPARING,
        (_W.RUNNING, _WM.REST): _W.IDLE,
        (_W.RUNNING, _WM.LOSE): _W.LOST,
    },
)
