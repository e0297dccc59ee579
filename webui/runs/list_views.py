"""Pages of the list of runs, and what can be done with several of them at once."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from webui.accounts.callers import Caller, caller_of
from webui.accounts.roles import Right
from webui.benches.models import Bench
from webui.catalogue.selectors import experiment_names
from webui.runs import selectors, services
from webui.runs.access import may_cancel
from webui.runs.listing import FIDELITIES, ORDERS, PERIODS, ROWS, Asked, read_address, run_page
from webui.runs.models import Backend
from webui.runs.states import Outcome, State
from webui.runs.tags import TagFault, read_tags, run_tag

CHOSEN_AT_ONCE = 50
COMPARED_AT_ONCE = 8
_OFTEN = ("state", "outcome", "sort")
_SELDOM = ("fidelity", "on", "time")


@require_safe
def run_list(request: HttpRequest) -> HttpResponse:
    """All runs, filtered, ordered and paged by the address."""
    asked, caller = read_address(request.GET.dict()), caller_of(request)
    page = run_page(caller=caller, asked=asked)
    context = {
        **_table(request, asked),
        "section": "runs",
        "runs": page.rows,
        "page": page,
        "choices": (_choices(asked, _OFTEN), _choices(asked, _SELDOM)),
        "more_used": bool(set(asked.filters) - {"text", "mine", *_OFTEN}),
        "benches": list(Bench.objects.values_list("name", flat=True)),
        "experiments": experiment_names(),
        "is_first": not page.newer,
    }
    return render(request, "runs/list.html", context)


@require_safe
def run_table(request: HttpRequest) -> HttpResponse:
    """The first rows of the list, for a page that refreshes itself."""
    asked = read_address(request.GET.dict())
    limit = request.GET.get("limit", "")
    rows = int(limit) if limit.isascii() and limit.isdecimal() and len(limit) < 4 else ROWS
    first = Asked(asked.filters)
    page = run_page(caller=caller_of(request), asked=first, rows=max(1, min(rows, ROWS)))
    context = {**_table(request, asked), "runs": page.rows}
    if limit:
        context["may_choose"] = False
    return render(request, "runs/table.html", context)


def _table(request: HttpRequest, asked: Asked) -> dict[str, Any]:
    return {"filters": asked.filters, "filtered": asked.narrows, "query": asked.query, "may_choose": True,
            "may_change_some": caller_of(request).may(Right.START)}  # fmt: skip


def _choices(asked: Asked, names: tuple[str, ...]) -> list[dict[str, Any]]:
    """Selects of the filter form: name, label, what is chosen, and what there is."""
    every = [
        ("state", "State", "any state", [("active", "under way"), *((one, one) for one in State)]),
        ("outcome", "Outcome", "any outcome", [(one, one) for one in Outcome]),
        ("fidelity", "Fidelity", "any fidelity", [(one, one) for one in FIDELITIES]),
        ("on", "Clock", "any clock", Backend.choices),
        ("time", "Started", "any time", [(name, words) for name, (_, words) in PERIODS.items()]),
        ("sort", "Order", ORDERS["newest"][2], [(n, told[2]) for n, told in ORDERS.items() if n != "newest"]),
    ]
    return [
        {"name": name, "label": label, "none": none, "chosen": asked.filters.get(name, ""), "options": options}
        for name, label, none, options in every
        if name in names
    ]


@require_POST
def run_chosen(request: HttpRequest) -> HttpResponse:
    """Does one thing with the runs that are ticked, and goes back to the list."""
    chosen = list(dict.fromkeys(request.POST.getlist("run")))[:CHOSEN_AT_ONCE]
    caller = caller_of(request)
    back = f"{reverse('runs')}?{read_address(_query_of(request)).query}".rstrip("?")
    if not chosen:
        messages.info(request, "Tick the runs first.")
        return redirect(back)
    act = request.POST.get("act")
    if act == "compare":
        return _compare(request, chosen, back)
    if act == "cancel":
        _cancel(request, caller, chosen)
    elif act in ("tag", "untag"):
        _tag(request, caller, chosen, adds=act == "tag")
    return redirect(back)


def _query_of(request: HttpRequest) -> dict[str, str]:
    return {
        name.removeprefix("back-"): value for name, value in request.POST.dict().items() if name.startswith("back-")
    }


def _compare(request: HttpRequest, chosen: list[str], back: str) -> HttpResponse:
    if not 2 <= len(chosen) <= COMPARED_AT_ONCE:
        messages.info(request, f"Tick two to {COMPARED_AT_ONCE} runs to compare them.")
        return redirect(back)
    return redirect(f"{reverse('compare')}?{urlencode([('run', one) for one in chosen])}")


def _cancel(request: HttpRequest, caller: Caller, chosen: list[str]) -> None:
    asked = others = 0
    for run_id in chosen:
        run = selectors.run_get(run_id=run_id, caller=caller)
        if run is None or run.is_finished:
            continue
        if not may_cancel(caller, run):
            others += 1
        elif services.run_cancel(run_id=run.pk, user=caller.user):
            asked += 1
    messages.success(request, f"{asked} run{'' if asked == 1 else 's'} asked to end; ended ones stay as they are.")
    if others:
        messages.warning(request, f"{others} of them belong{'s' if others == 1 else ''} to somebody else.")


def _tag(request: HttpRequest, caller: Caller, chosen: list[str], *, adds: bool) -> None:
    try:
        tags = read_tags(request.POST.get("tags", ""))
        if not tags:
            messages.info(request, "Type a tag first.")
            return
        done = {"add": tags} if adds else {"remove": tags}
        changed, refused = run_tag(caller=caller, run_ids=chosen, **done)
    except TagFault as fault:
        messages.warning(request, str(fault))
        return
    messages.success(request, f"Tags of {changed} run{'' if changed == 1 else 's'} changed.")
    if refused:
        messages.warning(request, f"{refused} of them belong{'s' if refused == 1 else ''} to somebody else.")
