"""The watchdog on the DPU: is the scheduler alive, and what is done if it is not.

Tokens that appear are life enough. Only where requests are awaited and none appear, the control line is read: a
heartbeat that does not move for `watchdog_patience` means a scheduler that is dead or hung, and a new life is asked
for by compare-and-swap, so that of several front ends one is heard. Restarts are bounded; when they do not help, the
front end refuses requests until a heartbeat moves again. Our design: docs/models/recovery.md. This file posts nothing.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from testbed.blink.control_line import Control
from testbed.blink.parameters import BlinkParameters
from testbed.events.blink_events import WatchdogCalmed, WatchdogFired, WatchdogGaveUp
from testbed.machine import Effect, Emit
from testbed.serving.transitions import Transitions
from testbed.units import Nanoseconds


class WatchState(Enum):
    """What the watchdog thinks."""

    IDLE = "idle"
    """Nothing is awaited, so nothing is missed."""
    WATCHING = "watching"
    """The last sign of life is recent enough, or being looked for."""
    RESTARTING = "restarting"
    """A new life is asked for."""
    GIVEN_UP = "given_up"
    """Restarts have not helped."""


class WatchMove(Enum):
    """What changes its mind."""

    AWAIT = "await"
    REST = "rest"
    FIRE = "fire"
    CALM = "calm"
    GIVE_UP = "give_up"


_S, _M = WatchState, WatchMove
WATCH_TABLE: Transitions[WatchState, WatchMove] = Transitions(
    "watchdog",
    _S.IDLE,
    {
        (_S.IDLE, _M.AWAIT): _S.WATCHING,
        (_S.WATCHING, _M.REST): _S.IDLE,
        (_S.WATCHING, _M.FIRE): _S.RESTARTING,
        (_S.WATCHING, _M.GIVE_UP): _S.GIVEN_UP,
        (_S.RESTARTING, _M.FIRE): _S.RESTARTING,
        (_S.RESTARTING, _M.CALM): _S.WATCHING,
        (_S.RESTARTING, _M.GIVE_UP): _S.GIVEN_UP,
        (_S.GIVEN_UP, _M.CALM): _S.WATCHING,
    },
)

LOOKS = 4
"""Looks at the control line within one patience: the first is a reference, so three find a heart that stands still."""


class Watchdog:
    """One front end's. `watchdog_patience` 0 leaves it asleep."""

    def __init__(self, parameters: BlinkParameters, ring: str) -> None:
        """`ring` is the GPU's node whose scheduler is watched."""
        self._parameters = parameters
        self._ring = ring
        self._patience = parameters.watchdog_patience
        self.state = WATCH_TABLE.first
        self.reading = False
        """The control line is being read."""
        self._seen: Nanoseconds = 0
        """Last sign of life; while nothing was awaited, the moment at which something was again."""
        self._look_at: Nanoseconds = 0
        self._known: Control | None = None
        """The line as first read since the last sign of life."""
        self._known_at: Nanoseconds = 0
        self._fired_at: Nanoseconds = 0
        self._firings: deque[Nanoseconds] = deque()

    @property
    def due(self) -> Nanoseconds | None:
        """When the control line is to be read next."""
        return None if self.reading or self.state is WatchState.IDLE else self._look_at

    @property
    def given_up(self) -> bool:
        """Whether requests are to be refused."""
        return self.state is WatchState.GIVEN_UP

    def awaiting(self, now: Nanoseconds, *, something: bool) -> None:
        """Whether anything is awaited of the scheduler."""
        if something and self.state is WatchState.IDLE and self._patience:
            self._move(WatchMove.AWAIT)
            self._alive(now)
        elif not something and self.state is WatchState.WATCHING:
            self._move(WatchMove.REST)

    def tokens_seen(self, now: Nanoseconds) -> None:
        """Somebody has published something."""
        if self.state is WatchState.WATCHING:
            self._alive(now)

    def failed(self, now: Nanoseconds) -> None:
        """The line could not be read."""
        self.reading = False
        self.postpone(now)

    def postpone(self, now: Nanoseconds) -> None:
        """The GPU cannot be reached: it is not therefore dead, and to look is of no use for a while."""
        if self.state is WatchState.WATCHING:
            self._alive(now)
        self._look_at = now + 2 * self._parameters.poll_outage_interval

    def observe(self, now: Nanoseconds, line: Control, out: list[Effect]) -> tuple[int, int] | None:
        """The control line has been read. Returns the words of a compare-and-swap that asks for a new life, if it is
        time for one.
        """
        self.reading = False
        self._look_at = now + self._interval()
        if self.state is WatchState.IDLE:
            return None
        if self._known is None:
            self._known, self._known_at = line, now
            return None
        if line.heartbeat != self._known.heartbeat:
            self._calm(now, line, out)
            return None
        return self._fire(now, line, out) if self._patience_is_over(now) else None

    def _patience_is_over(self, now: Nanoseconds) -> bool:
        match self.state:
            case WatchState.WATCHING:
                # Two looks close together, after a time in which nobody could look, say nothing.
                looked_for = now - self._known_at
                return now - self._seen >= self._patience and looked_for >= self._patience * (LOOKS - 1) // LOOKS
            case WatchState.RESTARTING:
                return now - self._fired_at >= self._parameters.restart_patience
            case _:
                return False

    def _calm(self, now: Nanoseconds, line: Control, out: list[Effect]) -> None:
        if self.state is not WatchState.WATCHING:
            self._move(WatchMove.CALM)
            out.append(Emit(WatchdogCalmed(line.life, now - self._seen, self._ring)))
        self._alive(now)

    def _fire(self, now: Nanoseconds, line: Control, out: list[Effect]) -> tuple[int, int] | None:
        while self._firings and now - self._firings[0] > self._parameters.restart_window:
            self._firings.popleft()
        if len(self._firings) >= self._parameters.restart_limit:
            self._move(WatchMove.GIVE_UP)
            self._look_at = now + self._interval()
            out.append(Emit(WatchdogGaveUp(line.life, len(self._firings), self._ring)))
            return None
        self._move(WatchMove.FIRE)
        self._fired_at = now
        self._firings.append(now)
        self._look_at = now + self._interval()
        out.append(Emit(WatchdogFired(line.life, now - self._seen, len(self._firings), self._ring)))
        # Asked for already, by us or by another front end, and not answered: there is nothing to swap.
        return (line.asked, line.life + 1) if line.asked <= line.life else None

    def _alive(self, now: Nanoseconds) -> None:
        self._seen = now
        self._known = None
        self._look_at = now + self._interval()

    def _interval(self) -> Nanoseconds:
        if self.state is WatchState.RESTARTING:
            return self._parameters.heartbeat_interval
        return self._parameters.poll_outage_interval if self.given_up else self._patience // LOOKS

    def _move(self, move: WatchMove) -> None:
        self.state = WATCH_TABLE.after(self.state, move)
