"""Parameters that several operations share, and the run that they name."""

from __future__ import annotations

from typing import Annotated

from ninja import Path, Query

from webui.accounts.callers import Caller
from webui.api.errors import ApiError
from webui.runs import selectors
from webui.runs.models import Run

RunId = Annotated[str, Path(max_length=40, description="The run id, or its last six digits.")]
Wait = Annotated[float, Query(ge=0, le=30, description="Answer later, by up to so many seconds, if there is news.")]


def find_run(run_id: str, caller: Caller) -> Run:
    """The run, or a 404 in the shape, also for one that is not the caller's to read."""
    run = selectors.run_get(run_id=run_id, caller=caller)
    if run is None:
        raise ApiError(404, "not_found", f"There is no run {run_id[:40]!r}.")
    return run
