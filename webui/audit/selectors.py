"""What the audit log can be asked. For admins."""

from __future__ import annotations

from datetime import datetime

from django.db.models import Q, QuerySet

from webui.audit.models import Entry


def entry_list(
    *,
    deed: str = "",
    person: str = "",
    thing: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
) -> QuerySet[Entry]:
    """Entries, newest first; each filter that is given narrows. `before` is the id that the last page ended with."""
    entries = Entry.objects.order_by("-id")
    if deed:
        entries = entries.filter(Q(deed=deed) | Q(deed__startswith=f"{deed}."))
    if person:
        entries = entries.filter(Q(who=person) | Q(who__startswith=f"{person} ("))
    if thing:
        entries = entries.filter(thing__icontains=thing)
    if since is not None:
        entries = entries.filter(at__gte=since)
    if until is not None:
        entries = entries.filter(at__lte=until)
    if before is not None:
        entries = entries.filter(pk__lt=before)
    return entries
