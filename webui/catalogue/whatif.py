"""When a run that nobody has started would start: the queue as it is, played forward with one run more."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime

from webui.accounts.callers import Caller
from webui.benches.outlook import Outlook, queue_for
from webui.benches.placement import Waiting, forecast, place
from webui.benches.situation import needs_of, situation_now

NEW = "new"
"""Stands for the run's id; no run has it."""


def outlook_of_new(*, caller: Caller, backend: str, needs: Iterable[str], expected_s: float | None) -> Outlook:
    """Place, reason and start, as `benches.outlook` says them of runs that wait already."""
    situation = situation_now()
    new = Waiting(
        run=NEW,
        owner=caller.user.pk,
        emulation=backend == "mininet",
        needs=needs_of(backend=backend, needs=needs),
        since=situation.now,
        expected_s=expected_s,
    )
    situation = replace(situation, waiting=[*situation.waiting, new])
    placement = place(situation)
    places = {run: number for number, run in enumerate(placement.order, 1)}
    queue = replace(queue_for(caller), placement=placement, places=places, expected=forecast(situation))
    return queue.outlook(NEW)


def start_words(outlook: Outlook, now: datetime) -> str:
    """The outlook as a sentence."""
    if outlook.position is None:
        return ""
    if outlook.starts_at is not None and (outlook.starts_at - now).total_seconds() < 5:
        return "It would start at once."
    about = f", about {outlook.starts_at.astimezone(UTC):%H:%M} UTC" if outlook.starts_at else ""
    return f"It would wait at place {outlook.position} of the queue{about}: {outlook.reason}."
