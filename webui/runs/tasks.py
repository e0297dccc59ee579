"""Celery's doorways to runs. A task has an id and calls one function; nothing is decided here."""

# mypy: disable-error-code="no-untyped-call"
# celery has no types of its own.
from __future__ import annotations

from webui.celery import app
from webui.runs.execution import run_execute
from webui.runs.services import EXECUTE
from webui.runs.sweeper import Sweeper

app.steps["worker"].add(Sweeper)


@app.task(name=EXECUTE)  # type: ignore[untyped-decorator]
def execute(run_id: str) -> None:
    """Carries out a run, if it is still to be carried out."""
    run_execute(run_id=run_id)
