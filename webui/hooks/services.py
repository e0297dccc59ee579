"""What changes webhooks and their deliveries. A delivery is a row: claimed by compare-and-set, sent, written down.

At least once: a sender that dies in between leaves a delivery due again. `Looplane-Delivery` is the same on every
attempt, so that a receiver can drop the second.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from webui.accounts.models import User
from webui.audit.deeds import Deed
from webui.audit.services import note
from webui.hooks.destinations import BadDestination, checked_address, destination_of
from webui.hooks.events import OF_RUNS, HookEvent, body_of
from webui.hooks.models import Delivery, Webhook
from webui.hooks.selectors import Untold, run_untold
from webui.hooks.sending import Answer, send
from webui.hooks.signature import HEADER, signature_of
from webui.runs.facts import run_row
from webui.runs.verdict import verdict_of

logger = logging.getLogger(__name__)

MOST_HOOKS = 10
"""Of one person."""
WAITS = (5, 30, 120, 600, 1800, 3600, 10800)
"""Seconds from each attempt to the next; after the last it is given up, about 4.5 hours after the first."""
HELD = timedelta(seconds=60)
"""How long a claimed delivery is nobody else's: longer than any attempt."""
KEPT = timedelta(days=30)
SECRET_PREFIX = "lps_"  # the public part, so that secret scanners know what they see


class HookError(Exception):
    """A change that the rules do not allow; the sentence is for the person who asked. `field` names what is wrong."""

    def __init__(self, message: str, field: str = "") -> None:
        self.field = field
        super().__init__(message)


def hook_create(*, owner: User, url: str, events: Sequence[str]) -> tuple[Webhook, str]:
    """A webhook and its secret, which is shown this once. Raises HookError."""
    _check_url(url)
    _check_events(events)
    if Webhook.objects.filter(owner=owner).count() >= MOST_HOOKS:
        raise HookError(f"You have {MOST_HOOKS} webhooks, as many as one person may have; remove one first.")
    secret = SECRET_PREFIX + secrets.token_urlsafe(32)
    with transaction.atomic():
        hook = Webhook.objects.create(owner=owner, url=url, secret=secret, events=_in_order(events))
        note(Deed.HOOK_CREATE, str(hook.pk), host=destination_of(url).host, events=hook.events)
    return hook, secret


def hook_change(
    *, hook: Webhook, url: str | None = None, events: Sequence[str] | None = None, is_active: bool | None = None
) -> Webhook:
    """Other address, events, or on and off. The secret stays; what is not given is not looked at again, so that a hook
    whose host is gone can be switched off. Raises HookError.
    """
    changed: dict[str, Any] = {}
    if url is not None:
        _check_url(url)
        hook.url = url
        changed["host"] = destination_of(url).host
    if events is not None:
        _check_events(events)
        hook.events = _in_order(events)
        changed["events"] = hook.events
    if is_active is not None:
        hook.is_active = is_active
        changed["active"] = is_active
    if changed:
        with transaction.atomic():
            hook.save(update_fields=["url", "events", "is_active"])
            note(Deed.HOOK_CHANGE, str(hook.pk), **changed)
    return hook


def _check_url(url: str) -> None:
    try:
        checked_address(destination_of(url), settings.HOOK_HOSTS)
    except BadDestination as fault:
        raise HookError(str(fault), "url") from None


def _check_events(events: Sequence[str]) -> None:
    known = [event.value for event in OF_RUNS]
    if not events or any(event not in known for event in events):
        raise HookError(f"Choose at least one of {', '.join(known)}.", "events")


def _in_order(events: Sequence[str]) -> list[str]:
    return [event.value for event in OF_RUNS if event.value in events]


def hook_remove(*, hook: Webhook) -> None:
    """Ends it, with what is still to be delivered."""
    with transaction.atomic():
        note(Deed.HOOK_REMOVE, str(hook.pk))
        hook.delete()


def hook_ping(*, hook: Webhook) -> Delivery:
    """A test message, sent like any other; while one is on its way, that one."""
    waiting = Delivery.objects.filter(webhook=hook, event=HookEvent.PING.value).exclude(due_at=None).first()
    if waiting is not None:
        return waiting
    now = timezone.now()
    return Delivery.objects.create(
        webhook=hook, event=HookEvent.PING.value, body=body_of(HookEvent.PING, now, None), due_at=now
    )


def delivery_again(*, delivery: Delivery) -> None:
    """Sends it once more, now, with all its attempts; also one that was taken."""
    Delivery.objects.filter(pk=delivery.pk).update(
        due_at=timezone.now(), attempts=0, delivered_at=None, status=None, fault=""
    )


def run_tell() -> int:
    """Makes a delivery of every moment of a run that has none; returns how many."""
    return sum(_tell(one) for one in run_untold())


def _tell(untold: Untold) -> int:
    verdict = verdict_of(untold.run) if untold.event is HookEvent.VERDICT else None
    try:
        with transaction.atomic():
            Delivery.objects.create(
                webhook=untold.hook,
                run=untold.run,
                event=untold.event.value,
                body=body_of(untold.event, untold.at, run_row(untold.run), verdict),
                due_at=timezone.now(),
            )
    except IntegrityError:  # another worker was first, or the hook has just been removed
        return 0
    return 1


def delivery_send(*, delivery: Delivery) -> Answer | None:
    """One attempt; None if another sender has it."""
    claimed = Delivery.objects.filter(pk=delivery.pk, due_at=delivery.due_at).update(
        due_at=timezone.now() + HELD, attempts=F("attempts") + 1
    )
    if not claimed:
        return None
    delivery.refresh_from_db()
    hook, body = delivery.webhook, delivery.body.encode()
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "Looplane-Webhook/1",
        "Looplane-Event": delivery.event,
        "Looplane-Delivery": str(delivery.pk),
        HEADER: signature_of(hook.secret, body, int(time.time())),
    }
    answer = send(hook.url, body, headers, allowed=settings.HOOK_HOSTS)
    now = timezone.now()
    changes: dict[str, object] = {"status": answer.status, "fault": answer.fault[:300]}
    if answer.delivered:
        changes |= {"delivered_at": now, "due_at": None}
    elif delivery.attempts <= len(WAITS):
        changes["due_at"] = now + timedelta(seconds=WAITS[delivery.attempts - 1])
    else:
        changes["due_at"] = None
        logger.info("webhook %s: delivery %s given up", hook.pk, delivery.pk)
    Delivery.objects.filter(pk=delivery.pk, due_at=delivery.due_at).update(**changes)
    return answer


def delivery_tidy() -> None:
    """Forgets old deliveries; those that a run could still be told anew by stay."""
    Delivery.objects.filter(created_at__lt=timezone.now() - KEPT, due_at=None).delete()
