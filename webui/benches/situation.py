"""The queue as the database has it, made into what `webui.benches.placement` decides on. Reads only.

A constant number of queries, however many runs wait.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Max, Q, QuerySet
from django.utils import timezone

from webui.benches.models import Bench, Health, Lease, Turn
from webui.benches.needs import Offer, base_need
from webui.benches.placement import Active, Owner, Place, Share, Situation, Waiting
from webui.benches.quotas import limits_of
from webui.runs.models import Backend, Origin, Run
from webui.runs.states import ACTIVE, State

AWAY_AFTER = timedelta(seconds=15)
"""Without a heartbeat for so long a bench is away; its worker reports every 2 s."""
DAY = timedelta(hours=24)


def situation_now(*, now: datetime | None = None) -> Situation:
    """Everything that waits, runs and can be used."""
    now = now or timezone.now()
    places = bench_places(now=now)
    waiting = _waiting()
    return Situation(
        now=now.timestamp(),
        waiting=waiting,
        active=_active(places),
        places=places,
        shares=_shares({run.owner for run in waiting}, {run.owner for run in waiting if run.emulation}, now),
    )


def needs_of(*, backend: str, needs: Iterable[str]) -> tuple[str, ...]:
    """All that a run needs of a bench."""
    return (base_need(emulation=backend == Backend.MININET), *needs)


def offer_of(bench: Bench) -> Offer:
    """What a bench has."""
    memory = bench.facts.get("memory_mib")
    return Offer(bench.abilities, frozenset(bench.tags), memory if isinstance(memory, int) else None)


def bench_standing(bench: Bench, *, now: datetime) -> tuple[Health, str]:
    """How a bench is right now, and why: what its row says is only true while its worker reports."""
    if bench.seen_at is None or now - bench.seen_at > AWAY_AFTER:
        return Health.AWAY, bench.reason if bench.health == Health.AWAY and bench.reason else "its worker is silent"
    return Health(bench.health), bench.reason


def leases_open(*, now: datetime) -> QuerySet[Lease]:
    """The leases that hold at `now`, with their holders."""
    return Lease.objects.select_related("holder").filter(released_at=None, ends_at__gt=now)


def bench_places(*, now: datetime) -> list[Place]:
    """Every bench that has ever reported, with its open lease."""
    leases = {lease.bench_id: lease for lease in leases_open(now=now)}
    return [_place(bench, leases.get(bench.pk), now) for bench in Bench.objects.defer("findings")]


def _place(bench: Bench, lease: Lease | None, now: datetime) -> Place:
    health, reason = bench_standing(bench, now=now)
    shut = ""
    if not bench.is_open:
        shut = "closed by an admin"
    elif health != Health.WELL:
        shut = f"{health.label}: {reason}" if reason else health.label
    slots = bench.facts.get("slots")
    return Place(
        name=bench.pk,
        offer=offer_of(bench),
        slots=slots if isinstance(slots, int) and slots > 0 else 1,
        shut=shut,
        holder=lease.holder_id if lease else None,
        held_until=lease.ends_at.timestamp() if lease else None,
        elsewhere=bench.emulates_elsewhere,
    )


def _waiting() -> list[Waiting]:
    rows = (
        Run.objects.filter(state=State.QUEUED, cancel_requested_at=None)
        .order_by("created_at", "id")
        .values_list("pk", "owner_id", "backend", "needs", "created_at", "expected_s")
    )
    return [
        Waiting(
            run=pk,
            owner=owner,
            emulation=backend == Backend.MININET,
            needs=needs_of(backend=backend, needs=needs),
            since=created_at.timestamp(),
            expected_s=expected_s,
        )
        for pk, owner, backend, needs, created_at, expected_s in rows
    ]


def _active(places: list[Place]) -> list[Active]:
    """Runs on benches. One of the command line is on no bench that we know of, unless there is but one machine."""
    only = places[0].name if len(places) == 1 else ""
    facts = ("pk", "owner_id", "bench_id", "backend", "origin", "expected_s", "created_at", "turn__begins_at")
    rows = Run.objects.filter(state__in=ACTIVE).order_by("created_at", "id").values_list(*facts)
    found = []
    for pk, owner, bench, backend, origin, expected_s, created_at, begins_at in rows:
        ends_at = None if expected_s is None else (begins_at or created_at).timestamp() + expected_s
        counted = owner if origin == Origin.CONSOLE else None
        found.append(Active(pk, counted, bench or only, backend == Backend.MININET, ends_at))
    return found


def _shares(owners: set[Owner], emulating: set[Owner], now: datetime) -> dict[Owner, Share]:
    people = [owner for owner in owners if owner is not None]
    limits = limits_of(people)
    turns = Turn.objects.filter(owner__in=people, begins_at__gt=now - DAY)
    served = dict(turns.values_list("owner").annotate(last=Max("begins_at")).order_by())
    used = bench_seconds(people=[owner for owner in emulating if owner is not None], now=now)
    return {
        owner: Share(
            active_runs=limits[owner].active_runs,
            bench_s_left=limits[owner].bench_minutes_per_day * 60 - used.get(owner, 0.0),
            served_at=served[owner].timestamp() if owner in served else 0.0,
        )
        for owner in people
    }


def bench_seconds(*, people: Iterable[int], now: datetime) -> dict[int, float]:
    """Seconds of emulation that each person has had in the last 24 h."""
    people = list(people)
    if not people:
        return {}
    turns = Turn.objects.filter(owner__in=people, emulation=True).filter(Q(ends_at=None) | Q(ends_at__gt=now - DAY))
    used: dict[int, float] = {}
    for owner, begins_at, ends_at in turns.values_list("owner", "begins_at", "ends_at"):
        begin = max(begins_at, now - DAY)
        used[owner] = used.get(owner, 0.0) + ((ends_at or now) - begin).total_seconds()
    return used
