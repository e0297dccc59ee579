"""What benches can be asked, as one person may see it: who has each, what it does, and what waits.

Benches and leases are everybody's to see; runs are named only to those who may read them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from webui.accounts.callers import Caller
from webui.accounts.roles import Right
from webui.benches.leases import UNUSED_AFTER, lease_used_at
from webui.benches.models import Bench, Health, Lease, Turn
from webui.benches.needs import lacking
from webui.benches.outlook import Outlook, Queue, queue_for
from webui.benches.quotas import limits_for
from webui.benches.situation import bench_standing, leases_open, needs_of, offer_of
from webui.runs.access import runs_readable
from webui.runs.models import Backend, Run
from webui.runs.states import ACTIVE, State


@dataclass(frozen=True)
class LeaseCard:
    """An open lease."""

    lease: Lease
    holder: str
    mine: bool
    may_change: bool
    """The caller may extend and release it."""
    left: timedelta
    longest_end: datetime
    """Beyond it the holder's quota does not let it be extended."""
    unused_end: datetime
    """When it ends if no run of the holder's comes."""

    @property
    def minutes_left(self) -> int:
        """Whole minutes, at least 1 while it lasts."""
        return max(1, round(self.left.total_seconds() / 60))

    @property
    def may_grow(self) -> bool:
        """Whether there is room for an extension."""
        return self.may_change and self.longest_end > self.lease.ends_at


@dataclass(frozen=True)
class QueueLine:
    """A waiting run; `run` is None where the caller may not read it."""

    run: Run | None
    outlook: Outlook
    backend: str
    needs: tuple[str, ...]


@dataclass(frozen=True)
class BenchCard:
    """A bench at a glance."""

    bench: Bench
    health: Health
    reason: str
    """Why it takes no runs; empty while it does."""
    lease: LeaseCard | None
    running: tuple[Run, ...]
    """Those that the caller may read."""
    hidden: int
    """Runs under way there that the caller may not read."""
    waiting: int
    """Queued runs that it could take."""
    may_lease: bool

    @property
    def name(self) -> str:
        """The bench's."""
        return self.bench.pk

    @property
    def tone(self) -> str:
        """Of its mark: ok, run, warn, bad or idle."""
        if not self.bench.is_open:
            return "idle"
        if self.health != Health.WELL:
            return "warn" if self.health == Health.AWAY else "bad"
        return "run" if self.busy or self.bench.emulates_elsewhere else "ok"

    @property
    def busy(self) -> int:
        """Runs under way there."""
        return len(self.running) + self.hidden

    @property
    def words(self) -> str:
        """Its standing, short: free, 2 runs, away, …"""
        if not self.bench.is_open:
            return "closed"
        if self.health != Health.WELL:
            return self.health.label
        if self.busy:
            return f"{self.busy} run{'s' if self.busy > 1 else ''}"
        return "emulates elsewhere" if self.bench.emulates_elsewhere else "free"

    @property
    def memory_gib(self) -> float | None:
        """Of the machine."""
        return _gib(self.bench.facts.get("memory_mib"))

    @property
    def disk_gib(self) -> float | None:
        """Free for runs."""
        return _gib(self.bench.facts.get("disk_free_mib"))

    @property
    def abilities(self) -> list[tuple[str, bool, str]]:
        """(ability or part, whether it has it, why not), as its own probes found."""
        return [
            (name, told is True, "" if told is True else str(told))
            for name, told in sorted(self.bench.abilities.items(), key=lambda item: (":" in item[0], item[0]))
        ]


def _gib(mib: object) -> float | None:
    return mib / 1024 if isinstance(mib, int) else None


def bench_get(*, name: str) -> Bench | None:
    """The bench of this name."""
    return Bench.objects.filter(pk=name[:40]).first()


def bench_list(*, caller: Caller) -> list[BenchCard]:
    """All benches, by name, in a constant number of queries."""
    return bench_cards(benches=Bench.objects.defer("findings"), caller=caller)


def bench_cards(*, benches: Iterable[Bench], caller: Caller) -> list[BenchCard]:
    """The same of some."""
    now = timezone.now()
    benches = list(benches)
    names = [bench.pk for bench in benches]
    held = {lease.bench_id: lease_card(lease, caller, now) for lease in leases_open(now=now).filter(bench__in=names)}
    # As in the situation: one of the command line is on no bench that we know of, unless there is but one machine.
    only = names[0] if names and Bench.objects.count() == 1 else ""
    here = Q(state__in=ACTIVE) & (Q(bench__in=names) | Q(bench=None) if only else Q(bench__in=names))
    under_way: dict[str, int] = {}
    for bench in Run.objects.filter(here).values_list("bench_id", flat=True):
        under_way[bench or only] = under_way.get(bench or only, 0) + 1
    shown: dict[str, list[Run]] = {}
    for run in runs_readable(caller).filter(here).defer("spec", "summary"):
        shown.setdefault(run.bench_id or only, []).append(run)
    queued = Run.objects.filter(state=State.QUEUED, cancel_requested_at=None).values_list("backend", "needs")
    needs = [needs_of(backend=backend, needs=told) for backend, told in queued]
    return [
        _card(bench, held.get(bench.pk), shown.get(bench.pk, []), under_way.get(bench.pk, 0), needs, caller, now)
        for bench in benches
    ]


def _card(
    bench: Bench,
    lease: LeaseCard | None,
    running: list[Run],
    under_way: int,
    needs: list[tuple[str, ...]],
    caller: Caller,
    now: datetime,
) -> BenchCard:
    health, reason = bench_standing(bench, now=now)
    offer = offer_of(bench)
    if not bench.is_open:
        reason = "an admin closed it"
    takes = bench.is_open and health == Health.WELL
    return BenchCard(
        bench=bench,
        health=health,
        reason="" if takes else reason,
        lease=lease,
        running=tuple(running),
        hidden=max(0, under_way - len(running)),
        waiting=sum(not lacking(one, offer) for one in needs),
        may_lease=takes and lease is None and caller.may(Right.LEASE),
    )


def lease_card(lease: Lease, caller: Caller, now: datetime) -> LeaseCard:
    """An open lease as the caller sees it."""
    mine = lease.holder_id == caller.user.pk
    minutes = limits_for(lease.holder_id).lease_minutes
    return LeaseCard(
        lease=lease,
        holder=lease.holder.username,
        mine=mine,
        may_change=(mine and caller.may(Right.LEASE)) or caller.may(Right.ADMINISTER),
        left=max(timedelta(0), lease.ends_at - now),
        longest_end=lease.begins_at + timedelta(minutes=minutes),
        unused_end=lease_used_at(lease) + UNUSED_AFTER,
    )


def lease_open(*, bench: str) -> Lease | None:
    """The bench's lease, if somebody has it now."""
    return leases_open(now=timezone.now()).filter(bench=bench[:40]).first()


def lease_get(*, lease_id: int) -> Lease | None:
    """An open or ended lease."""
    return Lease.objects.select_related("holder").filter(pk=lease_id).first()


def queue_list(*, caller: Caller, bench: Bench | None = None) -> list[QueueLine]:
    """What waits, the next first; with `bench`, only what it could take."""
    queue = queue_for(caller)
    ids = [run for run in queue.placement.order if run in queue.readable]
    runs = {run.pk: run for run in runs_readable(caller).filter(pk__in=ids).defer("spec", "summary")}
    return [_line(queue, run, runs.get(run)) for run in queue.placement.order if _could_take(queue, run, bench)]


def _could_take(queue: Queue, run: str, bench: Bench | None) -> bool:
    return bench is None or not lacking(queue.waiting[run].needs, offer_of(bench))


def _line(queue: Queue, name: str, run: Run | None) -> QueueLine:
    waiting = queue.waiting[name]
    backend = Backend.MININET if waiting.emulation else Backend.SIM
    return QueueLine(run, queue.outlook(name), backend.label, waiting.needs[1:])


def turn_list(*, bench: Bench, caller: Caller, limit: int = 30) -> list[tuple[Turn, Run | None]]:
    """Who had the bench and for how long, the newest first; run and owner only where the caller may read the run."""
    turns = list(Turn.objects.select_related("owner").filter(bench=bench)[:limit])
    runs = {
        run.pk: run
        for run in runs_readable(caller).filter(pk__in=[turn.run_id for turn in turns]).defer("spec", "summary")
    }
    return [(turn, runs.get(turn.run_id)) for turn in turns]
