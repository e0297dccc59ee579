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
from datetime import timedelta
from typing import Any

from django.db import IntegrityError, transaction
from django.utils import timezone

from testbed.experiment.run_folder import new_run_id
from webui.accounts.models import User
from webui.celery import app
from webui.runs import selectors
from webui.runs.folder import summary_of
from webui.runs.models import Backend, Origin, Run
from webui.runs.specs import SpecFacts, read_spec
from webui.runs.states import ACTIVE, Move, Outcome, State, moved, sources

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=6)
UNSTARTED = "cancelled before it started"
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
) -> tuple[Run, bool]:
    """Queues a run; the second value is False if the key's earlier request had made it already.

    Raises `specs.SpecFault` for a spec that the command would refuse too, and KeyReused.
    """
    overrides = overrides or []
    request = json.dumps([spec, backend, overrides, experiment])
    digest = hashlib.sha256(request.encode()).hexdigest()
    if idempotency_key:
        earlier = _earlier(owner=owner, key=idempotency_key, digest=digest)
        if earlier is not None:
            return earlier, False
    facts = read_spec(spec, overrides=overrides, where=experiment or "spec")
    try:
        with transaction.atomic():
            run = _insert(facts, owner, spec, backend, overrides, experiment, idempotency_key, digest)
            transaction.on_commit(lambda: run_send(run_id=run.pk))
    except IntegrityError:  # the same key at the same moment: the other request was first
        if not idempotency_key:
            raise
        earlier = _earlier(owner=owner, key=idempotency_key, digest=digest)
        if earlier is None:
            raise
        return earlier, False
    return run, True


def _earlier(*, owner: User, key: str, digest: str) -> Run | None:
    earlier = selectors.run_for_key(owner=owner, key=key)
    if earlier is not None and earlier.request_digest != digest:
        raise KeyReused(key, earlier.pk)
    return earlier


def _insert(
    facts: SpecFacts,
    owner: User,
    spec: str,
    backend: Backend,
    overrides: list[str],
    experiment: str,
    key: str | None,
    digest: str,
) -> Run:
    return Run.objects.create(
        id=new_run_id(timezone.now()),
        experiment=experiment,
        question=facts.question,
        systems=list(facts.systems),
        seed=facts.seed,
        backend=backend,
        spec=spec,
        overrides=overrides,
        owner=owner,
        idempotency_key=key or None,
        request_digest=digest,
    )


def run_send(*, run_id: str) -> None:
    """Tells the workers about a run. A broker that is away costs a few seconds, until the sweeper sends again."""
    try:
        app.send_task(EXECUTE, args=[run_id], retry=False)
    except Exception as fault:  # noqa: BLE001  # kombu raises whatever the transport raises
        logger.warning("run %s: the broker took no message (%s); the sweeper will send it again", run_id, fault)


def run_claim(*, run_id: str, lease_owner: str) -> Run | None:
    """Takes the run for this worker: a queued one whose turn it is, or one whose worker's lease has run out.

    None for everything else: a duplicate message, a run that waits, is cancelled or finished.
    """
    now = timezone.now()
    lease = {"lease_owner": lease_owner, "lease_until": now + LEASE}
    with transaction.atomic():
        run = Run.objects.select_for_update().filter(pk=run_id).first()
        if run is None:
            return None
        if run.state == State.QUEUED:
            if run.cancel_requested_at is not None or selectors.run_waits_for(run=run):
                return None
            lease["state"] = moved(State.QUEUED, Move.CLAIM)
        elif run.state not in ACTIVE or run.origin != Origin.CONSOLE or (run.lease_until and run.lease_until > now):
            return None
        Run.objects.filter(pk=run_id).update(attempts=run.attempts + 1, **lease)
    return Run.objects.get(pk=run_id)


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
        state=moved(State.PREPARING, Move.RELEASE), lease_owner="", lease_until=None, detail=detail
    )
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


def run_finish(*, run_id: str, outcome: Outcome, detail: str, lease_owner: str | None = None) -> bool:
    """The end: once, by whoever is first; with `lease_owner` only by the worker that holds the run."""
    runs = Run.objects.filter(pk=run_id, state__in=sources(Move.FINISH))
    if lease_owner is not None:
        runs = runs.filter(lease_owner=lease_owner)
    summary = summary_of(run_id)
    finished = runs.update(
        state=State.FINISHED,
        outcome=outcome,
        detail=detail[:4000],
        summary=summary,
        fidelity=fidelity_of(summary=summary),
        finished_at=timezone.now(),
        lease_owner="",
        lease_until=None,
    )
    if finished:
        run_send_next()
    return finished == 1


def fidelity_of(*, summary: dict[str, Any]) -> str:
    """The verdict in a summary, or empty."""
    fidelity = summary.get("fidelity")
    verdict = fidelity.get("verdict") if isinstance(fidelity, dict) else None
    return verdict[:12] if isinstance(verdict, str) else ""


def run_send_next() -> None:
    """Wakes workers for the head of the queue; called when a bench may have become free."""
    for run_id in selectors.run_queue_head():
        run_send(run_id=run_id)


def run_cancel(*, run_id: str, user: User | None) -> bool:
    """Asks for the run to end. True for the one request that made the difference, False for all later ones.

    A queued run ends here; for a running one the worker sees the flag, and cleanup always runs.
    """
    now = timezone.now()
    asked = (
        Run.objects.filter(pk=run_id, cancel_requested_at=None)
        .exclude(state=State.FINISHED)
        .update(cancel_requested_at=now, cancel_requested_by=user)
    )
    if not asked:
        return False
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
