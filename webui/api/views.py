"""The API's manual as a page of the console."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_safe

from webui.accounts.callers import caller_of
from webui.api.api import api
from webui.api.errors import MEANINGS
from webui.api.manual import prose, sections, shapes


@require_safe
@login_required
def api_manual(request: HttpRequest) -> HttpResponse:
    """Every call with its fields, answers and a line for a shell; nothing is fetched from elsewhere."""
    if caller_of(request).user.one_time_password:
        return redirect("password")
    document = api.get_openapi_schema()
    context = {
        "section": "account",
        "part": "api",
        "sections": sections(document, f"{request.scheme}://{request.get_host()}"),
        "shapes": shapes(document),
        "refusals": {status: prose(words) for status, words in MEANINGS.items()},
    }
    return render(request, "api/manual.html", context)
