"""Pages of comparisons. Everything that is shown follows from the address, so every view of it can be passed on."""

from __future__ import annotations

from typing import Any

import msgspec
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webui.accounts.callers import caller_of
from webui.compare import selectors
from webui.compare.exports import diff_csv
from webui.compare.lanes import lanes_of
from webui.compare.page import compare_page
from webui.compare.picker import picker
from webui.compare.selectors import Compared, NoSuchRun, NotComparable

FIRST_WAIT_S = 2.5
"""How long a page waits for a digest that is being made before it says so, in seconds."""
_MOST_TOLD = 12
"""Sides that an address may name before it is refused unread."""


def _told(request: HttpRequest) -> list[str]:
    return [text.replace("\x00", "")[:300] for text in request.GET.getlist("run")[:_MOST_TOLD] if text.strip()]


def _sides(request: HttpRequest, wait_s: float) -> list[Compared]:
    """Raises Http404 for a run that is not the caller's to read, NotComparable for what cannot be."""
    try:
        return selectors.compare_sides(caller=caller_of(request), told=_told(request), wait_s=wait_s)
    except NoSuchRun as fault:
        raise Http404(str(fault)) from fault


@require_safe
def compare(request: HttpRequest) -> HttpResponse:
    """Two to six sides; with fewer, or on request, a list to pick from."""
    told = _told(request)
    if not told or request.GET.get("pick"):
        return render(request, "compare/pick.html", picker(request, told))
    try:
        sides = _sides(request, FIRST_WAIT_S)
    except NotComparable as fault:
        return render(request, "compare/pick.html", {**picker(request, []), "fault": str(fault)}, status=422)
    if len(sides) < 2:
        return render(request, "compare/pick.html", picker(request, told))
    diff = selectors.compare_diff(sides=sides)
    every = request.GET.get("all") == "1"
    return render(request, "compare/compare.html", {"section": "compare", **compare_page(sides, diff, every=every)})


@require_safe
def compare_lanes(request: HttpRequest) -> HttpResponse:
    """The first requests of each side, as the timeline draws them: JSON."""
    try:
        sides = _sides(request, selectors.WAIT_S)
    except NotComparable as fault:
        return _refused(fault)
    return HttpResponse(msgspec.json.encode(lanes_of(sides)), content_type="application/json")


@require_safe
def compare_csv(request: HttpRequest) -> HttpResponse:
    """The comparison as a table."""
    return _export(request, "csv")


@require_safe
def compare_json(request: HttpRequest) -> HttpResponse:
    """The comparison as the API gives it."""
    return _export(request, "json")


def _export(request: HttpRequest, form: str) -> HttpResponse:
    try:
        sides = _sides(request, selectors.WAIT_S)
        if len(sides) < 2:
            raise NotComparable("a comparison takes two sides: run=ID&run=ID, or run=ID of a run with several systems")
    except NotComparable as fault:
        return _refused(fault)
    diff = selectors.compare_diff(sides=sides)
    name = "-".join(dict.fromkeys(one.run.label for one in sides))
    if form == "csv":
        return attachment(diff_csv(diff).encode(), "text/csv; charset=utf-8", f"compare-{name}.csv")
    data = msgspec.json.format(msgspec.json.encode(diff), indent=1)
    return attachment(data, "application/json", f"compare-{name}.json")


def attachment(data: bytes, content_type: str, name: str) -> HttpResponse:
    """A file to keep."""
    headers: dict[str, Any] = {"Content-Disposition": f'attachment; filename="{name}"'}
    return HttpResponse(data, content_type=content_type, headers=headers)


def _refused(fault: NotComparable) -> HttpResponse:
    return HttpResponse(f"{fault}\n", status=422, content_type="text/plain; charset=utf-8")
