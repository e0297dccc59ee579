"""A bench for one person for a while: take, extend, release, and the end by itself.

While a lease is open only its holder's runs start on the bench. A run that is under way when a lease begins or ends
goes on to its own end (fault E3); a lease that is not used ends early (fault E2).
"""

from __future__ import annotations

from datetime import datetime, timedelta

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from webui.accounts.callers import Caller
from webui.accounts.roles import Right
from webui.audit.deeds import Deed
from webui.audit.services import note
from webui.benches.models import Bench, Lease, Turn
from webui.benches.needs import lacking
from webui.benches.quotas import limits_for
from webui.benches.refusals import BadRequest, NotYours, QuotaFull, Taken
from webui.benches.situation import bench_standing, needs_of, offer_of
from webui.runs.models import Run
from webui.runs.services import run_send_next
from webui.runs.states import ACTIVE, State

UNUSED_AFTER = timedelta(minutes=15)
"""A lease under which no run has been on the bench for so long ends."""
LEAST_MIN = 5


def lease_take(*, bench: Bench, by: Caller, minutes: int, purpose: str = "") -> Lease:
    """The bench is the caller's for so long. Raises a Refusal with the sentence."""
    if not by.may(Right.LEASE):
        raise NotYours("You may look at benches and not lease them.")
    now = timezone.now()
    most = limits_for(by.user.pk).lease_minutes
    _check_minutes(minutes, most)
    leases_expire(now=now)
    with transaction.atomic():
        row = Bench.objects.select_for_update().get(pk=bench.pk)
        _check_free(row, by, now)
        try:
            with transaction.atomic():
                lease = Lease.objects.create(
                    bench=row, holder=by.user, purpose=purpose.strip()[:120], ends_at=now + timedelta(minutes=minutes)
                )
        except IntegrityError:  # somebody was first
            raise Taken(f"Bench {row.pk} has just been leased to somebody else.") from None
        note(Deed.LEASE_TAKE, row.pk, by=by.user, minutes=minutes, purpose=lease.purpose)
    run_send_next()
    return lease


def _check_minutes(minutes: int, most: int) -> None:
    if isinstance(minutes, bool) or not LEAST_MIN <= minutes <= max(most, LEAST_MIN):
        raise BadRequest(f"minutes {minutes}: {LEAST_MIN} to {most}, your quota for one lease", path="minutes")


def _check_free(bench: Bench, by: Caller, now: datetime) -> None:
    if not bench.is_open:
        raise Taken(f"Bench {bench.pk} is closed.")
    health, reason = bench_standing(bench, now=now)
    if health != "well":
        raise Taken(f"Bench {bench.pk} is {health.label}: {reason}.")
    held = Lease.objects.select_related("holder").filter(bench=bench, released_at=None).first()
    if held is not None:
        raise Taken(f"Bench {bench.pk} is leased to {held.holder.username} until {held.ends_at:%H:%M} UTC.")
    mine = Lease.objects.filter(holder=by.user, released_at=None).exclude(bench=bench).first()
    if mine is not None and not by.may(Right.ADMINISTER):
        raise QuotaFull(f"You have bench {mine.bench_id} already; release it before you take another one.")
    last = Lease.objects.filter(bench=bench).order_by("-begins_at").first()
    if last is not None and last.holder_id == by.user.pk and others_wait_for(bench, by.user.pk):
        raise Taken(f"Others wait for bench {bench.pk}, and the last lease was yours: their turn comes first.")


def others_wait_for(bench: Bench, person: int) -> bool:
    """Whether somebody else's queued run could use the bench."""
    waiting = Run.objects.filter(state=State.QUEUED, cancel_requested_at=None).filter(Q(owner=None) | ~Q(owner=person))
    offer = offer_of(bench)
    return any(
        not lacking(needs_of(backend=backend, needs=needs), offer)
        for backend, needs in waiting.values_list("backend", "needs")
    )


def lease_extend(*, lease: Lease, by: Caller, minutes: int) -> Lease:
    """Moves its end; the whole of it stays within the holder's quota. Raises a Refusal."""
    _only_holder(lease, by)
    most = limits_for(lease.holder_id).lease_minutes
    if isinstance(minutes, bool) or not 1 <= minutes <= max(most, 1):
        raise BadRequest(f"minutes {minutes}: 1 to {most}", path="minutes")
    now = timezone.now()
    with transaction.atomic():
        row = Lease.objects.select_for_update().get(pk=lease.pk)
        if row.released_at is not None or row.ends_at <= now:
            raise Taken("The lease has ended.")
        until = row.ends_at + timedelta(minutes=minutes)
        latest = row.begins_at + timedelta(minutes=most)
        if until > latest and not by.may(Right.ADMINISTER):
            raise Taken(f"A lease may last {most} min in all, so this one ends at {latest:%H:%M} UTC at the latest.")
        row.ends_at = until
        row.save(update_fields=["ends_at"])
        note(Deed.LEASE_EXTEND, row.bench_id, by=by.user, minutes=minutes)
    return row


def lease_release(*, lease: Lease, by: Caller) -> bool:
    """Gives the bench back; False if it had ended already. A run under way goes on. Raises NotYours."""
    _only_holder(lease, by)
    return _end(lease, timezone.now(), by=by, reason="released")


def _only_holder(lease: Lease, by: Caller) -> None:
    mine = by.may(Right.LEASE) and lease.holder_id == by.user.pk
    if not mine and not by.may(Right.ADMINISTER):
        raise NotYours("Only its holder or an admin may change a lease.")


def _end(lease: Lease, at: datetime, *, reason: str, by: Caller | None = None) -> bool:
    with transaction.atomic():
        if not Lease.objects.filter(pk=lease.pk, released_at=None).update(released_at=at):
            return False
        by_whom = by.user if by else None
        note(Deed.LEASE_RELEASE, lease.bench_id, by=by_whom, holder=lease.holder.username, reason=reason)
    run_send_next()
    return True


def leases_end_of(*, bench: Bench, reason: str) -> None:
    """The bench is no longer there for anybody."""
    for lease in Lease.objects.filter(bench=bench, released_at=None):
        _end(lease, timezone.now(), reason=reason)


def leases_expire(*, now: datetime | None = None) -> list[int]:
    """Ends what has run out, is not used or is nobody's who may still sign in; returns the leases' ids.

    Any process may do it, once each.
    """
    now = now or timezone.now()
    ended = []
    for lease in Lease.objects.select_related("holder").filter(released_at=None):
        if lease.ends_at <= now:
            gone = _end(lease, lease.ends_at, reason="its time ran out")
        elif not lease.holder.is_active:
            gone = _end(lease, now, reason="its holder's account was closed")
        elif now - lease_used_at(lease) >= UNUSED_AFTER:
            gone = _end(lease, now, reason=f"no run for {UNUSED_AFTER.seconds // 60} min")
        else:
            continue
        if gone:
            ended.append(lease.pk)
    return ended


def lease_used_at(lease: Lease) -> datetime:
    """When a run of the holder's was last on the bench; now, while one is."""
    runs = Run.objects.filter(owner=lease.holder_id, bench=lease.bench_id, state__in=ACTIVE)
    if runs.exists():
        return timezone.now()
    last = (
        Turn.objects.filter(owner=lease.holder_id, bench=lease.bench_id, ends_at__gt=lease.begins_at)
        .order_by("-ends_at")
        .values_list("ends_at", flat=True)
        .first()
    )
    return last or lease.begins_at
