"""`/api/v1/runs/{id}/events`: the log of a run as NDJSON from a cursor on, as CI and scripts read it."""

from __future__ import annotations

import asyncio
import gzip
import json
import re
import time
from typing import Annotated

from asgiref.sync import sync_to_async
from django.http import HttpRequest, HttpResponse
from ninja import Query, Router

from testbed.events.log import BadCursor, Cursor, tail_bytes
from webui.accounts.callers import caller_of
from webui.api.description import answers
from webui.api.errors import ApiError
from webui.api.finding import RunId, Wait, find_run
from webui.api.schemas import ErrorOut
from webui.runs.folder import trial_folder
from webui.runs.states import State

router = Router(tags=["runs"])

NDJSON = "application/x-ndjson"
PAGE_BYTES = 4 << 20
POLL_S = 0.25
_GZIP = re.compile(r"(?:^|,)\s*(?:gzip|\*)\s*(?:;\s*q=(?!0(?:\.0*)?\s*(?:,|$))[\d.]+\s*)?(?:,|$)", re.IGNORECASE)
"""Accept-Encoding that allows gzip: named, or `*`, without `q=0`."""


@router.get(
    "/runs/{run_id}/events",
    summary="Events from a cursor on, as NDJSON",
    response={404: ErrorOut},
    openapi_extra=answers(
        200,
        description='One event a line, as in the run folder; the last line is `{"cursor", "end"}` instead. '
        "At most about 4 MiB of whole lines: ask again with the cursor until `end` is true.",
        content={NDJSON: {"type": "string"}},
        headers={
            "Looplane-Cursor": "Where to go on; the same as in the last line.",
            "Looplane-End": "`true` once the run is finished and nothing follows.",
            "Content-Encoding": "`gzip` where the request allows it.",
            "Vary": "Accept-Encoding.",
        },
    ),
)
async def run_events(
    request: HttpRequest,
    run_id: RunId,
    cursor: Annotated[
        str, Query(max_length=4000, description="From an earlier answer, unchanged; empty for the beginning.")
    ] = "",
    trial: Annotated[str, Query(max_length=100, description="Label of a trial, where a run has several.")] = "",
    wait: Wait = 0,
) -> HttpResponse:
    """Whole lines only, each exactly once: a reader that was cut off goes on from the last cursor that it has.

    Lines come file by file, one file a node, each in its own order; `(t, node, seq)` is the one order over all.
    """
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
    data = b"".join(lines for _, lines in found) + last
    headers = {"Looplane-Cursor": str(after), "Looplane-End": str(end).lower(), "Vary": "Accept-Encoding"}
    if _GZIP.search(request.headers.get("Accept-Encoding", "")):
        data = await asyncio.to_thread(gzip.compress, data, 1, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return HttpResponse(data, content_type=NDJSON, headers=headers)
