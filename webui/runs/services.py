"""What changes runs. The row is the truth: every change is one compare-and-set, so no broker has to be trusted.

A worker holds a run by lease. Duplicate messages find it claimed, lost messages are sent again by the sweeper, and
a worker that died is followed by one that adopts the run (design/console.md §1).
"""

# mypy: disable-error-code="no-untyped-call"
# celery has no types of its own.
from __future__ import annotations

import hashlib
import json
import logging
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from testbed.experiment.run_folder import new_run_id
from webui.accounts.callers import Caller
from webui.accounts.models import User
from webui.accounts.roles import Right
from webui.audit.deeds import Deed
from webui.audit.services import note
from webui.benches.identity import bench_queue
from webui.benches.models import Console, Turn
from webui.benches.placement import place
from webui.benches.quotas import limits_for
from webui.benches.refusals import BadRequest, NotYours, Taken
from webui.benches.situation import situation_now
from webui.celery import app
from webui.runs import selectors
from webui.runs.access import may_change
from webui.runs.estimates import expected_seconds, present_revision
from webui.runs.folder import summary_of
from webui.runs.models import Backend, Origin, Run
from webui.runs.specs import SpecFacts, read_spec
from webui.runs.states import ACTIVE, Move, Outcome, State, moved, sources
from webui.runs.wishes import NONE, Wishes, wishes_check

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=4)
"""Renewed every 0.25 s. So short that a page can say within 5 s that a worker is gone."""
LONGEST_EXTENSION_MIN = 24 * 60
UNSTARTED = "cancelled before it started"
OWNER_CLOSED = "cancelled before it started: its owner's account was closed"
EXECUTE = "webui.runs.execute"
"""Name of the task; sent by name, so that services need not know the module that calls them."""


class KeyReused(Exception):
    """An Idempotency-Key came again with another request."""

    def __init__(self, key: str, run_id: str) -> None:
        self.key = key
        self.run_id = run_id
        super().__init__(f"Idempotency-Key {key!r} was used for run {run_id} with another request")


def run_start(
    *,
    owner: User,
    spec: str,
    backend: Backend,
    overrides: list[str] | None = None,
    experiment: str = "",
    idempotency_key: str | None = None,
    wishes: Wishes = NONE,
) -> tuple[Run, bool]:
    """Queues a run; the second value is False if the key's earlier request had made it already.

    Raises `specs.SpecFault` for a spec that the command would refuse too, KeyReused, and a `benches.refusals.Refusal`
    for wishes that cannot be met.
    """
    overrides = overrides or []
    digest = _digest([spec, backend, overrides, experiment, *([] if wishes == NONE else wishes.told())])
    if idempotency_key:
        earlier = _earlier(owner=owner, key=idempotency_key, digest=digest)
        if earlier is not None:
            return earlier, False
    facts = read_spec(spec, overrides=overrides, where=experiment or "spec")
    run = Run(
        id=new_run_id(timezone.now()),
        experiment=experiment,
        backend=backend,
        spec=spec,
        overrides=overrides,
        owner=owner,
        idempotency_key=idempotency_key or None,
        request_digest=digest,
        revision=present_revision(),
    )
    try:
        with transaction.atomic():
            _insert(run, facts, wishes)
            transaction.on_commit(lambda: run_ring(run_id=run.pk))
    except IntegrityError:  # the same key at the same moment: the other request was first
        earlier = _earlier(owner=owner, key=idempotency_key, digest=digest) if idempotency_key else None
        if earlier is None:
            raise
        return earlier, False
    return run, True


def _digest(request: list[object]) -> str:
    return hashlib.sha256(json.dumps(request).encode()).hexdigest()


def _earlier(*, owner: User, key: str, digest: str) -> Run | None:
    earlier = selectors.run_for_key(owner=owner, key=key)
    if earlier is not None and earlier.request_digest != digest:
        raise KeyReused(key, earlier.pk)
    return earlier


def _insert(run: Run, facts: SpecFacts, wishes: Wishes) -> None:
    assert run.owner is not None
    owner = User.objects.select_for_update().get(pk=run.owner.pk)  # two requests at once do not both find room
    if not owner.is_active:  # closed at this very moment
        raise NotYours("This account is closed.")
    limits = limits_for(owner.pk)
    backend = Backend(run.backend)
    run.needs = wishes_check(wishes=wishes, owner=owner, limits=limits, backend=backend, of_spec=facts.needs)
    run.question, run.systems, run.seed = facts.question, list(facts.systems), facts.seed
    run.time_limit_s, run.visibility, run.tags = wishes.time_limit_s, wishes.visibility, list(wishes.tags)
    run.clone_of = wishes.clone_of
    run.expected_s = expected_seconds(experiment=run.experiment, request_digest=run.request_digest, backend=backend)
    run.save(force_insert=True)
    run.groups.set(wishes.groups)
    note(Deed.RUN_START, run.pk, by=owner, experiment=run.experiment, on=run.backend)


def run_send(*, run_id: str, bench: str = "") -> None:
    """Tells a bench's workers about a run, or any worker. Only a doorbell: whoever hears it asks the row.

    A broker that is away costs a few seconds, until the sweeper sends again.
    """
    queue = bench_queue(bench) if bench else settings.CELERY_TASK_DEFAULT_QUEUE
    try:
        app.send_task(EXECUTE, args=[run_id], retry=False, queue=queue)
    except Exception as fault:  # noqa: BLE001  # kombu raises whatever the transport raises
        logger.warning("run %s: the broker took no message (%s); the sweeper will send it again", run_id, fault)


def run_ring(*, run_id: str) -> None:
    """Tells the bench where the run may start now; while there is none, whichever worker listens first."""
    run_send(run_id=run_id, bench=dict(place(situation_now()).starts).get(run_id, ""))


def run_send_next() -> None:
    """Wakes the workers of every run that may start now; called when a bench may have become free."""
    for run_id, bench in place(situation_now()).starts:
        run_send(run_id=run_id, bench=bench)


def run_claim(*, run_id: str, lease_owner: str, bench: str) -> Run | None:
    """Takes the run for a worker of `bench`: a queued one whose turn it is there, or one of this bench whose worker's
    lease has run out.

    None for everything else: a duplicate message, a run that waits, is cancelled or finished, or is another bench's.
    """
    now = timezone.now()
    with transaction.atomic():
        _lock_placement()
        run = Run.objects.select_for_update(of=("self",)).select_related("owner").filter(pk=run_id).first()
        if run is None:
            return None
        if run.state == State.QUEUED:
            if run.owner is not None and not run.owner.is_active:
                _end_unstarted(run.pk)
                return None
            if run.cancel_requested_at is not None or not _has_turn(run, bench):
                return None
            _begin(run, bench, now)
        elif run.state not in ACTIVE or run.origin != Origin.CONSOLE or not _is_orphan(run, bench, now):
            return None
        Run.objects.filter(pk=run_id).update(
            attempts=run.attempts + 1, lease_owner=lease_owner, lease_until=now + LEASE
        )
    return Run.objects.get(pk=run_id)


def _lock_placement() -> None:
    """Decisions about turns are made one at a time: two workers that look at once would both find the bench free.

    SQLite's transactions are IMMEDIATE and need no row to wait on; PostgreSQL waits on this one.
    """
    Console.objects.select_for_update().get_or_create(pk=Console.ONLY)


def _has_turn(run: Run, bench: str) -> bool:
    """Whether it may start on `bench` now. If it may on another one instead, that one is told, and takes it: the bench
    is the same for whoever asks, so a message goes on once at most.
    """
    situation = situation_now()
    where = dict(place(situation).starts).get(run.pk)
    if where is None or where == bench or dict(place(situation, here=bench).starts).get(run.pk) == bench:
        return where is not None
    transaction.on_commit(lambda: run_send(run_id=run.pk, bench=where))
    return False


def _begin(run: Run, bench: str, now: datetime) -> None:
    limit_s = run.time_limit_s or limits_for(run.owner_id).run_minutes * 60
    Run.objects.filter(pk=run.pk).update(
        state=moved(State.QUEUED, Move.CLAIM), bench=bench, ends_by=now + timedelta(seconds=limit_s), detail=""
    )
    turn = {"owner": run.owner, "bench_id": bench, "emulation": run.backend == Backend.MININET, "begins_at": now}
    Turn.objects.update_or_create(run=run, defaults={**turn, "ends_at": None})


def _is_orphan(run: Run, bench: str, now: datetime) -> bool:
    """Its worker is gone. A run belongs to its machine, so only the same bench adopts it."""
    return (run.lease_until is None or run.lease_until <= now) and run.bench_id in (None, bench)


def run_renew(*, run_id: str, lease_owner: str) -> Run | None:
    """Keeps the lease and brings back the row as it is now; None if the lease has gone to another worker."""
    until = timezone.now() + LEASE
    if not Run.objects.filter(pk=run_id, lease_owner=lease_owner, state__in=ACTIVE).update(lease_until=until):
        return None
    return Run.objects.get(pk=run_id)


def run_release(*, run_id: str, lease_owner: str, detail: str) -> bool:
    """Back to the queue, because the bench was taken after all. One that was asked to end meanwhile ends instead."""
    held = Run.objects.filter(pk=run_id, lease_owner=lease_owner, state__in=sources(Move.RELEASE))
    changed = held.filter(cancel_requested_at=None).update(
        state=moved(State.PREPARING, Move.RELEASE),
        lease_owner="",
        lease_until=None,
        bench=None,
        ends_by=None,
        detail=detail,
    )
    if changed:
        Turn.objects.filter(run=run_id).delete()
    if not changed and held.exists():
        run_finish(run_id=run_id, outcome=Outcome.CANCELLED, detail=UNSTARTED, lease_owner=lease_owner)
    return changed == 1


def run_abandon(*, run_id: str, lease_owner: str) -> None:
    """Gives the lease up while the run goes on; the next worker adopts it at once."""
    Run.objects.filter(pk=run_id, lease_owner=lease_owner).update(lease_until=timezone.now() - timedelta(seconds=1))


def run_advance(*, run_id: str, lease_owner: str, move: Move) -> bool:
    """RUN or FINALISE, by the worker that holds the run; False if it does not, or the run is past that."""
    runs = Run.objects.filter(pk=run_id, lease_owner=lease_owner, state__in=sources(move))
    changes: dict[str, Any] = {"state": moved(sources(move)[0], move)}
    if move is Move.RUN:
        changes |= {"started_at": timezone.now(), "detail": ""}
    return runs.update(**changes) == 1


def run_remark(*, run_id: str, lease_owner: str, detail: str) -> None:
    """What people should know of a run under way, by the worker that holds it; empty takes the remark back."""
    Run.objects.filter(pk=run_id, lease_owner=lease_owner, state__in=ACTIVE).update(detail=detail[:4000])


def run_finish(*, run_id: str, outcome: Outcome, detail: str, lease_owner: str | None = None) -> bool:
    """The end: once, by whoever is first; with `lease_owner` only by the worker that holds the run."""
    runs = Run.objects.filter(pk=run_id, state__in=sources(Move.FINISH))
    if lease_owner is not None:
        runs = runs.filter(lease_owner=lease_owner)
    summary = summary_of(run_id)
    now = timezone.now()
    with transaction.atomic():
        finished = runs.update(
            state=State.FINISHED,
            outcome=outcome,
            detail=detail[:4000],
            summary=summary,
            fidelity=fidelity_of(summary=summary),
            finished_at=now,
            lease_owner="",
            lease_until=None,
        )
        if finished:
            Turn.objects.filter(run=run_id, ends_at=None).update(ends_at=now)
            if outcome is Outcome.LOST:
                note(Deed.RUN_LOST, run_id, detail=detail[:300])
    if finished:
        run_send_next()
    return finished == 1


def fidelity_of(*, summary: dict[str, Any]) -> str:
    """The verdict in a summary, or empty."""
    fidelity = summary.get("fidelity")
    verdict = fidelity.get("verdict") if isinstance(fidelity, dict) else None
    return verdict[:12] if isinstance(verdict, str) else ""


def run_cancel(*, run_id: str, user: User | None) -> bool:
    """Asks for the run to end. True for the one request that made the difference, False for all later ones.

    A queued run ends here; for a running one the worker sees the flag, and cleanup always runs.
    """
    now = timezone.now()
    with transaction.atomic():  # a flag without the end that goes with it would leave the run queued for good
        asked = (
            Run.objects.filter(pk=run_id, cancel_requested_at=None)
            .exclude(state=State.FINISHED)
            .update(cancel_requested_at=now, cancel_requested_by=user)
        )
        if not asked:
            return False
        note(Deed.RUN_CANCEL, run_id, by=user)
        # A worker that claims now sees the flag; one that claimed before holds the run, and the filter misses.
        ended = Run.objects.filter(pk=run_id, state=State.QUEUED).update(
            state=moved(State.QUEUED, Move.FINISH),
            outcome=Outcome.CANCELLED,
            detail=UNSTARTED,
            finished_at=now,
        )
    if ended:
        run_send_next()
    return True


def runs_cancel_of(*, owner: User) -> list[str]:
    """Cancels what waits of somebody whose account was closed, and says why; what is under way goes on. Their ids."""
    with transaction.atomic():
        waiting = Run.objects.filter(owner=owner, state=State.QUEUED, cancel_requested_at=None)
        ended = [pk for pk in waiting.values_list("pk", flat=True) if _end_unstarted(pk)]
        if ended:
            transaction.on_commit(run_send_next)
    return ended


def _end_unstarted(run_id: str) -> bool:
    """Cancels the queued run of a closed account; False if a worker or a person was first."""
    now = timezone.now()
    ended = Run.objects.filter(pk=run_id, state=State.QUEUED, cancel_requested_at=None).update(
        state=moved(State.QUEUED, Move.FINISH),
        outcome=Outcome.CANCELLED,
        detail=OWNER_CLOSED,
        cancel_requested_at=now,
        finished_at=now,
    )
    if ended:
        note(Deed.RUN_CANCEL, run_id, reason=OWNER_CLOSED)
    return ended == 1


def run_extend(*, run_id: str, minutes: int, by: Caller) -> Run:
    """Moves the moment at which the run is asked to end. Its whole time stays within its owner's quota; an admin may
    go beyond it, to 24 h. Raises a Refusal with the sentence.
    """
    if isinstance(minutes, bool) or not 1 <= minutes <= LONGEST_EXTENSION_MIN:
        raise BadRequest(f"minutes {minutes}: 1 to {LONGEST_EXTENSION_MIN}", path="minutes")
    with transaction.atomic():
        run = Run.objects.select_for_update().get(pk=run_id)
        if not may_change(by, run):
            raise NotYours("Only the run's owner or an admin may extend it.")
        if run.state not in ACTIVE or run.ends_by is None or run.cancel_requested_at is not None:
            raise Taken("The run has ended or is ending." if run.state != State.QUEUED else "The run has not started.")
        if run.ends_by <= timezone.now():
            raise Taken("Its time has run out, and it is being ended; start it again with more.")
        begun = Turn.objects.filter(run=run).values_list("begins_at", flat=True).first() or run.created_at
        quota = limits_for(run.owner_id).run_minutes
        allowed = LONGEST_EXTENSION_MIN if by.may(Right.ADMINISTER) else quota
        until = run.ends_by + timedelta(minutes=minutes)
        if until > begun + timedelta(minutes=allowed):
            left = int((begun + timedelta(minutes=allowed) - run.ends_by).total_seconds() // 60)
            words = f"{left} more at most" if left > 0 else "it has all of them"
            raise Taken(f"A run may take {allowed} min in all, so this one cannot have {minutes} more: {words}.")
        Run.objects.filter(pk=run_id, state__in=ACTIVE).update(ends_by=until)
        note(Deed.RUN_EXTEND, run_id, by=by.user, minutes=minutes)
    return Run.objects.get(pk=run_id)
