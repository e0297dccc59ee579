"""Pages of runs: the live page of one run, its files."""

from __future__ import annotations

from typing import Any

from django.contrib import messages
from django.http import FileResponse, Http404, HttpRequest, HttpResponse, HttpResponseBase, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from webui.accounts.callers import caller_of
from webui.accounts.roles import Right
from webui.headers import REPORT_POLICY
from webui.runs import selectors, services
from webui.runs.access import may_cancel, may_change
from webui.runs.archive import archive
from webui.runs.evidence import evidence_of
from webui.runs.exports import FORMATS, ExportFault, export_run
from webui.runs.facts import queue_facts
from webui.runs.folder import (
    LONGEST_SUMMARY,
    download_path,
    downloads_of,
    folder_of,
    plan_of,
    read_json,
    trial_folder,
    trials_of,
)
from webui.runs.levels import ORDER
from webui.runs.logsearch import Place, Wanted, search_log, whole_log
from webui.runs.models import Run
from webui.runs.page import page_facts
from webui.runs.sending import in_pieces, together
from webui.runs.trials import system_rows, trial_rows

CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".jsonl": "application/x-ndjson",
    ".toml": "text/plain; charset=utf-8",
    ".pcap": "application/vnd.tcpdump.pcap",
    ".zip": "application/zip",
}


def _find(request: HttpRequest, run_id: str) -> Run:
    run = selectors.run_get(run_id=run_id, caller=caller_of(request))
    if run is None:
        raise Http404(run_id)
    return run


@require_safe
def run(request: HttpRequest, run_id: str) -> HttpResponse:
    """One run, live."""
    found = _find(request, run_id)
    if found.pk != run_id:
        return redirect("run", run_id=found.pk)
    caller = caller_of(request)
    trials = trials_of(found.pk)
    trial = _trial(request, trials) or (trials[0] if trials else "")
    plan = plan_of(trial_folder(found.pk, trial))
    summary = _summary(found)
    context = {
        "section": "runs",
        "run": found,
        **_trials(summary, trials, trial),
        "sweep_url": _sweep_url(found, summary),
        "may_cancel": may_cancel(caller, found),
        "may_change": may_change(caller, found),
        "may_start": caller.may(Right.START),
        "page": page_facts(found, trial, plan, caller),
        "evidence": evidence_of(summary),
        **_files(found, trial),
    }
    return render(request, "runs/run.html", context)


def _trials(summary: dict[str, Any], trials: list[str], trial: str) -> dict[str, Any]:
    rows = {"trial_rows": trial_rows(summary, trials), "system_rows": system_rows(summary) if trials else []}
    return {"trials": trials, "trial": trial, **rows}


@require_safe
def run_trials(request: HttpRequest, run_id: str) -> HttpResponse:
    """The trials and how each went, as a part of the page; fetched when the run ends."""
    found = _find(request, run_id)
    trials = trials_of(found.pk)
    context = _trials(_summary(found), trials, _trial(request, trials))
    return render(request, "runs/run/trials.html", context)


def _trial(request: HttpRequest, trials: list[str]) -> str:
    """The trial of the address, if the run has it."""
    trial = request.GET.get("trial", "")
    return trial if trial in trials else ""


def _summary(found: Run) -> dict[str, Any]:
    """The whole summary of a finished run; what the row has of it may be shortened."""
    if not found.is_finished:
        return {}
    return read_json(folder_of(found.pk) / "summary.json", limit=LONGEST_SUMMARY) or {}


def _sweep_url(found: Run, summary: dict[str, Any]) -> str:
    """The sweep's chart among the pages of comparisons; empty where nothing was swept."""
    trials = summary.get("trials")
    if not isinstance(trials, list) or not any(isinstance(row, dict) and row.get("point") for row in trials):
        return ""
    return f"{reverse('compare-sweep')}?run={found.pk}"


@require_safe
def run_evidence(request: HttpRequest, run_id: str) -> HttpResponse:
    """What the summary has beyond latencies, as a part of the page; fetched when the run ends."""
    return render(request, "runs/evidence.html", {"evidence": evidence_of(_summary(_find(request, run_id)))})


@require_safe
def run_log(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Lines of the whole log, newest first; with `download` every line that fits, in order, as it was written."""
    found = _find(request, run_id)
    events = trial_folder(found.pk, _trial(request, trials_of(found.pk))) / "events"
    told = request.GET
    level = told.get("level", "debug")
    wanted = Wanted(level if level in ORDER else "debug", told.get("node", "")[:100], told.get("text", "")[:100])
    if told.get("download"):
        lines = together(whole_log(events, wanted))
        return in_pieces(request, lines, content_type=CONTENT_TYPES[".jsonl"], filename=f"{found.label}-log.jsonl")
    try:
        before = Place.parse(told["before"]) if told.get("before") else None
    except ValueError as fault:
        return JsonResponse({"error": {"code": "bad_place", "message": f"before: {fault}."}}, status=400)
    lines_found = search_log(events, wanted, before=before)
    older = None if lines_found.older is None else str(lines_found.older)
    return JsonResponse({"events": lines_found.events, "older": older})


@require_safe
def run_archive(request: HttpRequest, run_id: str) -> HttpResponseBase:
    """Every file that may be fetched, as one zip."""
    found = _find(request, run_id)
    return in_pieces(request, archive(found.pk), content_type=CONTENT_TYPES[".zip"], filename=f"{found.pk}.zip")


@require_safe
def run_queue(request: HttpRequest, run_id: str) -> HttpResponse:
    """What a queued run waits for, for a page that asks now and then."""
    return JsonResponse(queue_facts(_find(request, run_id), caller_of(request)))


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
    trial = _trial(request, trials_of(found.pk))
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
