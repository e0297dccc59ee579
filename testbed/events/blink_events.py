"""Events of Blink's recovery: a scheduler that died or hung, who noticed, and what became of its requests.

Part of the schema of `testbed.events.schema`. Times are true; `life` counts the schedulers of a ring from 0, `ring` is
the GPU's node that has it, empty in logs of before it was named.
"""

from __future__ import annotations

from typing import ClassVar

from testbed.machine import Event
from testbed.units import Nanoseconds


class WatchdogFired(Event, frozen=True, tag="watchdog.fired"):
    """The front end has had no sign of life from the scheduler for too long and asks for a new one."""

    life: int
    """The one that is silent."""
    silent: Nanoseconds
    """Since its last sign of life."""
    restarts: int
    """How many new lives the front end has asked for lately, this one included."""
    ring: str = ""
    level: ClassVar[str] = "warning"


class WatchdogCalmed(Event, frozen=True, tag="watchdog.calmed"):
    """A scheduler gives signs of life again."""

    life: int
    outage: Nanoseconds
    """Since the last sign of life before."""
    ring: str = ""


class WatchdogGaveUp(Event, frozen=True, tag="watchdog.gave_up"):
    """The scheduler does not come back, or does not stay: requests are refused until it does."""

    life: int
    restarts: int
    ring: str = ""
    level: ClassVar[str] = "error"


class SchedulerRestarted(Event, frozen=True, tag="scheduler.restarted"):
    """A new scheduler has gone through the ring that the one before it left, and goes on with what it found."""

    life: int
    running: int
    """Requests that go on with the KV they had."""
    waiting: int
    """Requests whose prefill is done again, with the tokens they had."""
    ended: int
    """Requests whose end was published, or asked for, and had to be carried out."""
    interrupted: int
    """Requests that could not go on."""
    level: ClassVar[str] = "warning"
