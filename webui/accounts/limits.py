"""How often one person may do what is costly: a count for each minute, in the database that all web processes share.

A fixed window is enough: it is there to keep one script from slowing everybody else down, not to meter. What a person
may have at once (runs, minutes of a bench) is their quota and asked elsewhere.
"""

from __future__ import annotations

import time

from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import F
from django.http import HttpRequest

from webui.accounts.models import Take, User

WINDOW_S = 60

BY_ROUTE: dict[tuple[str, str], str] = {
    ("GET", "run-export"): "exports",
    ("POST", "experiment"): "runs",
    ("POST", "own"): "runs",
    ("POST", "login"): "sign-in",
    ("POST", "password"): "account",
    ("POST", "tokens"): "account",
}
"""What a page takes, by method and name of its address."""


class TooMany(Exception):
    """One more than a limit gives; tells when to come again."""

    def __init__(self, limit: str, a_minute: int, wait_s: int) -> None:
        self.limit = limit
        self.a_minute = a_minute
        self.wait_s = wait_s
        super().__init__(f"More than {a_minute} a minute ({limit}). Come again in {wait_s} s.")


def limit_take(*, limit: str, who: User | str | None) -> None:
    """Takes one of `settings.RATE_LIMITS[limit]`; raises TooMany. `who` is a person, or a stranger's address."""
    a_minute: int = settings.RATE_LIMITS[limit]
    if not a_minute:
        return
    name = f"user {who.pk}" if isinstance(who, User) else str(who)
    minute, second = divmod(int(time.time()), WINDOW_S)
    if _count(limit, name, minute) > a_minute:
        raise TooMany(limit, a_minute, WINDOW_S - second)


def limits_forget() -> None:
    """Counts of minutes that are over: of a person they go with the next one, an address may never come again."""
    Take.objects.filter(minute__lt=int(time.time()) // WINDOW_S - 1).delete()


def limits_of_api(request: HttpRequest) -> list[str]:
    """What a request to the API takes."""
    path = request.path.removesuffix("/")
    if request.method == "POST" and path.endswith("/api/v1/runs"):
        return ["api", "runs"]
    return ["api", "exports"] if "/export/" in path else ["api"]


def limit_of(request: HttpRequest) -> str | None:
    """What a page's request takes, if anything."""
    match = request.resolver_match
    if match is None:
        return None
    method = "GET" if request.method == "HEAD" else request.method or ""
    return BY_ROUTE.get((method, match.url_name or ""))


def _count(limit: str, who: str, minute: int) -> int:
    """Of the minute, with the one that is taken."""
    mine = Take.objects.filter(limit=limit, who=who, minute=minute)
    with transaction.atomic():
        if not mine.update(count=F("count") + 1):
            try:
                with transaction.atomic():
                    Take.objects.create(limit=limit, who=who, minute=minute)
            except IntegrityError:  # another process was first
                mine.update(count=F("count") + 1)
            else:
                Take.objects.filter(who=who, minute__lt=minute - 1).delete()
        return mine.values_list("count", flat=True).get()
