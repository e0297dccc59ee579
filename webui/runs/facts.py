"""A run as plain JSON: the same object on the REST API and in the live stream."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from webui.runs import selectors
from webui.runs.folder import trials_of
from webui.runs.models import Run
from webui.runs.states import State


def run_facts(run: Run) -> dict[str, Any]:
    """What there is to know about a run's row, and the labels of its trials."""
    return {
        "id": run.pk,
        "label": run.label,
        "experiment": run.experiment,
        "question": run.question,
        "on": run.backend,
        "systems": run.systems,
        "seed": run.seed,
        "overrides": run.overrides,
        "state": run.state,
        "outcome": run.outcome or None,
        "detail": run.detail or (selectors.run_waits_for(run=run) if run.state == State.QUEUED else ""),
        "fidelity": run.fidelity or None,
        "cancelling": run.is_cancelling,
        "owner": run.owner.username if run.owner else None,
        "origin": run.origin,
        "created_at": _moment(run.created_at),
        "started_at": _moment(run.started_at),
        "finished_at": _moment(run.finished_at),
        "trials": trials_of(run.pk) if run.state != State.QUEUED else [],
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else moment.isoformat().replace("+00:00", "Z")
