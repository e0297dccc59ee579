"""The form that shares a run: a part that the run page fetches into its dialog, and a page of its own without it."""

from __future__ import annotations

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods

from webui.accounts.callers import caller_of
from webui.runs import selectors
from webui.runs.access import may_change
from webui.runs.models import Run, Visibility
from webui.runs.sharing import ShareFault, run_readers, run_share, share_groups


@require_http_methods(["GET", "POST"])
def run_share_form(request: HttpRequest, run_id: str) -> HttpResponse:
    """The form and who reads the run now, for those who may change it; for other readers a sentence."""
    caller = caller_of(request)
    run = selectors.run_get(run_id=run_id, caller=caller)
    if run is None:
        raise Http404(run_id)
    is_part = request.headers.get("HX-Request") == "true"
    fault, saved = "", False
    if request.method == "POST":
        told = request.POST.getlist("groups")
        numbers = [int(one) for one in told if one.isascii() and one.isdecimal() and len(one) < 19]
        try:
            run_share(run=run, caller=caller, visibility=request.POST.get("visibility", ""), groups=numbers)
            saved = True
        except ShareFault as refusal:
            fault = str(refusal)
    if saved and not is_part:
        messages.success(request, "It is set who may read this run.")
        return redirect("run", run_id=run.pk)
    context = {**_context(request, run), "fault": fault, "saved": saved}
    status = (403 if not context["may_share"] else 422) if fault else 200
    return render(request, "runs/share.html" if is_part else "runs/share_page.html", context, status=status)


def _context(request: HttpRequest, run: Run) -> dict[str, object]:
    caller = caller_of(request)
    may_share = may_change(caller, run)
    shared_with = set(run.groups.values_list("pk", flat=True))
    posted = request.method == "POST"
    groups = share_groups(caller=caller, run=run).order_by("name") if may_share else []
    ticked = set(request.POST.getlist("groups")) if posted else {str(number) for number in shared_with}
    return {
        "section": "runs",
        "run": run,
        "may_share": may_share,
        "choices": Visibility.choices,
        "visibility": request.POST.get("visibility") if posted else run.visibility,
        "group_boxes": [(group, str(group.pk) in ticked) for group in groups],
        "readers": run_readers(run=run) if may_share else [],  # groups and members of others are no one's business
    }
