"""`/api/v1/runs`: make runs, follow them, end them, read their events."""

from __future__ import annotations

import asyncio
import json
import math
import time
from typing import Annotated, Any, Literal

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Header, Path, Query, Router, Status

from testbed.events.log import BadCursor, Cursor, tail_bytes
from webui.accounts.callers import Caller, caller_of
from webui.accounts.roles import Right
from webui.api.authentication import require
from webui.api.errors import ApiError
from webui.api.schemas import ErrorOut, RunIn, RunOut, RunPage
from webui.catalogue.selectors import experiment_get
from webui.runs import selectors, services
from webui.runs.access import may_cancel
from webui.runs.facts import run_facts
from webui.runs.folder import trial_folder
from webui.runs.models import Backend, Run
from webui.runs.specs import SpecFault
from webui.runs.states import State

router = Router(tags=["runs"])

REFUSALS = {400: ErrorOut, 401: ErrorOut, 403: ErrorOut, 404: ErrorOut, 409: ErrorOut, 422: ErrorOut}
NDJSON = "application/x-ndjson"
PAGE_BYTES = 4 << 20
POLL_S = 0.25

RunId = Annotated[str, Path(max_length=40, description="The run id, or its last six digits.")]
Wait = Annotated[float, Query(ge=0, le=30, description="Answer later, by up to so many seconds, if there is news.")]


def find_run(run_id: str, caller: Caller) -> Run:
    """The run, or a 404 in the shape, also for one that is not the caller's to read."""
    run = selectors.run_get(run_id=run_id, caller=caller)
    if run is None:
        raise ApiError(404, "not_found", f"There is no run {run_id[:40]!r}.")
    return run


def show(run: Run) -> dict[str, Any]:
    """A run with its summary, once it has one."""
    return {**run_facts(run), "summary": run.summary or None}


@router.post("/runs", response={202: RunOut, 200: RunOut, **REFUSALS}, summary="Queue a run")
def run_start(
    request: HttpRequest,
    response: HttpResponse,
    body: RunIn,
    idempotency_key: Annotated[str | None, Header(alias="Idempotency-Key", min_length=1, max_length=100)] = None,
) -> Status[dict[str, Any]]:
    """202 and the new run; 200 and the same run as before if the Idempotency-Key has been seen with this request."""
    caller = caller_of(request)
    require(caller, Right.START)
    spec, name = _spec_text(body)
    try:
        run, created = services.run_start(
            owner=caller.user,
            spec=spec,
            backend=Backend(body.on),
            overrides=override_texts(body.overrides),
            experiment=name,
            idempotency_key=idempotency_key,
        )
    except SpecFault as fault:
        raise ApiError(422, "bad_spec", str(fault), path=fault.path) from None
    except services.KeyReused as fault:
        raise ApiError(409, "idempotency_key_reused", str(fault), path="Idempotency-Key") from None
    response.headers["Location"] = reverse("api:run", args=[run.pk])
    return Status(202 if created else 200, show(run))


def _spec_text(body: RunIn) -> tuple[str, str]:
    if (body.spec is None) == (body.experiment is None):
        raise ApiError(422, "bad_request", "Send either `spec` or `experiment`, and not both.", path="spec")
    if body.spec is not None:
        return body.spec, ""
    experiment = experiment_get(name=body.experiment or "")
    if experiment is None:
        raise ApiError(
            422, "unknown_experiment", f"There is no experiment {body.experiment!r}.", path="experiment"
        )
    return experiment.text, experiment.name


def override_texts(overrides: dict[str, Any]) -> list[str]:
    """`key=value` as `--set` takes them; a value is written as TOML."""
    texts = []
    for key, value in overrides.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ApiError(422, "bad_request", "An override is a finite number.", path=f"overrides.{key}")
        texts.append(f"{key}={json.dumps(value, ensure_ascii=False)}")
    return texts


@router.get("/runs", response={200: RunPage, **REFUSALS}, summary="List runs, newest first")
def run_list(
    request: HttpRequest,
    state: Annotated[
        Literal["", "active", "queued", "preparing", "running", "finalising", "finished"], Query()
    ] = "",
    outcome: Annotated[Literal["", "passed", "failed", "errored", "cancelled", "lost"], Query()] = "",
    mine: Annotated[bool, Query(description="Only your own.")] = False,
    limit: Annotated[int, Query(ge=1, le=100)] = 25,
    before: Annotated[str, Query(max_length=40, description="A run id; only runs before it.")] = "",
) -> dict[str, Any]:
    """Filters narrow; follow `next` with `before` for more."""
    caller = caller_of(request)
    runs = selectors.run_list(caller=caller, state=state, outcome=outcome, owner=caller.user if mine else None)
    if before:
        runs = selectors.run_list_before(runs=runs, run=find_run(before, caller))
    page = list(runs[: limit + 1])
    return {
        "runs": [show(run) for run in page[:limit]],
        "next": page[limit - 1].pk if len(page) > limit else None,
    }


@router.get("/runs/{run_id}", response={200: RunOut, **REFUSALS}, url_name="run", summary="One run")
async def run_get(request: HttpRequest, run_id: RunId, wait: Wait = 0) -> dict[str, Any]:
    """With `wait`, answers once the run is finished, or after that time; ask again until `state` is finished."""
    end = time.monotonic() + wait
    while True:
        run = await sync_to_async(find_run)(run_id, caller_of(request))
        if run.state == State.FINISHED or time.monotonic() >= end:
            return await sync_to_async(show)(run)
        await asyncio.sleep(POLL_S)


@router.post("/runs/{run_id}/cancel", response={202: RunOut, **REFUSALS}, summary="Ask a run to end")
def run_cancel(request: HttpRequest, run_id: RunId) -> Status[dict[str, Any]]:
    """202: the run will end; cleanup always runs. Asking again is harmless. 409 if it has ended."""
    caller = caller_of(request)
    run = find_run(run_id, caller)
    require(caller, Right.START)
    if not may_cancel(caller, run):
        raise ApiError(403, "forbidden", "Only the run's owner or an admin may cancel it.")
    if run.state == State.FINISHED:
        raise ApiError(409, "already_finished", f"Run {run.label} has ended: {run.outcome}.")
    services.run_cancel(run_id=run.pk, user=caller.user)
    return Status(202, show(find_run(run.pk, caller)))


@router.get(
    "/runs/{run_id}/events",
    summary="Events from a cursor on, as NDJSON",
    openapi_extra={
        "responses": {
            "200": {
                "description": "One event a line, as in the run folder; a last line holds `cursor` and `end`.",
                "content": {NDJSON: {"schema": {"type": "string"}}},
                "headers": {"Looplane-Cursor": {"schema": {"type": "string"}, "description": "Where to go on."}},
            }
        }
    },
    response=REFUSALS,
)
async def run_events(
    request: HttpRequest,
    run_id: RunId,
    cursor: Annotated[str, Query(max_length=4000, description="From an earlier answer; empty for the beginning.")] = "",
    trial: Annotated[str, Query(max_length=100, description="Label of a trial, where a run has several.")] = "",
    wait: Wait = 0,
) -> HttpResponse:
    """At most 4 MiB of whole lines. `end` is true once the run is finished and nothing follows."""
    run = await sync_to_async(find_run)(run_id, caller_of(request))
    try:
        place = Cursor.parse(cursor)
        events = trial_folder(run.pk, trial) / "events"
    except BadCursor as fault:
        raise ApiError(422, "bad_cursor", str(fault), path="cursor") from None
    except ValueError as fault:
        raise ApiError(422, "bad_request", str(fault), path="trial") from None
    until = time.monotonic() + wait
    while True:
        finished = run.state == State.FINISHED  # asked before the read that has to see the last line
        found, after = await asyncio.to_thread(tail_bytes, events, place, PAGE_BYTES)
        if found or finished or time.monotonic() >= until:
            break
        await asyncio.sleep(POLL_S)
        run = await sync_to_async(find_run)(run_id, caller_of(request))
    end = finished and not found
    last = json.dumps({"cursor": str(after), "end": end}).encode() + b"\n"
    return HttpResponse(
        b"".join(lines for _, lines in found) + last,
        content_type=NDJSON,
        headers={"Looplane-Cursor": str(after), "Looplane-End": "true" if end else "false"},
    )
