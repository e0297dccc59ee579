"""Pages of benches: all of them with the queue, one with its leases and what it can do; and more time for a run."""

from __future__ import annotations

from collections.abc import Callable

from django import forms
from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_POST, require_safe

from webui.accounts.callers import caller_of
from webui.accounts.roles import Right
from webui.benches import leases, selectors, services
from webui.benches.forms import LeaseForm, MinutesForm, TagsForm
from webui.benches.models import Bench, Lease
from webui.benches.quotas import limits_for
from webui.benches.refusals import NotYours, Refusal, Taken
from webui.runs.selectors import run_get
from webui.runs.services import run_extend as extend

MINUTES = (15, 30, 60, 120, 240)
"""What the forms offer."""


def _find(name: str) -> Bench:
    bench = selectors.bench_get(name=name)
    if bench is None:
        raise Http404(name)
    return bench


@require_safe
def benches(request: HttpRequest) -> HttpResponse:
    """All benches and the queue; `?now` is the part of the page that refreshes itself."""
    caller = caller_of(request)
    context = {
        "section": "benches",
        "cards": selectors.bench_list(caller=caller),
        "queue": selectors.queue_list(caller=caller),
    }
    return render(request, "benches/now.html" if "now" in request.GET else "benches/list.html", context)


@require_safe
def bench(request: HttpRequest, name: str) -> HttpResponse:
    """One bench; `?now` is the part that refreshes itself."""
    caller = caller_of(request)
    found = _find(name)
    [card] = selectors.bench_cards(benches=[found], caller=caller)
    context = {
        "section": "benches",
        "card": card,
        "queue": selectors.queue_list(caller=caller, bench=found),
    }
    if "now" in request.GET:
        return render(request, "benches/bench_now.html", context)
    most = limits_for(caller.user.pk).lease_minutes
    context |= {
        "turns": selectors.turn_list(bench=found, caller=caller),
        "minutes": [value for value in MINUTES if value <= most] or [most],
        "most": most,
        "tags_form": TagsForm(initial={"tags": " ".join(found.tags)}),
        "own_tags": found.facts.get("tags", []),
    }
    return render(request, "benches/bench.html", context)


@require_POST
def lease_take(request: HttpRequest, name: str) -> HttpResponse:
    """The bench is the caller's for a while."""
    found = _find(name)

    def take(form: forms.Form) -> str:
        told = form.cleaned_data
        lease = leases.lease_take(bench=found, by=caller_of(request), minutes=told["minutes"], purpose=told["purpose"])
        return f"Bench {found.pk} is yours until {lease.ends_at:%H:%M} UTC."

    return _do(request, "bench", found.pk, take, LeaseForm(request.POST))


@require_POST
def lease_extend(request: HttpRequest, name: str) -> HttpResponse:
    """Later than it was to end."""

    def more(form: forms.Form) -> str:
        lease = leases.lease_extend(
            lease=_open_lease(name), by=caller_of(request), minutes=form.cleaned_data["minutes"]
        )
        return f"Bench {name} is yours until {lease.ends_at:%H:%M} UTC."

    return _do(request, "bench", _find(name).pk, more, MinutesForm(request.POST))


@require_POST
def lease_release(request: HttpRequest, name: str) -> HttpResponse:
    """Gives the bench back."""

    def release(_: forms.Form) -> str:
        leases.lease_release(lease=_open_lease(name), by=caller_of(request))
        return f"Bench {name} is free for everybody. What runs there goes on to its end."

    return _do(request, "bench", _find(name).pk, release, forms.Form(request.POST))


def _open_lease(name: str) -> Lease:
    lease = selectors.lease_open(bench=name)
    if lease is None:
        raise Taken("The lease has ended.")
    return lease


@require_POST
def bench_change(request: HttpRequest, name: str) -> HttpResponse:
    """What an admin may do: open, close, tag, forget."""
    found, caller = _find(name), caller_of(request)

    def change(form: forms.Form) -> str:
        what = request.POST.get("do", "")
        if what == "close":
            services.bench_close(bench=found, by=caller)
            return f"Bench {name} takes no new runs. Those under way end."
        if what == "open":
            services.bench_open(bench=found, by=caller)
            return f"Bench {name} takes runs again."
        if what == "forget":
            services.bench_forget(bench=found, by=caller)
            return f"Bench {name} is removed. It comes back if its worker reports again."
        services.bench_tag(bench=found, tags=form.cleaned_data["tags"].split(), by=caller)
        return f"The tags of bench {name} are set."

    forgotten = request.POST.get("do") == "forget" and caller.may(Right.ADMINISTER)
    answer = _do(request, "bench", found.pk, change, TagsForm(request.POST))
    return redirect("benches") if forgotten and selectors.bench_get(name=name) is None else answer


@require_POST
def run_extend(request: HttpRequest, run_id: str) -> HttpResponse:
    """More time for a run under way."""
    found = run_get(run_id=run_id, caller=caller_of(request))
    if found is None:
        raise Http404(run_id)

    def more(form: forms.Form) -> str:
        run = extend(run_id=found.pk, minutes=form.cleaned_data["minutes"], by=caller_of(request))
        return f"The run may go on until {run.ends_by:%H:%M:%S} UTC."

    return _do(request, "run", found.pk, more, MinutesForm(request.POST))


def _do(
    request: HttpRequest, page: str, name: str, deed: Callable[[forms.Form], str], form: forms.Form
) -> HttpResponse:
    """Carries out what a form asks for and goes back to the page, which says how it went."""
    if not form.is_valid():
        for field, errors in form.errors.items():
            messages.error(request, f"{field}: {' '.join(str(error) for error in errors)}")
        return redirect(page, name)
    try:
        messages.success(request, deed(form))
    except NotYours as refusal:
        raise PermissionDenied(str(refusal)) from None
    except Refusal as refusal:
        messages.error(request, str(refusal))
    return redirect(page, name)
