"""What the resident scheduler may be doing, and what changes it: one table. It knows no ring, no device and no time."""

from __future__ import annotations

from enum import Enum

from testbed.serving.transitions import Transitions


class SchedulerState(Enum):
    """What the kernel is doing."""

    ABSENT = "absent"
    """No execution runs: before the host's launch, and between a return and the tail launch that follows it (with
    launch mode `tail`, while each step's graph runs)."""
    SCANNING = "scanning"
    PREFILLING = "prefilling"
    DECODING = "decoding"
    FAULTED = "faulted"
    """The device failed; whatever is pending is finished with a reason."""


class SchedulerMove(Enum):
    """What changes it."""

    START = "start"
    REJOIN_PREFILL = "rejoin_prefill"
    """A tail launch of its own behind the prefill that it had enqueued: the output is there."""
    REJOIN_DECODE = "rejoin_decode"
    LAUNCH_PREFILL = "launch_prefill"
    LAUNCH_DECODE = "launch_decode"
    COMPLETE_STEP = "complete_step"
    RETURN = "return"
    FAIL = "fail"


_S, _M = SchedulerState, SchedulerMove
SCHEDULER_TABLE: Transitions[SchedulerState, SchedulerMove] = Transitions(
    "scheduler",
    _S.ABSENT,
    {
        (_S.ABSENT, _M.START): _S.SCANNING,
        (_S.ABSENT, _M.REJOIN_PREFILL): _S.PREFILLING,
        (_S.ABSENT, _M.REJOIN_DECODE): _S.DECODING,
        (_S.SCANNING, _M.LAUNCH_PREFILL): _S.PREFILLING,
        (_S.SCANNING, _M.LAUNCH_DECODE): _S.DECODING,
        (_S.PREFILLING, _M.COMPLETE_STEP): _S.SCANNING,
        (_S.DECODING, _M.COMPLETE_STEP): _S.SCANNING,
        (_S.SCANNING, _M.RETURN): _S.ABSENT,
        (_S.PREFILLING, _M.RETURN): _S.ABSENT,
        (_S.DECODING, _M.RETURN): _S.ABSENT,
        (_S.ABSENT, _M.FAIL): _S.FAULTED,
        (_S.SCANNING, _M.FAIL): _S.FAULTED,
        (_S.PREFILLING, _M.FAIL): _S.FAULTED,
        (_S.DECODING, _M.FAIL): _S.FAULTED,
    },
)
