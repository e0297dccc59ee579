"""Work of a server on the host's CPU: what a machine asks of its processor, and the processor as it is modelled.

A host-driven server does something on the host between any two steps of the GPU (papers/blink summary, background).
A machine asks for each piece by `Compute(HostWork(...))` and goes on when `HostWorked` comes. Under the wall clock the
processor *does* work of that amount on the host's CPU set (`emulators.host_processor`), so that neighbours act on it by
themselves; under the simulated clock it is the one below, and what neighbours do is a measured contention
(`fixtures/profiles/host-contention.toml`). The amount is what the piece takes on an idle core.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Iterable
from random import Random
from typing import Any, NamedTuple

import msgspec

from testbed.events.host_events import HostOperation
from testbed.machine import Deliver, Effect, Effects, Emit, MachineError, Message
from testbed.units import Nanoseconds, from_milliseconds


class HostWork(NamedTuple):
    """One piece of work, done by one thread."""

    ticket: int
    owner: str
    """Name of the machine that asks; the pieces of one process are done one after another."""
    operation: str
    """What it stands for: tokenise, detokenise, admit, prepare, update, launch, copy."""
    amount: Nanoseconds
    """True time that it takes on an idle core, at least 0."""


class HostWorked(Message, frozen=True):
    """The piece is done."""

    ticket: int
    operation: str
    elapsed: Nanoseconds
    """True time from its beginning to its end, with every wait for the core in it."""


class Contention(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What neighbours on the same cores do to a thread, as it was measured. Neutral by default."""

    threads: int = 0
    """Threads of neighbours on the host's CPU set."""
    slowdown: float = 1.0
    """Time of a piece while it runs, without waits, ÷ its time on an idle core: caches and TLBs, at least 1."""
    stalls_per_ms: float = 0.0
    """How often the thread loses its core, for each millisecond that it runs."""
    stall_ms: tuple[float, ...] = (0.0,)
    """Quantiles, equally spaced from the smallest to the largest, of how long it is then without a core."""
    wake_ms: tuple[float, ...] = (0.0,)
    """Quantiles of the wait for a core when a piece begins after the thread has slept."""


class ModelledProcessor:
    """`Accelerator` that takes `HostWork`: each process's pieces in order, beside those of the others."""

    def __init__(
        self,
        contention: Contention | None = None,
        rng: Random | None = None,
        processes: Iterable[Iterable[str]] = (),
    ) -> None:
        """`processes` lists owners that share one process; every other owner is one by itself.

        Raises ValueError for a contention without a source of chance.
        """
        self._process = {owner: owners[0] for owners in map(tuple, processes) for owner in owners}
        self._contention = contention or Contention()
        if contention is not None and rng is None:
            raise ValueError("contention is drawn by chance: a generator is needed")
        self._rng = rng or Random(0)
        self._free: dict[str, Nanoseconds] = {}
        self._ends: list[tuple[Nanoseconds, int, HostWork, Nanoseconds]] = []
        self._number = 0

    def submit(self, now: Nanoseconds, work: Any) -> Effects:
        """Takes a piece. Raises MachineError for anything else."""
        if not isinstance(work, HostWork):
            raise MachineError(f"a processor cannot run {type(work).__name__}")
        process = self._process.get(work.owner, work.owner)
        free = self._free.get(process, 0)
        begins = max(now, free)
        elapsed = self._elapsed(work.amount, slept=free < now)
        self._free[process] = begins + elapsed
        self._number += 1
        heapq.heappush(self._ends, (begins + elapsed, self._number, work, elapsed))
        return ()

    def wake(self, now: Nanoseconds) -> Effects:
        """Ends what is due."""
        out: list[Effect] = []
        while self._ends and self._ends[0][0] <= now:
            _, _, work, elapsed = heapq.heappop(self._ends)
            out.append(Emit(HostOperation(work.owner, work.operation, work.amount, elapsed)))
            out.append(Deliver(work.owner, HostWorked(work.ticket, work.operation, elapsed)))
        return out

    def deadline(self) -> Nanoseconds | None:
        """When the next piece ends."""
        return self._ends[0][0] if self._ends else None

    def _elapsed(self, amount: Nanoseconds, *, slept: bool) -> Nanoseconds:
        contention, rng = self._contention, self._rng
        if contention.threads == 0:
            return amount
        elapsed = round(amount * contention.slowdown)
        if slept:
            elapsed += from_milliseconds(quantile(contention.wake_ms, rng.random()))
        if contention.stalls_per_ms > 0:
            left = amount * contention.slowdown / 1e6
            while (left := left - rng.expovariate(contention.stalls_per_ms)) > 0:
                elapsed += from_milliseconds(quantile(contention.stall_ms, rng.random()))
        return elapsed


def quantile(values: tuple[float, ...], share: float) -> float:
    """The value at `share` (0 to 1) of equally spaced quantiles, interpolated."""
    if len(values) == 1:
        return values[0]
    place = share * (len(values) - 1)
    index = min(int(place), len(values) - 2)
    return values[index] + (values[index + 1] - values[index]) * (place - index)


def contention_of(rows: tuple[Contention, ...], threads: int) -> Contention | None:
    """The measured row for `threads` threads of neighbours: the largest that is not above it; None for none.

    `rows` ascend by `threads`. A number below the first row's takes the first.
    """
    if threads == 0 or not rows:
        return None
    index = bisect_right([row.threads for row in rows], threads) - 1
    return rows[max(index, 0)]
