"""What a new run's row is given to be judged by later: how long it will take, and which source took it."""

from __future__ import annotations

from functools import cache

from testbed.command.places import SOURCE
from testbed.experiment.provenance import source_revision
from webui.runs.models import Backend, Run
from webui.runs.states import Outcome, State


def expected_seconds(*, experiment: str, request_digest: str, backend: Backend) -> float | None:
    """What the last run that came to its end took: of the same request, else of the same experiment. None: no such.
    Runs from the command line have neither, so an empty one matches nothing.
    """
    asked = {"request_digest": request_digest, "experiment": experiment}
    ended = Run.objects.filter(
        backend=backend, state=State.FINISHED, outcome__in=[Outcome.PASSED, Outcome.FAILED], started_at__isnull=False
    ).order_by("-created_at")
    same = [ended.filter(**{field: value}) for field, value in asked.items() if value]
    for runs in same:
        for started_at, finished_at in runs.values_list("started_at", "finished_at")[:1]:
            if started_at is not None and finished_at is not None:
                return max(1.0, (finished_at - started_at).total_seconds())
    return None


@cache
def present_revision() -> str:
    """Git revision of this source, with + in place of its last digit where files differ from it; empty where it is not
    known. A running process keeps the source it has read.
    """
    told = source_revision(SOURCE) or ""
    return told if len(told) <= 40 else f"{told[:39]}+"
