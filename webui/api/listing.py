"""Pages of a list of runs: cut by a cursor, which is a place between rows and no number of them."""

from __future__ import annotations

from django.db.models import Q, QuerySet

from webui.api.cursors import BadCursor, Place, cursor_place, cursor_text
from webui.api.errors import ApiError
from webui.runs.models import Run


def page_of(runs: QuerySet[Run], *, cursor: str, limit: int) -> tuple[list[Run], str | None]:
    """Up to `limit` of `runs` (newest first) after `cursor`, and the cursor of what follows. Raises ApiError."""
    if cursor:
        try:
            place = cursor_place(cursor)
        except BadCursor as fault:
            raise ApiError(422, "bad_cursor", str(fault), path="cursor") from None
        later = Q(created_at__lt=place.moment) | Q(id__lt=place.run_id)
        runs = runs.filter(later, created_at__lte=place.moment)
    rows = list(runs[: limit + 1])
    if len(rows) <= limit:
        return rows, None
    last = rows[limit - 1]
    return rows[:limit], cursor_text(Place(last.created_at, last.pk))
