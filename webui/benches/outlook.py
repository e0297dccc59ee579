"""What a run waits for, as one person may be told: place in the queue, reason, expected start.

A run that the person may not read is never named; that somebody's run is in the way is all that is said of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from webui.accounts.callers import Caller
from webui.benches.placement import Placement, Wait, Waiting, Why, forecast, place
from webui.benches.situation import situation_now
from webui.runs.access import runs_readable
from webui.runs.models import Run
from webui.runs.states import ACTIVE, State

Name = Callable[[str], str]
"""From a run's id to what it is called to this person."""


@dataclass(frozen=True)
class Outlook:
    """How soon a queued run starts; for one that is not queued all is empty."""

    position: int | None
    """1 is next."""
    reason: str
    """Why it does not run now, in one sentence without a full stop."""
    starts_at: datetime | None
    """About when; None where nobody can say."""


NOTHING = Outlook(None, "", None)


@dataclass(frozen=True)
class Queue:
    """The whole queue, for one person."""

    waiting: dict[str, Waiting]
    placement: Placement
    places: dict[str, int]
    """1 is next."""
    expected: dict[str, float | None]
    readable: frozenset[str]
    """Ids among waiting and active runs that the person may read."""

    def called(self, run: str) -> str:
        """A run's name, if it may be known."""
        return f"run {run.rsplit('-', 1)[-1]}" if run in self.readable else "a run of somebody else's"

    def outlook(self, run: str) -> Outlook:
        """Of a queued run."""
        position = self.places.get(run)
        if position is None:
            return NOTHING
        at = self.expected.get(run)
        wait = self.placement.waits.get(run)
        reason = "it starts in a moment" if wait is None else wait_words(wait, self.called, position)
        return Outlook(position, reason, None if at is None else datetime.fromtimestamp(at, UTC))


def queue_for(caller: Caller) -> Queue:
    """The queue as it is now."""
    situation = situation_now()
    placement = place(situation)
    readable = runs_readable(caller).filter(state__in=[State.QUEUED, *ACTIVE]).values_list("pk", flat=True)
    return Queue(
        waiting={one.run: one for one in situation.waiting},
        placement=placement,
        places={run: number for number, run in enumerate(placement.order, 1)},
        expected=forecast(situation),
        readable=frozenset(readable),
    )


def run_outlook(run: Run, caller: Caller) -> Outlook:
    """Place, reason and expected start of a run that the caller may read."""
    if run.state != State.QUEUED or run.cancel_requested_at is not None:
        return NOTHING
    return queue_for(caller).outlook(run.pk)


def wait_words(wait: Wait, called: Name, position: int) -> str:
    """The reason as a sentence. `called` decides what a run in the way is called."""
    words = _WORDS[wait.why].format(run=called(wait.run), bench=wait.bench, text=wait.text, until=clock(wait.until))
    ahead = position - 1
    if wait.why in _BUSY and ahead:
        return f"{words}; {ahead} run{'s' if ahead > 1 else ''} ahead in the queue"
    return words


def clock(moment: float | None) -> str:
    """A moment as people read it."""
    return "" if moment is None else f"{datetime.fromtimestamp(moment, UTC):%H:%M} UTC"


_BUSY = frozenset({Why.EMULATING, Why.ELSEWHERE, Why.SIMULATING, Why.FULL, Why.RESERVED})
_WORDS: dict[Why, str] = {
    Why.NO_BENCH: "no bench has reported yet",
    Why.UNFIT: "no bench can take it: {text}",
    Why.SHUT: "bench {bench} is {text}",
    Why.LEASED: "bench {bench} is leased to somebody else until {until}",
    Why.QUOTA_ACTIVE: "its owner has as many runs under way as they may have ({text})",
    Why.QUOTA_MINUTES: "its owner's bench minutes of the last 24 hours are used up",
    Why.EMULATING: "{run} has bench {bench}",
    Why.ELSEWHERE: "a command or another console emulates on the machine of bench {bench}",
    Why.SIMULATING: "{run} is still simulating on bench {bench}, and an emulation needs it to itself",
    Why.FULL: "bench {bench} has as many simulations as it takes ({text})",
    Why.RESERVED: "an emulation that came first waits until bench {bench} has no simulation left",
}
