"""A run as plain JSON, in two lengths: its row alone for lists, and with its queue and trials for one run.

Both are the same on the REST API and in the live stream. `run_row` reads no disk and asks no further question of the
database, so that a list of a thousand runs costs what its rows cost.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from webui.accounts.callers import Caller
from webui.benches.outlook import run_outlook
from webui.runs.folder import trials_begun, trials_of
from webui.runs.models import Run
from webui.runs.states import State


def run_row(run: Run) -> dict[str, Any]:
    """What the row says; owner and `clone_told` come with it (`webui.runs.access.runs_readable`)."""
    return {
        "id": run.pk,
        "label": run.label,
        "experiment": run.experiment,
        "question": run.question,
        "on": run.backend,
        "bench": run.bench_id,
        "systems": run.systems,
        "seed": run.seed,
        "overrides": run.overrides,
        "revision": run.revision or None,
        "tags": run.tags,
        "needs": run.needs,
        "visibility": run.visibility,
        "clone_of": getattr(run, "clone_told", None),
        "state": run.state,
        "outcome": run.outcome or None,
        "detail": run.detail,
        "fidelity": run.fidelity or None,
        "cancelling": run.is_cancelling,
        "owner": run.owner.username if run.owner else None,
        "origin": run.origin,
        "created_at": _moment(run.created_at),
        "started_at": _moment(run.started_at),
        "finished_at": _moment(run.finished_at),
        "ends_by": _moment(run.ends_by),
        "expected_s": run.expected_s,
    }


def run_facts(run: Run, caller: Caller | None = None) -> dict[str, Any]:
    """The row, the labels of its trials and, for a caller, what a queued run waits for.

    Without a caller nothing is said of the queue: its sentence may name only runs that its reader may read.
    """
    waiting = run.state == State.QUEUED
    queue = queue_facts(run, caller) if waiting and caller is not None else None
    trials = [] if waiting else trials_of(run.pk)
    return {
        **run_row(run),
        "detail": run.detail or (queue["reason"] if queue else ""),
        "queue": queue,
        "trials": trials,
        "trials_begun": len(trials) if run.is_finished else trials_begun(run.pk, trials),
    }


def queue_facts(run: Run, caller: Caller) -> dict[str, Any]:
    """Place in the queue, reason and expected start, as `caller` may know them."""
    outlook = run_outlook(run, caller)
    return {"position": outlook.position, "reason": outlook.reason, "starts_at": _moment(outlook.starts_at)}


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")
