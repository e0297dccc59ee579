"""`/api/v1/runs/{id}/artifacts`: the files of a run folder, with ETag and Range, streamed and never held in memory."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Generator
from typing import Annotated, Any, BinaryIO

from django.core.handlers.asgi import ASGIRequest
from django.http import HttpRequest, HttpResponseBase, StreamingHttpResponse
from django.http.response import HttpResponse
from django.utils.cache import get_conditional_response
from django.utils.http import http_date, parse_http_date_safe
from ninja import Path, Router, Schema

from webui.accounts.callers import caller_of
from webui.api.description import answers, many
from webui.api.errors import ApiError, error_response
from webui.api.finding import RunId, find_run
from webui.api.ranges import BOUNDARY, PARTS_END, Span, Unsatisfiable, content_range, part_head, spans_of
from webui.api.schemas import ErrorOut
from webui.headers import REPORT_POLICY
from webui.runs.folder import download_path, downloads_of, trials_of
from webui.runs.views import CONTENT_TYPES

router = Router(tags=["results"])

CHUNK = 256 * 1024
OTHER = "application/octet-stream"
_KINDS = {
    kind.partition(";")[0]: {} if kind == "application/json" else {"type": "string", "format": "binary"}
    for kind in (*CONTENT_TYPES.values(), OTHER)
}


class ArtifactOut(Schema):
    """A file that may be fetched."""

    name: str
    title: str
    size_bytes: int


class ArtifactsOut(Schema):
    """The files that are there now; a run that goes on gains more."""

    artifacts: list[ArtifactOut]


@router.get("/runs/{run_id}/artifacts", response={200: ArtifactsOut, 404: ErrorOut}, summary="Files of a run")
def run_artifacts(request: HttpRequest, run_id: RunId) -> dict[str, Any]:
    """Reports, captures, event logs, plans: of the run and of all its trials."""
    run = find_run(run_id, caller_of(request))
    found = {item.path: item for trial in ("", *trials_of(run.pk)) for item in downloads_of(run.pk, trial)}
    return {
        "artifacts": [
            {"name": item.path, "title": item.title, "size_bytes": item.size_bytes} for item in found.values()
        ]
    }


_HEADERS = {
    "ETag": "Strong; changes whenever the file does.",
    "Last-Modified": "When the file was last written.",
    "Accept-Ranges": "`bytes`.",
    "Content-Disposition": "A name to save it under.",
}


@router.api_operation(
    ["GET", "HEAD"],
    "/runs/{run_id}/artifacts/{path:name}",
    response={404: ErrorOut, 412: ErrorOut, 416: ErrorOut},
    summary="One file of a run",
    url_name="artifact",
    openapi_extra=many(
        answers(200, description="The file.", content=_KINDS, headers=_HEADERS),
        answers(
            206,
            description="The part that `Range` asks for; several as multipart/byteranges.",
            content={**_KINDS, "multipart/byteranges": {"type": "string", "format": "binary"}},
            headers={**_HEADERS, "Content-Range": "Which bytes of how many; in each part where there are several."},
        ),
        answers(304, description="Unchanged since the ETag or date that was sent.", headers={"ETag": "As before."}),
    ),
)
def run_artifact(
    request: HttpRequest, run_id: RunId, name: Annotated[str, Path(max_length=400, description="As listed.")]
) -> HttpResponseBase:
    """Takes `Range` (also several parts), `If-Range`, `If-None-Match`, `If-Match` and the dates of RFC 9110."""
    run = find_run(run_id, caller_of(request))
    path = download_path(run.pk, name)
    if path is None:
        raise ApiError(404, "not_found", f"Run {run.label} has no file {name[:80]!r} to be fetched.")
    try:
        file = path.open("rb")
    except OSError:
        raise ApiError(404, "not_found", f"Run {run.label} has no file {name[:80]!r} to be fetched.") from None
    facts = os.fstat(file.fileno())
    kind = CONTENT_TYPES.get(path.suffix, OTHER)
    etag = f'"{facts.st_size:x}-{facts.st_mtime_ns:x}"'
    changed = int(facts.st_mtime)
    headers = {
        "ETag": etag,
        "Last-Modified": http_date(changed),
        "Accept-Ranges": "bytes",
        "Content-Disposition": f'attachment; filename="{run.label}-{path.name}"',
    }
    if path.suffix == ".html":
        headers["Content-Security-Policy"] = REPORT_POLICY
    early = get_conditional_response(request, etag=etag, last_modified=changed)
    if early is not None:
        file.close()
        if early.status_code == 412:
            return error_response(412, "changed", "The file is not the one of the ETag or date that was sent.")
        early.headers["ETag"] = etag
        return early
    try:
        spans = _asked(request, facts.st_size, etag, changed)
    except Unsatisfiable:
        file.close()
        refusal = error_response(416, "bad_range", f"The file has {facts.st_size} bytes; Range names none of them.")
        refusal.headers["Content-Range"] = f"bytes */{facts.st_size}"
        return refusal
    return _answer(request, file, facts.st_size, spans, kind, headers)


def _asked(request: HttpRequest, size: int, etag: str, changed: int) -> list[Span]:
    """The spans to send; empty for the whole file, also where If-Range says that the client has another one."""
    header = request.headers.get("Range", "")
    if not header or request.method != "GET":
        return []
    condition = request.headers.get("If-Range", "").strip()
    if condition and condition != etag and parse_http_date_safe(condition) != changed:
        return []
    return spans_of(header, size)


def _answer(
    request: HttpRequest, file: BinaryIO, size: int, spans: list[Span], kind: str, headers: dict[str, str]
) -> HttpResponseBase:
    pieces: list[bytes | Span]
    if len(spans) > 1:
        pieces = [piece for span in spans for piece in (part_head(span, size, kind), span)] + [PARTS_END]
        kind = f"multipart/byteranges; boundary={BOUNDARY}"
    else:
        pieces = [*spans] or [Span(0, size)]
        if spans:
            headers["Content-Range"] = content_range(spans[0], size)
    headers["Content-Length"] = str(sum(len(p) if isinstance(p, bytes) else p.length for p in pieces))
    status = 206 if spans else 200
    if request.method == "HEAD":
        file.close()
        return HttpResponse(status=status, content_type=kind, headers=headers)
    sender = _later if isinstance(request, ASGIRequest) else _now
    return StreamingHttpResponse(sender(file, pieces), status=status, content_type=kind, headers=headers)


def _now(file: BinaryIO, pieces: list[bytes | Span]) -> Generator[bytes, None, None]:
    with file:
        for piece in pieces:
            if isinstance(piece, bytes):
                yield piece
                continue
            file.seek(piece.start)
            left = piece.length
            while left and (data := file.read(min(CHUNK, left))):
                left -= len(data)
                yield data


async def _later(file: BinaryIO, pieces: list[bytes | Span]) -> AsyncIterator[bytes]:
    """The same under ASGI, where Django would gather a plain iterator whole before it sends a byte."""
    source = _now(file, pieces)
    try:
        while (data := await asyncio.to_thread(next, source, None)) is not None:
            yield data
    finally:
        source.close()
        file.close()
