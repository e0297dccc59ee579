"""What runs can be asked."""

from __future__ import annotations

import os
import re
from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast
from django.utils import timezone

from webui.accounts.callers import Caller
from webui.accounts.models import User
from webui.runs.access import runs_readable
from webui.runs.models import Backend, Origin, Run
from webui.runs.states import ACTIVE, Outcome, State

_ID_OR_LABEL = re.compile(r"\A[0-9a-f-]{6,40}\Z")
SIMULATIONS_AT_ONCE = max(1, (os.cpu_count() or 1) - 1)
"""A simulation takes one core; one stays for the console."""
RESEND_AFTER = timedelta(seconds=5)
"""A queued run that nobody has taken for this long is sent to the broker again."""


class LastAnswer(NamedTuple):
    """What there is to say about an experiment."""

    latest: Run
    answered: Run | None


def run_list(
    *,
    caller: Caller,
    state: str = "",
    outcome: str = "",
    fidelity: str = "",
    backend: str = "",
    experiment: str = "",
    tag: str = "",
    bench: str = "",
    owner: User | str | None = None,
    since: datetime | None = None,
    text: str = "",
) -> QuerySet[Run]:
    """The runs that the caller may read, newest first; each filter that is given narrows.

    `state` is one of states.State, or `active` for those under way; an `owner` may be named. `text` is searched in
    id, question, experiment and tags. All of it is answered from one index (models.Run.Meta).
    """
    runs = runs_readable(caller).order_by("-created_at", "-id")
    if state == "active":
        runs = runs.filter(state__in=ACTIVE)
    elif state:
        runs = runs.filter(state=state)
    equal = {"outcome": outcome, "fidelity": fidelity, "backend": backend, "experiment": experiment, "bench_id": bench}
    runs = runs.filter(**{field: value for field, value in equal.items() if value})
    if tag:
        # Tags are words, so their JSON holds each between quotes, on every database alike.
        runs = runs.annotate(tag_text=Cast("tags", TextField())).filter(tag_text__contains=f'"{tag}"')
    if isinstance(owner, str):
        runs = runs.filter(owner__in=User.objects.filter(username=owner).values("pk"))
    elif owner is not None:
        runs = runs.filter(owner=owner)
    if since is not None:
        runs = runs.filter(created_at__gte=since)
    return runs.filter(search__icontains=text) if text else runs


def run_get(*, run_id: str, caller: Caller) -> Run | None:
    """The run, by its whole id or by the six digits that people call it by; None too if it is not theirs to read."""
    if not _ID_OR_LABEL.match(run_id):
        return None
    runs = runs_readable(caller)
    run = runs.filter(pk=run_id).first()
    if run is None and len(run_id) == 6:
        run = runs.filter(id__endswith=f"-{run_id}").first()
    return run


def run_for_key(*, owner: User, key: str) -> Run | None:
    """The run that an earlier request with this Idempotency-Key has made."""
    return Run.objects.select_related("owner").filter(owner=owner, idempotency_key=key).first()


def run_waits_for(*, run: Run) -> str:
    """Why a queued run cannot start now, in a few words; empty when it can.

    First come, first served. An emulation has the machine to itself, since neighbours would spoil its timing;
    simulations run beside each other, never beside an emulation.
    """
    ahead = Run.objects.filter(state=State.QUEUED, cancel_requested_at=None).filter(
        Q(created_at__lt=run.created_at) | Q(created_at=run.created_at, id__lt=run.pk)
    )
    waiting = ahead.count()
    if waiting:
        return f"{waiting} run{'s' if waiting > 1 else ''} ahead in the queue"
    active = Run.objects.filter(state__in=ACTIVE).exclude(pk=run.pk).order_by("created_at")
    emulation = active.filter(backend=Backend.MININET).first()
    if emulation is not None:
        return f"run {emulation.label} has the bench"
    others = list(active[:SIMULATIONS_AT_ONCE])
    if run.backend == Backend.MININET and others:
        return f"run {others[0].label} is still simulating, and an emulation needs the machine to itself"
    if len(others) >= SIMULATIONS_AT_ONCE:
        return f"{len(others)} simulation{'s' if len(others) > 1 else ''} running, as many as this machine takes"
    return ""


def run_queue_head() -> list[str]:
    """Ids of the queued runs that come next, oldest first."""
    queued = Run.objects.filter(state=State.QUEUED, cancel_requested_at=None).order_by("created_at", "id")
    return list(queued.values_list("pk", flat=True)[: SIMULATIONS_AT_ONCE + 1])


def run_overdue() -> list[str]:
    """Ids that the sweeper sends again: queued for long, or with a lease that has run out."""
    now = timezone.now()
    orphaned = Run.objects.filter(origin=Origin.CONSOLE, state__in=ACTIVE).filter(
        Q(lease_until__lt=now) | Q(lease_until=None)
    )
    head = set(run_queue_head())
    stale = Run.objects.filter(pk__in=head, created_at__lt=now - RESEND_AFTER)
    return [*orphaned.values_list("pk", flat=True), *stale.order_by("created_at").values_list("pk", flat=True)]


def run_last_answers(*, experiments: list[str], caller: Caller) -> dict[str, LastAnswer]:
    """For each experiment that was ever run: its newest run, and the newest one that was judged, with its figures."""
    answers = {}
    for name in experiments:
        runs = runs_readable(caller).filter(experiment=name).order_by("-created_at")
        latest = runs.first()
        if latest is not None:
            judged = runs.filter(outcome__in=[Outcome.PASSED, Outcome.FAILED]).exclude(summary={})
            answers[name] = LastAnswer(latest, judged.first())
    return answers
