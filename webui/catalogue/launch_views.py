"""Pages that launch a run: a shipped experiment or a file of one's own, as fields or as TOML, its plan before that."""

from __future__ import annotations

from typing import Any, cast

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_http_methods, require_POST

from webui.accounts.callers import caller_of
from webui.accounts.models import User
from webui.accounts.roles import Right
from webui.benches.refusals import Refusal
from webui.catalogue import selectors
from webui.catalogue.commands import curl_line, remote_line, shell_line
from webui.catalogue.drafts import Draft, draft_of, override_lines
from webui.catalogue.forms import LONGEST_TEXT, LaunchForm
from webui.catalogue.preview import same_plans
from webui.catalogue.whatif import outlook_of_new, start_words
from webui.runs import selectors as run_selectors
from webui.runs import services
from webui.runs.models import Backend, Run, Visibility
from webui.runs.specs import SpecFault

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
FIELDS, TOML = "fields", "toml"


@require_http_methods(["GET", "POST"])
def experiment(request: HttpRequest, name: str) -> HttpResponse:
    """One shipped experiment and its launch form."""
    found = selectors.experiment_get(name=name)
    if found is None:
        raise Http404(name)
    page: dict[str, Any] = {"section": "experiments", "experiment": found, "own": False, "mode": FIELDS}
    if request.method == "GET":
        changed = override_lines(request.GET.get("overrides", ""))
        on = request.GET.get("on", "")
        on = on if on in Backend.values else Backend.SIM.value
        draft = draft_of(text=found.text, experiment=found.name, on=on, changed=changed)
        return _show(request, page, draft, _blank_form(request, on=on))
    return _act(request, page, found.text, found.name)


@require_http_methods(["GET", "POST"])
def own(request: HttpRequest) -> HttpResponse:
    """An experiment of one's own: a blank one, or a run's spec to be edited (`?from=RUN`)."""
    page: dict[str, Any] = {"section": "experiments", "experiment": None, "own": True, "mode": TOML}
    if request.method == "POST":
        text = request.POST.get("spec", "").replace("\r\n", "\n")
        page["cloned"] = _run(request, request.POST.get("from", ""))
        page["mode"] = FIELDS if request.POST.get("mode") == FIELDS else TOML
        return _act(request, page, text, "")
    text, changed, form = BLANK, [], _blank_form(request)
    if "from" in request.GET:
        run = _run(request, request.GET["from"])
        if run is None:
            raise Http404(request.GET["from"])
        page |= {"cloned": run, "mode": FIELDS}
        text, changed, form = run.spec, list(run.overrides), _form_like(request, run)
    draft = draft_of(text=text, on=str(form["on"].value()), changed=changed, with_fields=page["mode"] == FIELDS)
    return _show(request, page, draft, form)


@require_POST
def plan(request: HttpRequest) -> HttpResponse:
    """The plan of what the form says now, as a part of the page."""
    found = selectors.experiment_get(name=request.POST.get("experiment", ""))
    text = found.text if found else request.POST.get("spec", "").replace("\r\n", "\n")[:LONGEST_TEXT]
    draft = _posted_draft(request, text, found.name if found else "")
    form = LaunchForm(request.POST, user=cast(User, request.user))
    form.is_valid()
    return render(request, "catalogue/plan.html", _plan_context(request, draft, form))


def _run(request: HttpRequest, run_id: str) -> Run | None:
    return run_selectors.run_get(run_id=run_id[:40], caller=caller_of(request))


def _blank_form(request: HttpRequest, **initial: Any) -> LaunchForm:
    return LaunchForm(initial=initial, user=cast(User, request.user))


def _form_like(request: HttpRequest, run: Run) -> LaunchForm:
    """What was asked beside a run's spec, to be asked again."""
    return _blank_form(
        request,
        on=run.backend,
        tags=" ".join(run.tags),
        visibility=run.visibility if run.owner_id == request.user.pk else Visibility.PRIVATE,
        groups=list(run.groups.all()) if run.owner_id == request.user.pk else [],
        needs="" if run.backend == Backend.MININET else " ".join(run.needs),
        time_limit_min=run.time_limit_s / 60 if run.time_limit_s else None,
    )


def _posted_draft(request: HttpRequest, text: str, name: str) -> Draft:
    posted = request.POST
    on = posted.get("on", "")
    return draft_of(
        text=text,
        experiment=name,
        on=on if on in Backend.values else Backend.SIM.value,
        further=posted.get("overrides", "").replace("\r\n", "\n")[:20_000],
        posted=posted.dict(),
        with_fields=posted.get("mode") == FIELDS,
    )


def _act(request: HttpRequest, page: dict[str, Any], text: str, name: str) -> HttpResponse:
    """What a button of the form asks for."""
    form = LaunchForm(request.POST, user=cast(User, request.user))
    draft = _posted_draft(request, text[:LONGEST_TEXT], name)
    act = request.POST.get("do", "start")
    if act == "file":
        return _file(draft)
    if act == "toml":
        page |= {"experiment": None, "own": True, "mode": TOML}
        again = draft_of(text=draft.whole_text(), on=draft.on, with_fields=False)
        return _show(request, page, again, form)
    if act == "fields":
        page["mode"] = FIELDS
        again = draft_of(text=text, on=draft.on, changed=override_lines(draft.further))
        return _show(request, page, again, form)
    if not form.is_valid() or draft.all_faults or draft.spec is None:
        return _show(request, page, draft, form, status=422)
    if act == "check":
        return _show(request, {**page, "checked": True}, draft, form)
    return _start(request, page, draft, form)


def _start(request: HttpRequest, page: dict[str, Any], draft: Draft, form: LaunchForm) -> HttpResponse:
    caller = caller_of(request)
    if not caller.may(Right.START):
        draft.faults.append("Your role may look at runs, not start them; an admin can change that.")
        return _show(request, page, draft, form, status=403)
    if draft.is_open_ended:
        draft.faults.append("This experiment ends only when it is told to: start it with `looplane serve`.")
        return _show(request, page, draft, form, status=422)
    try:
        run, _ = services.run_start(
            owner=caller.user,
            spec=draft.text,
            backend=Backend(draft.on),
            overrides=draft.overrides,
            experiment=draft.experiment,
            wishes=form.wishes(clone_of=page.get("cloned")),
        )
    except SpecFault as fault:
        draft.faults += fault.lines
        return _show(request, page, draft, form, status=422)
    except Refusal as fault:
        field = {"time_limit_s": "time_limit_min"}.get(fault.path, fault.path)
        form.add_error(field if field in form.fields else None, str(fault))
        return _show(request, page, draft, form, status=fault.status)
    return redirect("run", run_id=run.pk)


def _file(draft: Draft) -> HttpResponse:
    name = draft.experiment.rpartition("/")[2] or "my-question"
    return HttpResponse(
        draft.whole_text(),
        content_type="application/toml; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}.toml"'},
    )


def _show(
    request: HttpRequest, page: dict[str, Any], draft: Draft, form: LaunchForm, status: int = 200
) -> HttpResponse:
    context = {
        **page,
        **_plan_context(request, draft, form),
        "form": form,
        "values": {name: form[name].value() for name in form.fields},
        "text": draft.text,
        "backends": Backend.choices,
        "visibilities": Visibility.choices,
        "my_groups": list(cast(User, request.user).groups.all()),
        "may_start": caller_of(request).may(Right.START),
    }
    return render(request, "catalogue/experiment.html", context, status=status)


def _plan_context(request: HttpRequest, draft: Draft, form: LaunchForm) -> dict[str, Any]:
    preview, facts = draft.preview, draft.facts
    told = form.cleaned_data if form.is_bound and hasattr(form, "cleaned_data") else {}
    tags, needs = told.get("tags") or [], told.get("needs") or []
    start = ""
    if preview is not None and facts is not None:
        wanted = [*needs, *(facts.needs if draft.on == Backend.MININET else ())]
        outlook = outlook_of_new(
            caller=caller_of(request), backend=draft.on, needs=wanted, expected_s=preview.expected_s
        )
        start = start_words(outlook, timezone.now())
    body: dict[str, Any] = {"on": draft.on}
    body |= {key: value for key, value in (("overrides", draft.overrides), ("tags", tags), ("needs", needs)) if value}
    address = f"{request.scheme}://{request.get_host()}/api/v1/runs"
    return {
        "draft": draft,
        "facts": facts,
        "preview": preview,
        "one_picture": preview is not None and same_plans(preview.systems),
        "start": start,
        "commands": [
            ("On this machine", shell_line(draft.experiment, draft.on, draft.overrides)),
            ("From another machine", remote_line(draft.experiment, draft.on, draft.overrides, tags, needs)),
            ("Over HTTP", curl_line(address, draft.experiment, body)),
        ],
    }
