"""What the rows say at a scrape. A handful of grouped queries, however many runs there are."""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db.models import Count, Q, Sum
from django.utils import timezone

from webui.benches import situation
from webui.benches.models import Bench
from webui.hooks.models import Delivery
from webui.metering.counting import FLUSH_S
from webui.metering.models import Tally, Watch
from webui.runs.models import Run
from webui.runs.states import State

ALIVE = timedelta(seconds=6 * FLUSH_S)
"""A web process that has written nothing for so long serves nobody."""


def runs_by_standing() -> list[tuple[str, str, str, int]]:
    """(state, outcome, backend, how many)."""
    rows = Run.objects.order_by().values_list("state", "outcome", "backend").annotate(many=Count("pk"))
    return [(str(state), str(outcome), str(backend), int(many)) for state, outcome, backend, many in rows]


def oldest_queued() -> datetime | None:
    """Since when the run that waits longest has waited."""
    return Run.objects.filter(state=State.QUEUED).order_by("created_at").values_list("created_at", flat=True).first()


def benches() -> list[tuple[str, str, bool, datetime | None]]:
    """(name, health, open, last heartbeat)."""
    return list(Bench.objects.values_list("name", "health", "is_open", "seen_at"))


def leases_open() -> int:
    """Benches that somebody holds."""
    return situation.leases_open(now=timezone.now()).count()


def viewers_now() -> int:
    """Live pages open, over all web processes that are alive."""
    alive = Watch.objects.filter(seen_at__gt=timezone.now() - ALIVE)
    return int(alive.aggregate(all=Sum("viewers"))["all"] or 0)


def deliveries_by_standing() -> dict[str, int]:
    """Messages of webhooks: waiting, delivered, given up."""
    return Delivery.objects.aggregate(
        waiting=Count("pk", filter=Q(due_at__isnull=False)),
        delivered=Count("pk", filter=Q(due_at=None, delivered_at__isnull=False)),
        given_up=Count("pk", filter=Q(due_at=None, delivered_at=None)),
    )


def tallies(name: str) -> list[tuple[tuple[str, ...], float]]:
    """(labels, value) of a series that processes count."""
    rows = Tally.objects.filter(name=name).values_list("labels", "value")
    return [(tuple(str(label) for label in labels), float(value)) for labels, value in rows]
