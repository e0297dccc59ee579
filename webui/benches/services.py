"""What changes benches: their workers' reports, and what admins do to them. Leases have a module of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.utils import timezone

from webui.accounts.callers import Caller
from webui.accounts.roles import Right
from webui.audit.deeds import Deed
from webui.audit.services import note
from webui.benches.leases import leases_end_of
from webui.benches.models import Bench, Health
from webui.benches.needs import Ability, read_tags
from webui.benches.refusals import BadRequest, NotYours, Taken
from webui.benches.situation import AWAY_AFTER
from webui.runs.models import Run
from webui.runs.services import run_send_next
from webui.runs.states import ACTIVE

FORGET_AFTER = timedelta(hours=1)
"""Silence after which an admin may remove a bench."""


def bench_report(*, name: str, reason: str, facts: Mapping[str, Any], tags: Iterable[str], simulates: bool) -> Bench:
    """A worker's heartbeat: its bench is there, and `reason` (empty: it is well) is how it stands.

    Tags are those that the worker was started with; what an admin added stays.
    """
    now = timezone.now()
    health = Health.ILL if reason else Health.WELL
    with transaction.atomic():
        bench, _ = Bench.objects.select_for_update().get_or_create(pk=name)
        told = [tag for tag in tags if tag]
        added = [tag for tag in bench.tags if tag not in bench.facts.get("tags", [])]
        was, was_taken = bench.health, bench.emulates_elsewhere
        bench.tags = list(dict.fromkeys([*told, *added]))
        bench.facts = {**bench.facts, **facts, "tags": told}
        bench.abilities = {**bench.abilities, Ability.SIMULATE.value: simulates or "its worker takes no simulations"}
        bench.health, bench.reason, bench.seen_at = health, reason[:300], now
        if was != health:
            bench.since = now
            note(Deed.BENCH_HEALTH, name, health=health, before=was, reason=reason)
        bench.save(update_fields=["tags", "facts", "abilities", "health", "reason", "seen_at", "since"])
    if health == Health.WELL and (was != health or (was_taken and not bench.emulates_elsewhere)):
        run_send_next()
    return bench


def bench_probed(*, name: str, abilities: Mapping[str, bool | str], findings: list[dict[str, str]]) -> None:
    """What a bench's probes have found that it can do."""
    with transaction.atomic():
        bench = Bench.objects.select_for_update().filter(pk=name).first()
        if bench is None:
            return
        simulates = {key: value for key, value in bench.abilities.items() if key == Ability.SIMULATE}
        bench.abilities, bench.findings = {**abilities, **simulates}, findings
        bench.save(update_fields=["abilities", "findings"])
    run_send_next()


def bench_leaves(*, name: str) -> None:
    """Its worker ends in order: the bench is away at once, not after the silence."""
    now = timezone.now()
    Bench.objects.filter(pk=name).exclude(health=Health.AWAY).update(
        health=Health.AWAY, reason="its worker was stopped", since=now
    )


def benches_mark_away(*, now: datetime | None = None) -> list[str]:
    """Writes down which benches have fallen silent, once each; readers know it without."""
    now = now or timezone.now()
    silent = Bench.objects.exclude(health=Health.AWAY).filter(seen_at__lt=now - AWAY_AFTER)
    found = []
    for name in silent.values_list("pk", flat=True):
        with transaction.atomic():
            changed = (
                Bench.objects.filter(pk=name, seen_at__lt=now - AWAY_AFTER)
                .exclude(health=Health.AWAY)
                .update(health=Health.AWAY, reason="its worker is silent", since=now)
            )
            if changed:
                note(Deed.BENCH_HEALTH, name, health=Health.AWAY.value, reason="its worker is silent")
                found.append(name)
    return found


def bench_close(*, bench: Bench, by: Caller) -> None:
    """No new run goes there; those under way end, and its lease ends. Raises NotYours."""
    _only_admins(by)
    with transaction.atomic():
        if Bench.objects.filter(pk=bench.pk, is_open=True).update(is_open=False):
            note(Deed.BENCH_CLOSE, bench.pk, by=by.user)
            leases_end_of(bench=bench, reason="the bench was closed")
    run_send_next()


def bench_open(*, bench: Bench, by: Caller) -> None:
    """Takes runs again. Raises NotYours."""
    _only_admins(by)
    with transaction.atomic():
        if Bench.objects.filter(pk=bench.pk, is_open=False).update(is_open=True):
            note(Deed.BENCH_OPEN, bench.pk, by=by.user)
    run_send_next()


def bench_tag(*, bench: Bench, tags: Iterable[str], by: Caller) -> Bench:
    """Sets the tags; those that its worker was started with come back with its next report. Raises a Refusal."""
    _only_admins(by)
    try:
        told = read_tags(tags)
    except ValueError as fault:
        raise BadRequest(str(fault), path="tags") from None
    with transaction.atomic():
        row = Bench.objects.select_for_update().get(pk=bench.pk)
        kept = list(dict.fromkeys([*row.facts.get("tags", []), *told]))
        if kept != row.tags:
            Bench.objects.filter(pk=bench.pk).update(tags=kept)
            note(Deed.BENCH_CHANGE, bench.pk, by=by.user, tags=kept, before=row.tags)
    run_send_next()
    return Bench.objects.get(pk=bench.pk)


def bench_forget(*, bench: Bench, by: Caller) -> None:
    """Removes a bench that is gone for good, so that nothing waits for it. Its runs stay. Raises a Refusal."""
    _only_admins(by)
    with transaction.atomic():
        row = Bench.objects.select_for_update().get(pk=bench.pk)
        if row.seen_at is not None and timezone.now() - row.seen_at < FORGET_AFTER:
            raise Taken("Its worker was heard of within the last hour; stop it first. A bench that reports comes back.")
        if Run.objects.filter(bench=row, state__in=ACTIVE).exists():
            raise Taken("A run is under way there.")
        row.delete()
        note(Deed.BENCH_CHANGE, bench.pk, by=by.user, forgotten=True)


def _only_admins(by: Caller) -> None:
    if not by.may(Right.ADMINISTER):
        raise NotYours("Only an admin may do this to a bench.")
