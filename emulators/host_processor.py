"""The processor of a host-driven server's process: it really does the work that machines ask for, on its own core.

`HostWork` (testbed.serving.host_work) says how long a piece takes on an idle core; here the process does that much
churn (`emulators.host_churn`), so that neighbours on the core, in the caches and on the memory act on it by themselves.
Nothing is multiplied, nothing sleeps. One piece at a time, in order, each in a turn of the node's loop of its own, so
messages that come meanwhile are seen between two pieces, as by a process with one thread.

How much churn an amount is was measured before the barrier (`calibrate`). An amount is what the piece costs in all: the
process's own code (machines, messages, HTTP, log) is real work too, so the CPU time that it has taken since the piece
before is paid out of the amount, and churn is done for the rest. It is paid at the price of an idle core: what churn
is slowed by right now has slowed that code too, and must not be taken off the amount.

Real work is not stretched by dilation: at a dilation of 10 a piece of 1 ms takes 0.1 ms of true time.
"""

from __future__ import annotations

import os
import time
from collections import deque
from typing import Any, NamedTuple

from emulators.host_churn import Churn
from emulators.node import NodeRun
from testbed.events.host_events import HostOperation, ProcessorCalibrated
from testbed.machine import NOTHING, Effects, MachineError
from testbed.serving.host_work import HostWork, HostWorked
from testbed.units import MILLISECOND, Nanoseconds

MOST_OWED: Nanoseconds = 2 * MILLISECOND
"""Of the process's own code no more than this is paid out of later pieces: what it does while it has no work to do
(heartbeats, refusals) is not a piece's."""
BATCH_ROUNDS = 400
"""About a millisecond: shorter than the kernel's slices, so that most batches run undisturbed."""
BATCHES = 100
PAUSE_S = 0.002
"""Between two batches, as a server waits for its GPU between two steps: a core that has slept is slower at first."""
_RECENT = 20 * MILLISECOND
"""Churn over which the present slowdown is taken."""


class Calibration(NamedTuple):
    """How fast churn is on this core when nobody disturbs it."""

    rounds_per_ms: float
    """Of CPU time, so that waits are not in it; the lower quartile of the batches, which others may have disturbed."""
    spread: float
    """Slowest ÷ fastest batch."""


def calibrate(churn: Churn, batches: int = BATCHES, pause_s: float = PAUSE_S) -> Calibration:
    """Times churn on the calling thread's core; a third of a second."""
    churn.rounds(BATCH_ROUNDS * 20)
    times = []
    for _ in range(batches):
        time.sleep(pause_s)
        begin = time.thread_time_ns()
        churn.rounds(BATCH_ROUNDS)
        times.append(time.thread_time_ns() - begin)
    times.sort()
    return Calibration(BATCH_ROUNDS * MILLISECOND / times[len(times) // 4], times[-1] / times[0])


class RealProcessor:
    """`Accelerator` of one process of a host. Its work is done by the node's loop, not in `submit`."""

    def __init__(self, run: NodeRun, process: str, churn: Churn) -> None:
        """`process` is what the event of the calibration calls it."""
        self._run = run
        self._process = process
        self._churn = churn
        self._rounds_per_ns = 0.0
        self._queue: deque[HostWork] = deque()
        self._ready = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._owed = 0.0
        self._slowdown = 1.0
        self._left_at = time.thread_time_ns()
        run.watch(self._ready, self._attend)

    def calibrate(self, found: Calibration | None = None) -> None:
        """Before the first piece: times the churn on this thread's core, unless that has been `found` already."""
        rounds_per_ms, spread = found or calibrate(self._churn)
        self._rounds_per_ns = rounds_per_ms / MILLISECOND
        self._run.emit(ProcessorCalibrated(self._process, rounds_per_ms, spread, self._churn.working_set_bytes))

    def submit(self, now: Nanoseconds, work: Any) -> Effects:  # noqa: ARG002  # as every accelerator's
        """Takes a piece. Raises MachineError for anything else, or before `calibrate`."""
        if not isinstance(work, HostWork):
            raise MachineError(f"a processor cannot run {type(work).__name__}")
        if not self._rounds_per_ns:
            raise MachineError(f"the processor of {self._run.log_name} has not been calibrated")
        if not self._queue:
            os.eventfd_write(self._ready, 1)
        self._queue.append(work)
        return NOTHING

    def wake(self, now: Nanoseconds) -> Effects:  # noqa: ARG002  # as every accelerator's
        """Nothing: pieces end in the loop's turns, at the moment when they end."""
        return NOTHING

    def deadline(self) -> Nanoseconds | None:
        """Never: a piece has no moment, it is done when it is done."""
        return None

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._ready)

    def _attend(self) -> None:
        if not self._queue:
            return
        work = self._queue.popleft()
        if not self._queue:
            os.eventfd_read(self._ready)
        elapsed = round(self._do(work.amount) / self._run.plan.dilation)
        self._run.emit(HostOperation(work.owner, work.operation, work.amount, elapsed))
        self._run.deliver(work.owner, HostWorked(work.ticket, work.operation, elapsed))

    def _do(self, amount: Nanoseconds) -> Nanoseconds:
        """Does a piece; wall time from its beginning, with the own code that was paid for it."""
        cpu = time.thread_time_ns()
        owed = min(MOST_OWED, self._owed + (cpu - self._left_at) / self._slowdown)
        paid = min(owed, amount)
        self._owed = owed - paid
        rest = amount - paid
        begin = time.monotonic_ns()
        self._churn.rounds(round(rest * self._rounds_per_ns))
        elapsed = time.monotonic_ns() - begin
        self._left_at = time.thread_time_ns()
        if rest > 0:
            weight = min(1.0, rest / _RECENT)
            now = max(1.0, (self._left_at - cpu) / rest)
            self._slowdown += weight * (now - self._slowdown)
        return elapsed + round(paid * self._slowdown)
