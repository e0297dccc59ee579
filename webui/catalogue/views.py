"""Pages of the catalogue: the questions with their last answers, and what the doctor says."""

from __future__ import annotations

from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webui.accounts.callers import caller_of
from webui.catalogue import selectors
from webui.catalogue.answers import last_answers
from webui.catalogue.doctor import doctor_report
from webui.catalogue.subjects import SUBJECTS
from webui.runs import selectors as run_selectors
from webui.runs.listing import Asked, run_page
from webui.runs.models import Run
from webui.runs.states import State

RECENT = 6
HERE = "here-now"
"""The filter that is no folder's name."""


@require_safe
def experiments(request: HttpRequest) -> HttpResponse:
    """Cards that ask a question and show their last answer, those that are asked for; the doctor; recent runs."""
    caller = caller_of(request)
    found = selectors.experiment_list()
    offers = selectors.offers_now()
    here = [one for one in found if selectors.runs_here(one, offers)]
    group, subject, text = (request.GET.get(name, "")[:80] for name in ("group", "subject", "text"))
    of_group = here if group == HERE else [one for one in found if not group or one.group == group]
    chosen = [one for one in of_group if (not subject or subject in one.subjects) and one.says(text)]
    answers = last_answers(caller=caller, experiments=[one.name for one in chosen])
    context = {
        "section": "experiments",
        "cards": [{"experiment": one, "told": answers.get(one.name)} for one in chosen],
        "groups": [(name, sum(one.group == name for one in found)) for name in sorted({one.group for one in found})],
        "group": group,
        "subject": subject,
        "subjects": [(one, sum(one.slug in card.subjects for card in of_group)) for one in SUBJECTS],
        "text": text,
        "kept": urlencode({name: value for name, value in (("subject", subject), ("text", text)) if value}),
        "here": HERE,
        "here_count": len(here),
        "benches": selectors.bench_rows(caller=caller),
        "queued": Run.objects.filter(state=State.QUEUED).count(),
        "count": len(found),
        "runs": run_page(caller=caller, asked=Asked(), rows=RECENT).rows,
        "run_count": run_selectors.run_list(caller=caller).count(),
    }
    return render(request, "catalogue/experiments.html", context)


@require_safe
def doctor(request: HttpRequest) -> HttpResponse:
    """The doctor's findings, as a part of a page; probing may take seconds."""
    report = doctor_report(fresh="fresh" in request.GET)
    return render(request, "catalogue/doctor.html", {"report": report, "brief": "brief" in request.GET})
