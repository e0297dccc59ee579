"""`/api/v1/runs`: make runs, list them, wait for them, change who sees them, end them."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated, Any, Literal

from asgiref.sync import sync_to_async
from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from ninja import Header, Query, Router, Status

from webui.accounts.callers import Caller, caller_of
from webui.accounts.roles import Right
from webui.api.asking import asked
from webui.api.authentication import require
from webui.api.description import answers, many
from webui.api.errors import ApiError
from webui.api.finding import RunId, Wait, find_run
from webui.api.listing import page_of
from webui.api.schemas import ErrorOut, Moment, RunChange, RunIn, RunLonger, RunOut, RunPage
from webui.api.shapes import whole
from webui.runs import selectors, services
from webui.runs.access import may_cancel, may_change
from webui.runs.facts import run_row
from webui.runs.models import Backend, Run, Visibility
from webui.runs.sharing import ShareFault, run_share, share_groups
from webui.runs.specs import SpecFault
from webui.runs.states import State
from webui.runs.tags import run_tag
from webui.runs.wishes import Wishes

router = Router(tags=["runs"])

POLL_S = 0.25

_LOCATION = {"Location": "Where the run is."}
_OF_RUN = (
    "run_get", "run_change", "run_cancel", "run_longer", "run_events", "run_verdict", "run_export", "run_artifacts",
)  # fmt: skip
_FOLLOWING = {name: {"run_id": "$response.body#/id"} for name in _OF_RUN}
Key = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        min_length=1,
        max_length=100,
        description="The same key with the same request brings back the same run.",
        examples=["build-4711"],
    ),
]


@router.post(
    "/runs",
    response={202: RunOut, 200: RunOut, 409: ErrorOut},
    summary="Queue a run",
    openapi_extra=many(
        answers(202, description="Queued.", headers=_LOCATION, links=_FOLLOWING),
        answers(200, description="Queued before by a request with this Idempotency-Key.", headers=_LOCATION),
    ),
)
def run_start(request: HttpRequest, response: HttpResponse, body: RunIn, idempotency_key: Key = None) -> Status[Any]:
    """202 and the new run; 200 and the same run as before if the Idempotency-Key has been seen with this request.

    409 if the key came with another request before; 422 if the experiment is wrong, with the place in `path`.
    """
    caller = caller_of(request)
    require(caller, Right.START)
    what = asked(body)
    try:
        run, created = services.run_start(
            owner=caller.user,
            spec=what.text,
            backend=Backend(body.on),
            overrides=what.overrides,
            experiment=what.name,
            idempotency_key=idempotency_key,
            wishes=_wishes(body, caller),
        )
    except SpecFault as fault:
        raise ApiError(422, "bad_spec", str(fault), path=fault.path) from None
    except services.KeyReused as fault:
        raise ApiError(409, "idempotency_key_reused", str(fault), path="Idempotency-Key") from None
    response.headers["Location"] = reverse("api:run", args=[run.pk])
    return Status(202 if created else 200, whole(find_run(run.pk, caller), caller))


def _wishes(body: RunIn, caller: Caller) -> Wishes:
    clone = None if body.clone_of is None else selectors.run_get(run_id=body.clone_of, caller=caller)
    if body.clone_of is not None and clone is None:
        raise ApiError(422, "unknown_run", f"There is no run {body.clone_of!r}.", path="clone_of")
    return Wishes(
        needs=tuple(body.needs),
        time_limit_s=body.time_limit_s,
        visibility=Visibility(body.visibility),
        groups=tuple(_groups(body.groups, caller.user.groups.all())),
        tags=tuple(body.tags),
        clone_of=clone,
    )


def _groups(names: list[str], allowed: QuerySet[Group]) -> list[Group]:
    """The groups of these names, of those that the caller may share with. Raises ApiError."""
    known = {group.name: group for group in allowed}
    for name in names:
        if name not in known:
            raise ApiError(422, "unknown_group", f"{name!r} is none of your groups.", path="groups")
    return [known[name] for name in dict.fromkeys(names)]


InState = Literal["", "active", "queued", "preparing", "running", "finalising", "finished"]


@router.get("/runs", response={200: RunPage}, summary="List runs, newest first")
def run_list(
    request: HttpRequest,
    state: Annotated[InState, Query(description="`active`: under way.")] = "",
    outcome: Annotated[Literal["", "passed", "failed", "errored", "cancelled", "lost"], Query()] = "",
    fidelity: Annotated[Literal["", "faithful", "degraded", "invalid"], Query()] = "",
    on: Annotated[Literal["", "sim", "mininet"], Query()] = "",
    experiment: Annotated[str, Query(max_length=120, description="Name of a shipped experiment.")] = "",
    tag: Annotated[str, Query(max_length=40)] = "",
    owner: Annotated[Literal["", "me"], Query(description="`me`: only the caller's own.")] = "",
    text: Annotated[str, Query(max_length=100, description="In question, experiment, id or tags.")] = "",
    created_after: Annotated[Moment | None, Query(description="At or after this moment.")] = None,
    created_before: Annotated[Moment | None, Query(description="Before this moment.")] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 25,
    cursor: Annotated[str, Query(max_length=200, description="`next` of the page before.")] = "",
) -> dict[str, Any]:
    """Every filter that is given narrows; only runs that the caller may read are listed.

    Runs that are made meanwhile never shift a page: the cursor is a place between rows, not a number of rows.
    """
    caller = caller_of(request)
    require(caller, Right.READ)
    for path, words in (("experiment", experiment), ("tag", tag), ("text", text)):
        if "\x00" in words:
            raise ApiError(422, "invalid", "A text without NUL characters.", path=path)
    runs = selectors.run_list(
        caller=caller,
        state=state,
        outcome=outcome,
        fidelity=fidelity,
        backend=on,
        experiment=experiment,
        tag=tag,
        owner=caller.user if owner else None,
        since=created_after,
        text=text,
    )
    if created_before is not None:
        runs = runs.filter(created_at__lt=created_before)
    rows, following = page_of(runs.defer("spec", "summary"), cursor=cursor, limit=limit)
    return {"runs": [run_row(run) for run in rows], "next": following}


@router.get("/runs/{run_id}", response={200: RunOut, 404: ErrorOut}, url_name="run", summary="One run")
async def run_get(request: HttpRequest, run_id: RunId, wait: Wait = 0) -> dict[str, Any]:
    """With `wait`, answers once the run is finished, or after that time; ask again until `state` is finished."""
    end = time.monotonic() + wait
    while True:
        run = await sync_to_async(find_run)(run_id, caller_of(request))
        if run.state == State.FINISHED or time.monotonic() >= end:
            return await sync_to_async(whole)(run, caller_of(request))
        await asyncio.sleep(POLL_S)


@router.post(
    "/runs/{run_id}/cancel",
    response={202: RunOut, 404: ErrorOut, 409: ErrorOut},
    summary="Ask a run to end",
    openapi_extra=answers(202, description="It will end; cleanup always runs."),
)
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
    return Status(202, whole(find_run(run.pk, caller), caller))


@router.patch("/runs/{run_id}", response={200: RunOut, 404: ErrorOut}, summary="Tag a run, or share it")
def run_change(request: HttpRequest, run_id: RunId, body: RunChange) -> dict[str, Any]:
    """Its owner or an admin. What is left out stays as it is; `tags` and `groups` replace what there was."""
    caller = caller_of(request)
    run = find_run(run_id, caller)
    if not may_change(caller, run):
        raise ApiError(403, "forbidden", "Only the run's owner or an admin may change it.")
    with transaction.atomic():
        if body.tags is not None:
            gone = [tag for tag in run.tags if tag not in body.tags]
            run_tag(caller=caller, run_ids=[run.pk], add=body.tags, remove=gone)
        if body.visibility is not None or body.groups is not None:
            _share(run, caller, body)
    return whole(find_run(run.pk, caller), caller)


def _share(run: Run, caller: Caller, body: RunChange) -> None:
    names = body.groups if body.groups is not None else list(run.groups.values_list("name", flat=True))
    groups = _groups(names, share_groups(caller=caller, run=run))
    visibility = body.visibility or run.visibility
    try:
        run_share(run=run, caller=caller, visibility=visibility, groups=[group.pk for group in groups])
    except ShareFault as fault:
        raise ApiError(
            422, "bad_sharing", str(fault), path="groups" if body.groups is not None else "visibility"
        ) from None


@router.post(
    "/runs/{run_id}/extend",
    response={200: RunOut, 404: ErrorOut, 409: ErrorOut},
    summary="Give a run more time",
)
def run_longer(request: HttpRequest, run_id: RunId, body: RunLonger) -> dict[str, Any]:
    """Moves `ends_by`, while it is under way. 409 before it has started and once it ends."""
    caller = caller_of(request)
    run = find_run(run_id, caller)
    services.run_extend(run_id=run.pk, minutes=body.minutes, by=caller)
    return whole(find_run(run.pk, caller), caller)
