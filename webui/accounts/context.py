"""What every template may ask of the caller, so that a page offers nobody what the server would refuse them."""

from __future__ import annotations

from django.http import HttpRequest

from webui.accounts.callers import caller_of
from webui.accounts.roles import Right


def may(request: HttpRequest) -> dict[str, dict[str, bool]]:
    """`may.start`, `may.lease`, `may.administer`, …: each Right by its value; all false for a stranger."""
    user = getattr(request, "user", None)
    rights = caller_of(request).rights if user is not None and user.is_authenticated else frozenset[Right]()
    return {"may": {right.value: right in rights for right in Right}}
