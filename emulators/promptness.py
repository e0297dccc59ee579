"""What a node's process does to be on time once the run has started: short turns, no collector's pauses, exact sleeps.

Two emulated devices on one core are told apart by the kernel's fair scheduler only in slices of about 3 ms, which a
real GPU would never wait for its DPU. Since Linux 6.12 a task may ask for a slice of its own (sched_setattr(2),
`sched_runtime` of SCHED_OTHER, 0.1 to 100 ms): one that wakes with a shorter slice than the running one preempts it.
It asks for no privilege and no greater share. Older kernels take the call and keep their own slices.
"""

from __future__ import annotations

import ctypes
import gc
import os
import platform

from emulators.timers import set_timer_slack
from testbed.units import MICROSECOND, Nanoseconds

ACCELERATOR_TURN: Nanoseconds = 100 * MICROSECOND
"""The least the kernel takes. A modelled device has little to do at a time, and must not be late."""
DPU_TURN: Nanoseconds = 500 * MICROSECOND
"""Longer than the accelerator's, so that it gives way; short enough for the NIC's and its own clients' sake."""
_SYSCALL = {"x86_64": 314, "aarch64": 274}
_SCHED_OTHER = 0


class _Attributes(ctypes.Structure):
    _fields_ = (
        ("size", ctypes.c_uint32), ("policy", ctypes.c_uint32), ("flags", ctypes.c_uint64), ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32), ("runtime", ctypes.c_uint64), ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )  # fmt: skip


def settle() -> None:
    """Once, at the barrier: what was loaded so far is no longer looked at by the collector, and sleeps are exact.

    A vocabulary and a text model are some 400,000 objects; walking them takes 50 ms in the middle of a run.
    Raises OSError if the kernel refuses the timer slack.
    """
    gc.collect()
    gc.freeze()
    set_timer_slack()


def ask_for_turns(length: Nanoseconds) -> bool:
    """Asks for slices of `length` for this process's main thread. False where the machine has no such call."""
    number = _SYSCALL.get(platform.machine())
    if number is None:
        return False
    wanted = _Attributes(policy=_SCHED_OTHER, nice=os.getpriority(os.PRIO_PROCESS, 0), runtime=length)
    wanted.size = ctypes.sizeof(wanted)
    return int(ctypes.CDLL(None).syscall(number, 0, ctypes.byref(wanted), 0)) == 0
