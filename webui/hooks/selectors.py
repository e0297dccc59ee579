"""What webhooks can be asked: one's own, their deliveries, and what there is to be told."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from django.db.models import Exists, F, OuterRef, Q, QuerySet, Window
from django.db.models.functions import RowNumber
from django.utils import timezone

from webui.accounts.models import User
from webui.accounts.roles import BY_ROLE, Right, Role
from webui.hooks.events import HookEvent
from webui.hooks.models import Delivery, Webhook
from webui.runs.models import Run
from webui.runs.states import Outcome

LOOK_BACK = timedelta(hours=24)
"""What happened longer ago is not told any more, if no worker was up to tell it."""
BATCH = 50
"""Messages of one look; what is left comes with the next."""


def hook_list(*, owner: User) -> QuerySet[Webhook]:
    """One's webhooks, newest first."""
    return Webhook.objects.filter(owner=owner)


def hook_get(*, owner: User, hook_id: int) -> Webhook | None:
    """One's webhook, or None for a number of somebody else's or nobody's."""
    return hook_list(owner=owner).filter(pk=hook_id).first()


def delivery_list(*, hook: Webhook) -> QuerySet[Delivery]:
    """A webhook's deliveries, newest first."""
    return hook.deliveries.all()


def delivery_get(*, hook: Webhook, delivery_id: int) -> Delivery | None:
    """One of them."""
    return hook.deliveries.filter(pk=delivery_id).first()


def delivery_due() -> list[Delivery]:
    """What is to be sent now: the longest due of each webhook, then the second of each, and so on.

    So the heap that a dead receiver leaves behind takes nobody else's place.
    """
    due = Delivery.objects.select_related("webhook").filter(
        due_at__lte=timezone.now(), webhook__is_active=True, webhook__owner__is_active=True
    )
    place = Window(RowNumber(), partition_by=F("webhook"), order_by=[F("due_at").asc(), F("id").asc()])
    return list(due.annotate(place=place).order_by("place", "due_at", "id")[:BATCH])


class Untold(NamedTuple):
    """A moment of a run that a webhook has not been told."""

    hook: Webhook
    run: Run
    event: HookEvent
    at: datetime


_MOMENT = {
    HookEvent.QUEUED: "created_at",
    HookEvent.STARTED: "started_at",
    HookEvent.FINISHED: "finished_at",
    HookEvent.VERDICT: "finished_at",
}
"""The column that says when it happened."""
_CAN_HAVE = [role.value for role in Role if Right.START in BY_ROLE[role]]


def run_untold() -> list[Untold]:
    """Moments of runs since their owner's webhook was made, that have no delivery yet; in the order of happening.

    Derived from the rows alone: whoever changes a run need not know of webhooks, and nothing is lost between the
    two if a process dies.
    """
    found: list[Untold] = []
    hooks = Webhook.objects.select_related("owner").filter(
        is_active=True, owner__is_active=True, owner__role__in=_CAN_HAVE
    )
    for hook in hooks:
        for event, column in _MOMENT.items():
            if event.value in hook.events:
                found += [Untold(hook, run, event, getattr(run, column)) for run in _untold(hook, event, column)]
    order = list(_MOMENT)
    return sorted(found, key=lambda one: (one.at, order.index(one.event), one.run.pk))


def _untold(hook: Webhook, event: HookEvent, column: str) -> list[Run]:
    since = max(hook.created_at, timezone.now() - LOOK_BACK)
    told = Delivery.objects.filter(webhook=hook, event=event.value, run=OuterRef("pk"))
    condition = Q(**{f"{column}__gte": since}, owner=hook.owner)
    if event is HookEvent.VERDICT:
        condition &= Q(outcome__in=[Outcome.PASSED, Outcome.FAILED])
    runs = Run.objects.filter(condition, ~Exists(told)).select_related("owner")
    return list(runs.defer("spec", "summary").order_by(column)[:BATCH])
