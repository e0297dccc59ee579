"""What runs can be asked."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from django.db.models import Q, QuerySet, TextField
from django.db.models.functions import Cast

from webui.accounts.callers import Caller
from webui.accounts.models import User
from webui.benches.placement import place
from webui.benches.situation import situation_now
from webui.runs.access import runs_readable
from webui.runs.models import Origin, Run
from webui.runs.states import ACTIVE

_ID_OR_LABEL = re.compile(r"\A[0-9a-f-]{6,40}\Z")
RESEND_AFTER = timedelta(seconds=5)
"""A queued run that nobody has taken for this long is sent to the broker again."""


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


def run_orphans(*, now: datetime) -> list[tuple[str, str]]:
    """(run, bench) of runs under way whose worker is gone: nobody has renewed their lease."""
    runs = Run.objects.filter(origin=Origin.CONSOLE, state__in=ACTIVE).filter(
        Q(lease_until__lt=now) | Q(lease_until=None)
    )
    return [(pk, bench or "") for pk, bench in runs.order_by("created_at").values_list("pk", "bench_id")]


def run_unheard(*, now: datetime) -> list[tuple[str, str]]:
    """(run, bench) of runs that may start now and have waited for long: their message was lost, or never sent."""
    starts = place(situation_now(now=now)).starts
    ids = [run for run, _ in starts]
    stale = set(Run.objects.filter(pk__in=ids, created_at__lt=now - RESEND_AFTER).values_list("pk", flat=True))
    return [(run, bench) for run, bench in starts if run in stale]
