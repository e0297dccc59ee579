"""The audit log as a page and as CSV; admins only."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from urllib.parse import urlencode

from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from webui.accounts.gate import needs
from webui.accounts.roles import Right
from webui.audit import selectors
from webui.audit.deeds import Deed
from webui.audit.models import Entry

PAGE = 100
CSV_ROWS = 100_000
"""The newest so many; narrow by time for older ones."""
COLUMNS = ("at", "who", "address", "deed", "thing", "detail")


def _filters(request: HttpRequest) -> dict[str, str]:
    """The filters of the address; what no deed or time is, is dropped and not refused."""
    told = {name: request.GET.get(name, "").replace("\x00", "")[:150] for name in ("person", "thing")}
    deed = request.GET.get("deed", "")
    told["deed"] = deed if deed in {*Deed, *kinds()} else ""
    for name in ("since", "until"):
        text = request.GET.get(name, "")
        told[name] = text if _moment(text) else ""
    return {name: value for name, value in told.items() if value}


def kinds() -> list[str]:
    """What deeds are about: the first words of them."""
    return sorted({deed.partition(".")[0] for deed in Deed})


def _moment(text: str) -> datetime | None:
    """Of `2026-11-30T16:05`, in UTC."""
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _asked(filters: dict[str, str], *, before: int | None = None) -> QuerySet[Entry]:
    return selectors.entry_list(
        deed=filters.get("deed", ""),
        person=filters.get("person", ""),
        thing=filters.get("thing", ""),
        since=_moment(filters.get("since", "")),
        until=_moment(filters.get("until", "")),
        before=before,
    )


@needs(Right.ADMINISTER)
@require_safe
def audit_log(request: HttpRequest) -> HttpResponse:
    """Filtered and paged by the address."""
    filters = _filters(request)
    before = request.GET.get("before", "")
    last = int(before) if before.isascii() and before.isdecimal() and len(before) < 16 else None
    entries = list(_asked(filters, before=last)[: PAGE + 1])
    context = {
        "section": "account",
        "part": "audit",
        "entries": [(entry, detail_words(entry)) for entry in entries[:PAGE]],
        "next": entries[PAGE - 1].pk if len(entries) > PAGE else None,
        "is_first": last is None,
        "filters": filters,
        "query": urlencode(filters),
        "deeds": list(Deed),
        "kinds": kinds(),
    }
    return render(request, "audit/log.html", context)


@needs(Right.ADMINISTER)
@require_safe
def audit_csv(request: HttpRequest) -> HttpResponse:
    """The same, as a file."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(COLUMNS)
    for entry in _asked(_filters(request))[:CSV_ROWS].iterator():
        writer.writerow([_cell(value) for value in _row(entry)])
    headers = {"Content-Disposition": 'attachment; filename="audit.csv"'}
    return HttpResponse(out.getvalue(), content_type="text/csv; charset=utf-8", headers=headers)


def detail_words(entry: Entry) -> str:
    """What else is known of a deed, for people."""
    told = []
    for name, value in entry.detail.items():
        words = ", ".join(map(str, value)) if isinstance(value, list) else "" if value is None else str(value)
        if words:
            told.append(f"{name.replace('_', ' ')} {words}")
    return " · ".join(told)


def _row(entry: Entry) -> list[str]:
    detail = json.dumps(entry.detail, ensure_ascii=False) if entry.detail else ""
    return [entry.at.isoformat(), entry.who, entry.address or "", entry.deed, entry.thing, detail]


def _cell(text: str) -> str:
    """A name that begins like a formula is text for a spreadsheet too."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text
