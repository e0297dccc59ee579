"""How busy an engine's compute is: one `engine.measured` for about each second of the run in which it computes.

Knows time as it is told, and no batch.
"""

from __future__ import annotations

from testbed.events.kv_events import EngineMeasured
from testbed.machine import Emit
from testbed.units import SECOND, Nanoseconds


class EngineMeter:
    """Of one engine."""

    def __init__(self, engine: int) -> None:
        self._engine = engine
        self._since: Nanoseconds = 0
        self._busy: Nanoseconds = 0

    def computed(self, now: Nanoseconds, busy: Nanoseconds, sequences: int, tokens: int) -> tuple[Emit, ...]:
        """`busy` more nanoseconds of compute have ended; what is to be logged, if it is time."""
        self._busy += busy
        interval = now - self._since
        if interval < SECOND:
            return ()
        measured = EngineMeasured(self._engine, interval, min(self._busy, interval), sequences, tokens)
        self._since, self._busy = now, 0
        return (Emit(measured),)
