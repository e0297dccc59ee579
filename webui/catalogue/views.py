"""Pages of the catalogue: the questions, one question with its launch form, and an experiment of one's own."""

from __future__ import annotations

import shlex
from typing import Any, cast

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from webui.accounts.callers import caller_of
from webui.accounts.models import User
from webui.catalogue import selectors
from webui.catalogue.doctor import doctor_report
from webui.catalogue.forms import LaunchForm
from webui.runs import selectors as run_selectors
from webui.runs import services
from webui.runs.models import Backend
from webui.runs.specs import SpecFacts, SpecFault, read_spec

RECENT = 6

BLANK = """\
# An experiment asks one question. docs/guide/experiments.md explains every table.
name = "my-question"
title = "What I would like to know"
question = "What happens to the first token when requests arrive twice as fast?"

[systems.blink]
kind = "blink"

[workload]
requests = 32

[workload.arrivals]
kind = "poisson"
rate_per_s = 32
"""


@require_safe
def experiments(request: HttpRequest) -> HttpResponse:
    """Cards that ask a question and show their last answer; the doctor; recent runs."""
    found = selectors.experiment_list()
    groups = sorted({one.group for one in found})
    group = request.GET.get("group", "")
    shown = [one for one in found if not group or one.group == group]
    answers = run_selectors.run_last_answers(experiments=[one.name for one in shown], caller=caller_of(request))
    runs = run_selectors.run_list(caller=caller_of(request))
    context = {
        "section": "experiments",
        "cards": [{"experiment": one, "answer": answers.get(one.name)} for one in shown],
        "groups": [(name, sum(one.group == name for one in found)) for name in groups],
        "group": group,
        "count": len(found),
        "runs": runs.defer("spec", "summary")[:RECENT],
        "run_count": runs.count(),
    }
    return render(request, "catalogue/experiments.html", context)


@require_safe
def doctor(request: HttpRequest) -> HttpResponse:
    """The doctor's findings, as a part of a page; probing may take seconds."""
    report = doctor_report(fresh="fresh" in request.GET)
    return render(request, "catalogue/doctor.html", {"report": report})


@require_http_methods(["GET", "POST"])
def experiment(request: HttpRequest, name: str) -> HttpResponse:
    """One shipped experiment and its launch form."""
    found = selectors.experiment_get(name=name)
    if found is None:
        raise Http404(name)
    page = {"section": "experiments", "experiment": found, "facts": found.facts, "own": False, "text": found.text}
    if request.method == "GET":
        overrides = request.GET.get("overrides", "")
        return _show(request, page, LaunchForm(initial={"overrides": overrides}), [found.fault] if found.fault else [])
    return _launch(request, page, found.text, found.name)


@require_http_methods(["GET", "POST"])
def own(request: HttpRequest) -> HttpResponse:
    """An experiment of one's own: a blank one, or a run's spec to be edited (`?from=RUN`)."""
    page: dict[str, Any] = {"section": "experiments", "experiment": None, "facts": None, "own": True}
    if request.method == "POST":
        text = request.POST.get("spec", "").replace("\r\n", "\n")
        return _launch(request, {**page, "text": text}, text, "")
    text, overrides, on = BLANK, "", Backend.SIM.value
    if "from" in request.GET:
        run = run_selectors.run_get(run_id=request.GET["from"], caller=caller_of(request))
        if run is None:
            raise Http404(request.GET["from"])
        text, overrides, on = run.spec, "\n".join(run.overrides), run.backend
        page["cloned"] = run
    return _show(request, {**page, "text": text}, LaunchForm(initial={"overrides": overrides, "on": on}), [])


def _launch(request: HttpRequest, page: dict[str, Any], text: str, name: str) -> HttpResponse:
    form = LaunchForm(request.POST)
    if not form.is_valid():
        faults = [f"{field}: {error}" for field, errors in form.errors.items() for error in errors]
        return _show(request, page, form, faults, status=422)
    overrides = form.override_lines()
    try:
        if "check" in request.POST:
            facts = read_spec(text, overrides=overrides, where=name or "experiment")
            return _show(request, {**page, "facts": facts, "checked": True}, form, [])
        run, _ = services.run_start(
            owner=cast(User, request.user),
            spec=text,
            backend=Backend(form.cleaned_data["on"]),
            overrides=overrides,
            experiment=name,
        )
    except SpecFault as fault:
        return _show(request, page, form, fault.lines, status=422)
    return redirect("run", run_id=run.pk)


def _show(
    request: HttpRequest, page: dict[str, Any], form: LaunchForm, faults: list[str], status: int = 200
) -> HttpResponse:
    facts: SpecFacts | None = page["facts"]
    values = {name: form[name].value() for name in ("on", "overrides")}
    name = page["experiment"].name if page["experiment"] else None
    context = {
        **page,
        "values": values,
        "faults": faults,
        "backends": Backend.choices,
        "shell": shell_line(name, str(values["on"]), str(values["overrides"] or "")),
        "curl": curl_line(request, name, str(values["on"])),
        "is_open_ended": bool(facts and facts.is_open_ended),
    }
    return render(request, "catalogue/experiment.html", context, status=status)


def shell_line(name: str | None, on: str, overrides: str) -> str:
    """The same run from a shell."""
    words = ["./looplane", "run", f"fixtures/experiments/{name}.toml" if name else "my-question.toml", "--on", on]
    for line in overrides.splitlines():
        if line.strip() and not line.strip().startswith("#"):
            words += ["--set", shlex.quote(line.strip())]
    return " ".join(words)


def curl_line(request: HttpRequest, name: str | None, on: str) -> str:
    """The same run from CI."""
    address = f"{request.scheme}://{request.get_host()}/api/v1/runs"
    if name is None:
        body = f"jq -Rs '{{spec: ., on: \"{on}\"}}' my-question.toml | "
        return f'{body}curl -H "Authorization: Bearer $TOKEN" \\\n  --json @- {address}'
    body = f'{{"experiment": "{name}", "on": "{on}"}}'
    return f"curl -H \"Authorization: Bearer $TOKEN\" \\\n  --json '{body}' \\\n  {address}"
