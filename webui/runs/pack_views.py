"""A run's packed timeline, and the events of one request: what the run page's script fetches.

`pack` answers 200 with the file (ETag, Range), 202 with `{"share": …}` while it is made, 204 where the page is to
read the live stream: a run that goes on, a short one, one whose log cannot be packed.
"""

from __future__ import annotations

import re
from pathlib import Path

from django.http import Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.utils.cache import get_conditional_response
from django.views.decorators.http import require_safe

from webui.accounts.callers import caller_of
from webui.api.ranges import Unsatisfiable, spans_of
from webui.runs.models import Run
from webui.runs.packs import pack_make, pack_path
from webui.runs.selectors import run_get
from webui.runs.stories import LONGEST_NAME, story_of

_NUMBER = re.compile(r"\d{1,15}", re.ASCII)


def _find(request: HttpRequest, run_id: str) -> tuple[Run, str]:
    run = run_get(run_id=run_id, caller=caller_of(request))
    if run is None:
        raise Http404(run_id)
    return run, request.GET.get("trial", "")


@require_safe
def run_pack(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """The packed timeline of a trial, or how far it is, or that there is none."""
    run, trial = _find(request, run_id)
    try:
        path = pack_path(run.pk, trial) if run.is_finished else None
    except ValueError as fault:
        raise Http404(trial) from fault
    if path is None:
        return HttpResponse(status=204)
    if not path.exists():
        making = pack_make(path, run.pk, trial)
        return HttpResponse(status=204) if making.fault else JsonResponse({"share": making.share}, status=202)
    return _file(request, path)


def _file(request: HttpRequest, path: Path) -> HttpResponse:
    facts = path.stat()
    etag = f'"{path.stem}-{facts.st_mtime_ns:x}"'
    same = get_conditional_response(request, etag=etag)
    if same is not None:
        return same
    try:
        spans = spans_of(request.headers.get("Range", ""), facts.st_size)
    except Unsatisfiable:
        return HttpResponse(status=416, headers={"Content-Range": f"bytes */{facts.st_size}"})
    response = HttpResponse(content_type="application/octet-stream", headers={"ETag": etag, "Accept-Ranges": "bytes"})
    response.headers["Cache-Control"] = "private, no-cache"  # kept, and asked for again by its ETag
    # Of several parts the first is sent, which RFC 9110 allows: nothing here asks for more.
    start, end = spans[0] if spans else (0, facts.st_size)
    if spans:
        response.status_code = 206
        response.headers["Content-Range"] = f"bytes {start}-{end - 1}/{facts.st_size}"
    with path.open("rb") as file:
        file.seek(start)
        response.content = file.read(end - start)
    return response


@require_safe
def run_story(request: HttpRequest, run_id: str) -> HttpResponse:
    """The events of one request as NDJSON, by the server's number, the client's name, or both."""
    run, trial = _find(request, run_id)
    number, name = request.GET.get("request", ""), request.GET.get("name", "")[:LONGEST_NAME]
    if number and not _NUMBER.fullmatch(number):
        return HttpResponse(f"request: {number[:40]!r} is no number\n", status=400, content_type="text/plain")
    try:
        lines = story_of(run.pk, trial, request=int(number) if number else None, name=name)
    except ValueError as fault:
        raise Http404(trial) from fault
    return HttpResponse(lines, content_type="application/x-ndjson")
