"""`/api/v1/runs/{id}/verdict` and `/export`: what came of a run, as JSON, JUnit XML and in other tools' forms."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Literal

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse, JsonResponse
from ninja import Field, Router, Schema

from webui.accounts.callers import caller_of
from webui.api.description import answers, many
from webui.api.errors import ApiError
from webui.api.finding import RunId, Wait, find_run
from webui.api.schemas import ErrorOut
from webui.runs.exports import FORMATS, ExportFault, export_run
from webui.runs.models import Run
from webui.runs.states import State
from webui.runs.verdict import junit_of, verdict_of

router = Router(tags=["results"])

POLL_S = 0.25
JSON, XML = "application/json", "application/xml"


class ExpectationOut(Schema):
    """A bound of the experiment's `[expect]`, and what was measured."""

    text: str
    metric: str
    bound: str
    measured: float | str | None
    held: bool
    point: str
    reason: str


class FidelityOut(Schema):
    """Whether the figures may be trusted."""

    verdict: Literal["faithful", "degraded", "invalid"]
    reasons: list[str]


class VerdictOut(Schema):
    """What came of a finished run."""

    run: str
    passed: Annotated[bool, Field(description="The outcome is `passed`: what a pipeline asks.")]
    outcome: Literal["passed", "failed", "errored", "cancelled", "lost"]
    detail: str
    fidelity: Annotated[FidelityOut | None, Field(description="Null where nothing was judged.")]
    expectations: list[ExpectationOut]


@router.get(
    "/runs/{run_id}/verdict",
    response={200: VerdictOut, 404: ErrorOut, 409: ErrorOut},
    summary="What came of a finished run",
    openapi_extra=many(
        answers(
            200,
            description="JSON, or JUnit XML where `Accept` prefers application/xml or text/xml.",
            content={
                JSON: {"$ref": "#/components/schemas/VerdictOut"},
                XML: {"type": "string", "description": "JUnit XML."},
            },
            headers={"Vary": "Accept."},
        )
    ),
)
async def run_verdict(request: HttpRequest, run_id: RunId, wait: Wait = 0) -> HttpResponse:
    """409 `not_finished` while the run goes on; with `wait` only after so many seconds."""
    end = time.monotonic() + wait
    while True:
        run = await sync_to_async(find_run)(run_id, caller_of(request))
        if run.state == State.FINISHED:
            return await sync_to_async(_told)(request, run)
        if time.monotonic() >= end:
            raise ApiError(409, "not_finished", f"Run {run.label} is {run.state}; ask again, or with `wait`.")
        await asyncio.sleep(POLL_S)


def _told(request: HttpRequest, run: Run) -> HttpResponse:
    wanted = request.get_preferred_type([JSON, XML, "text/xml"])
    if wanted in (XML, "text/xml"):
        answer = HttpResponse(junit_of(run), content_type=wanted)
    else:
        answer = JsonResponse(VerdictOut.model_validate(verdict_of(run)).model_dump(mode="json"))
    answer.headers["Vary"] = "Accept"
    return answer


_BYTES = {"type": "string", "format": "binary"}


@router.get(
    "/runs/{run_id}/export/{form}",
    response={404: ErrorOut, 409: ErrorOut},
    summary="A finished run in another tool's form",
    openapi_extra=answers(
        200,
        description="perfetto: Chrome trace JSON for ui.perfetto.dev; csv: a zip of tables; json: everything; "
        "junit: the verdict as JUnit XML.",
        content={JSON: {}, XML: {"type": "string"}, "application/zip": _BYTES},
        headers={"Content-Disposition": "A name to save it under."},
    ),
)
def run_export(request: HttpRequest, run_id: RunId, form: Literal["perfetto", "csv", "json", "junit"]) -> HttpResponse:
    """Made when asked for, as `looplane export` makes it. 409 while the run goes on, or if it has left no log."""
    assert form in FORMATS
    run = find_run(run_id, caller_of(request))
    if run.state != State.FINISHED:
        raise ApiError(409, "not_finished", f"Run {run.label} is {run.state}; it can be exported once it has ended.")
    try:
        export = export_run(run, form)
    except ExportFault as fault:
        raise ApiError(409, "no_export", f"Run {run.label} cannot be exported: {fault}") from None
    headers = {"Content-Disposition": f'attachment; filename="{run.label}-{export.name}"'}
    return HttpResponse(export.data, content_type=export.content_type, headers=headers)
