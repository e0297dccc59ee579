"""Pages of sweeps. What is on the axes stands in the address."""

from __future__ import annotations

import msgspec
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from testbed.comparison.series import NoSweep, Sweep
from testbed.comparison.sides import RunRead
from webui.accounts.callers import caller_of
from webui.compare import selectors
from webui.compare.exports import table
from webui.compare.sweep_page import sweep_page
from webui.compare.views import FIRST_WAIT_S, attachment
from webui.runs.models import Run


@require_safe
def sweep(request: HttpRequest) -> HttpResponse:
    """One figure against one swept setting."""
    run, read = _read(request, FIRST_WAIT_S)
    try:
        found = _sweep(request, read)
    except NoSweep as fault:
        context = {"section": "compare", "run": run, "fault": str(fault), "systems": len(read.variants)}
        return render(request, "compare/no_sweep.html", context, status=422)
    complete = read.digest is not None or not read.summary
    return render(request, "compare/sweep.html", sweep_page(run, found, complete=complete))


@require_safe
def sweep_csv(request: HttpRequest) -> HttpResponse:
    """The points as a table, a row for each."""
    run, read = _read(request, selectors.WAIT_S)
    try:
        found = _sweep(request, read)
    except NoSweep as fault:
        return _refused(fault)
    head = [found.axis.path, "others", "system", found.metric, "lowest", "highest", "repeats", "values", "fidelity",
            "trial"]  # fmt: skip
    rows = [
        [point.x, panel.words, line.system, point.cell.value, point.cell.low, point.cell.high,
         len(point.cell.repeats), point.cell.count, point.verdict, point.trials[0]]
        for panel in found.panels
        for line in panel.lines
        for point in line.points
    ]  # fmt: skip
    return attachment(table(head, rows).encode(), "text/csv; charset=utf-8", f"sweep-{run.label}.csv")


@require_safe
def sweep_json(request: HttpRequest) -> HttpResponse:
    """The chart's data."""
    run, read = _read(request, selectors.WAIT_S)
    try:
        found = _sweep(request, read)
    except NoSweep as fault:
        return _refused(fault)
    data = msgspec.json.format(msgspec.json.encode(found), indent=1)
    return attachment(data, "application/json", f"sweep-{run.label}.json")


def _read(request: HttpRequest, wait_s: float) -> tuple[Run, RunRead]:
    found = selectors.compare_run(caller=caller_of(request), run_id=request.GET.get("run", ""), wait_s=wait_s)
    if found is None:
        raise Http404(request.GET.get("run", ""))
    return found


def _sweep(request: HttpRequest, read: RunRead) -> Sweep:
    return selectors.compare_sweep(read=read, x=request.GET.get("x", "")[:200], y=request.GET.get("y", "")[:200])


def _refused(fault: NoSweep) -> HttpResponse:
    return HttpResponse(f"{fault}\n", status=422, content_type="text/plain; charset=utf-8")
