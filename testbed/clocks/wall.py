"""The arithmetic of the wall clock: true time from the monotonic clock, beats, and how late a node woke.

Pure, as all of `testbed.clocks`: the monotonic reading is an argument. The loops that wait, and read the clock, are
in `emulators.node`. True time is `(monotonic - epoch) / dilation` (architecture §1, §6); a run that cannot keep up is
told from one that can by the lateness that is kept here (house style 23).
"""

from __future__ import annotations

import msgspec

from testbed.events.fidelity_events import ClockMeasured, VerbsMeasured
from testbed.machine import CompareSwap, FetchAdd, Read, Send, Verb, Write
from testbed.units import MILLISECOND, Nanoseconds


class Epoch(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The barrier's file `control/start.json`: one epoch and one dilation for every node of the run."""

    epoch_monotonic_ns: int
    """CLOCK_MONOTONIC at true time 0; the same clock for all processes of one host."""
    dilation: float
    """Wall nanoseconds for each true one; 10 makes everything ten times slower than the modelled hardware."""

    def __post_init__(self) -> None:
        if not self.dilation > 0 or self.dilation == float("inf"):
            raise ValueError(f"dilation {self.dilation} is not a positive number")


class WallTime:
    """Converts between the monotonic clock and true time, exactly: integers in, integers out, no drift.

    The dilation is taken as the fraction that the float is, so both directions round once and agree:
    `true(monotonic(t)) >= t`, and one nanosecond earlier it is less.
    """

    __slots__ = ("_denominator", "_numerator", "dilation", "epoch")

    def __init__(self, epoch: Epoch) -> None:
        self.epoch = epoch.epoch_monotonic_ns
        self.dilation = epoch.dilation
        self._numerator, self._denominator = float(epoch.dilation).as_integer_ratio()

    def true(self, monotonic: int) -> Nanoseconds:
        """True time at a monotonic reading, rounded down; negative before the epoch."""
        return (monotonic - self.epoch) * self._denominator // self._numerator

    def monotonic(self, true: Nanoseconds) -> int:
        """The first monotonic reading at which the true time is at least `true`."""
        return self.epoch - (-true * self._numerator // self._denominator)


class Beat:
    """Something that happens every `period` (of whatever clock the caller counts in), skipping what was missed."""

    __slots__ = ("next", "period")

    def __init__(self, period: int, start: int) -> None:
        if period <= 0:
            raise ValueError(f"period {period} is not positive")
        self.period = period
        self.next = start + period

    def due(self, now: int) -> bool:
        """True once for each period that has begun; several missed ones count as one."""
        if now < self.next:
            return False
        self.next += ((now - self.next) // self.period + 1) * self.period
        return True


class Lateness:
    """How late wakes were, in wall nanoseconds, since the last time somebody asked.

    Only wakes for a machine's deadline count; being woken by a completion has no moment to be late for.
    """

    __slots__ = ("_threshold", "_values", "_worst_late")

    def __init__(self, threshold: Nanoseconds = 2 * MILLISECOND) -> None:
        self._threshold = threshold
        self._values: list[int] = []
        self._worst_late = 0

    def add(self, lateness: int) -> None:
        """One wake, `lateness` wall nanoseconds after its deadline; an early one counts as 0."""
        lateness = max(0, lateness)
        self._values.append(lateness)
        if lateness > self._threshold and lateness > self._worst_late:
            self._worst_late = lateness

    def late(self) -> Nanoseconds | None:
        """The worst wake over the threshold since the last call, or None."""
        worst, self._worst_late = self._worst_late, 0
        return worst or None

    def measured(self) -> ClockMeasured:
        """The distribution since the last call (nearest rank); all 0 when nothing woke."""
        values, self._values = sorted(self._values), []
        if not values:
            return ClockMeasured(wakes=0, p50=0, p99=0, worst=0)
        return ClockMeasured(
            wakes=len(values), p50=nearest_rank(values, 50), p99=nearest_rank(values, 99), worst=values[-1]
        )


class RoundTrips:
    """How long verbs took from posting to completion, in wall nanoseconds, since the last time somebody asked.

    Only verbs posted while none was in flight: what waits behind another verb measures that one.
    """

    __slots__ = ("_alone", "_in_flight", "_largest", "_posted", "_values")

    def __init__(self) -> None:
        self._in_flight = 0
        self._alone: tuple[str, int] | None = None
        self._posted = 0
        self._values: dict[tuple[str, int], list[int]] = {}
        self._largest: dict[tuple[str, int], int] = {}

    def post(self, verb: Verb, reading: int) -> None:
        """`verb` is posted at the monotonic `reading`."""
        self._in_flight += 1
        if self._in_flight == 1:
            kind, size = _kind(verb)
            self._alone, self._posted = (kind, size.bit_length()), reading
            self._largest[self._alone] = max(size, self._largest.get(self._alone, 0))

    def complete(self, reading: int, *, good: bool) -> None:
        """The oldest verb in flight is seen to be completed."""
        self._in_flight -= 1
        if self._alone is not None and good:
            self._values.setdefault(self._alone, []).append(reading - self._posted)
        self._alone = None

    def measured(self) -> list[VerbsMeasured]:
        """One event for each kind and power of two of sizes."""
        values, self._values = self._values, {}
        events = []
        for group, times in sorted(values.items()):
            times.sort()
            p50, p99 = nearest_rank(times, 50), nearest_rank(times, 99)
            events.append(VerbsMeasured(group[0], self._largest[group], len(times), p50, p99))
        return events


def _kind(verb: Verb) -> tuple[str, int]:
    match verb:
        case Read(length=length):
            return "read", length
        case Write(data=data):
            return "write", len(data)
        case Send(data=data):
            return "send", len(data)
        case CompareSwap():
            return "swap", 8
        case FetchAdd():
            return "add", 8
        case _:
            raise TypeError(f"{type(verb).__name__} is no verb that a wire carries")


def nearest_rank(ordered: list[int], percent: int) -> int:
    """The nearest-rank percentile of ascending, non-empty `ordered`: the least value with `percent` % at or below."""
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]
