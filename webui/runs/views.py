"""Pages of runs: the list, the live page of one run, its files."""

from __future__ import annotations

from typing import Any, cast
from urllib.parse import urlencode

from django.contrib import messages
from django.db.models import QuerySet
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from webui.accounts.callers import caller_of
from webui.accounts.models import User
from webui.headers import REPORT_POLICY
from webui.runs import selectors, services
from webui.runs.access import may_cancel
from webui.runs.exports import FORMATS, ExportFault, export_run
from webui.runs.folder import download_path, downloads_of, plan_of, trial_folder, trials_of
from webui.runs.models import Backend, Run
from webui.runs.page import page_facts
from webui.runs.states import Outcome, State
from webui.runs.surroundings import surroundings_of

PAGE = 50
CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".toml": "text/plain; charset=utf-8",
    ".pcap": "application/vnd.tcpdump.pcap",
}


def _find(request: HttpRequest, run_id: str) -> Run:
    run = selectors.run_get(run_id=run_id, caller=caller_of(request))
    if run is None:
        raise Http404(run_id)
    return run


def _filters(request: HttpRequest) -> dict[str, str]:
    """The filters of the address; values that no list knows are dropped, not refused."""
    told = request.GET
    allowed = {
        "state": ["active", *State],
        "outcome": list(Outcome),
        "on": Backend.values,
        "mine": ["1"],
    }
    filters = {name: told.get(name, "") for name in allowed if told.get(name, "") in allowed[name]}
    filters["text"] = told.get("text", "").replace("\x00", "")[:100]
    return {name: value for name, value in filters.items() if value}


def _filtered(request: HttpRequest, filters: dict[str, str]) -> QuerySet[Run]:
    runs = selectors.run_list(
        caller=caller_of(request),
        state=filters.get("state", ""),
        outcome=filters.get("outcome", ""),
        backend=filters.get("on", ""),
        owner=cast(User, request.user) if filters.get("mine") else None,
        text=filters.get("text", ""),
    )
    return runs.defer("spec", "summary")


@require_safe
def run_list(request: HttpRequest) -> HttpResponse:
    """All runs, filtered and paged by the address."""
    filters = _filters(request)
    runs = _filtered(request, filters)
    before = selectors.run_get(run_id=request.GET.get("before", "")[:40], caller=caller_of(request))
    if before is not None:
        runs = selectors.run_list_before(runs=runs, run=before)
    page = list(runs[: PAGE + 1])
    context = {
        "section": "runs",
        "runs": page[:PAGE],
        "next": page[PAGE - 1].pk if len(page) > PAGE else None,
        "before": before,
        "filters": filters,
        "filtered": bool(filters),
        "query": urlencode(filters),
        "states": ["active", *State],
        "outcomes": list(Outcome),
        "backends": Backend.choices,
    }
    return render(request, "runs/list.html", context)


@require_safe
def run_table(request: HttpRequest) -> HttpResponse:
    """The newest rows of the list, for a page that refreshes itself."""
    filters = _filters(request)
    limit = request.GET.get("limit", "")
    rows = int(limit) if limit.isascii() and limit.isdecimal() and len(limit) < 4 else PAGE
    runs = _filtered(request, filters)[: max(1, min(rows, PAGE))]
    return render(request, "runs/table.html", {"runs": runs, "filtered": bool(filters)})


@require_safe
def run(request: HttpRequest, run_id: str) -> HttpResponse:
    """One run, live."""
    found = _find(request, run_id)
    if found.pk != run_id:
        return redirect("run", run_id=found.pk)
    trials = trials_of(found.pk)
    trial = request.GET.get("trial", "")
    if trial not in trials:
        trial = trials[0] if trials else ""
    plan = plan_of(trial_folder(found.pk, trial))
    context = {
        "section": "runs",
        "run": found,
        "trials": trials,
        "trial": trial,
        "plan": plan,
        "may_cancel": may_cancel(caller_of(request), found),
        "page": page_facts(found, trial, plan),
        "surroundings": surroundings_of(found.pk) if found.is_finished else [],
        **_files(found, trial),
    }
    return render(request, "runs/run.html", context)


@require_safe
def run_surroundings(request: HttpRequest, run_id: str) -> HttpResponse:
    """The host's part, neighbours and recovery, as a part of the page; fetched when the run ends."""
    return render(request, "runs/surroundings.html", {"surroundings": surroundings_of(_find(request, run_id).pk)})


@require_POST
def run_cancel(request: HttpRequest, run_id: str) -> HttpResponse:
    """Asks the run to end; the page shows how it does."""
    found = _find(request, run_id)
    caller = caller_of(request)
    if not may_cancel(caller, found):
        messages.warning(request, "Only the run's owner or an admin may cancel it.")
    elif found.is_finished:
        messages.info(request, f"The run had ended already: {found.outcome}.")
    else:
        services.run_cancel(run_id=found.pk, user=caller.user)
    return redirect("run", run_id=found.pk)


def _files(found: Run, trial: str) -> dict[str, Any]:
    return {"files": downloads_of(found.pk, trial), "exports": FORMATS if found.is_finished else {}}


@require_safe
def run_files(request: HttpRequest, run_id: str) -> HttpResponse:
    """The list of files, as a part of the page; fetched again when the run ends."""
    found = _find(request, run_id)
    trial = request.GET.get("trial", "")
    trial = trial if trial in trials_of(found.pk) else ""
    return render(request, "runs/files.html", {"run": found, "trial": trial, **_files(found, trial)})


@require_safe
def run_file(request: HttpRequest, run_id: str, name: str) -> HttpResponseBase:
    """One file of the run folder, of those that may be fetched."""
    found = _find(request, run_id)
    path = download_path(found.pk, name)
    if path is None:
        raise Http404(name)
    is_page = path.suffix == ".html"
    response = FileResponse(
        path.open("rb"),
        as_attachment=not is_page,
        filename=path.name if is_page else f"{found.label}-{path.name}",
        content_type=CONTENT_TYPES.get(path.suffix, "application/octet-stream"),
    )
    if is_page:
        response.headers["Content-Security-Policy"] = REPORT_POLICY
    return response


@require_safe
def run_export(request: HttpRequest, run_id: str, form: str) -> HttpResponse:
    """The run in another form, made when asked for."""
    found = _find(request, run_id)
    if form not in FORMATS:
        raise Http404(form)
    try:
        export = export_run(found, form)
    except ExportFault as fault:
        messages.warning(request, f"This run cannot be exported: {fault}")
        return redirect("run", run_id=found.pk)
    return HttpResponse(
        export.data,
        content_type=export.content_type,
        headers={"Content-Disposition": f'attachment; filename="{found.label}-{export.name}"'},
    )

