"""Where the request under way comes from, for the audit log alone: no service has to hand addresses through."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass

from django.http import HttpRequest, HttpResponseBase

from webui.accounts.callers import Caller
from webui.accounts.models import User


@dataclass
class Origin:
    """A request's address, and the person once it is known."""

    address: str | None = None
    user: User | None = None
    who: str = ""


_present: ContextVar[Origin | None] = ContextVar("origin", default=None)


def present_origin() -> Origin:
    """Of the request under way; an empty one in workers and commands."""
    return _present.get() or Origin()


def origin_is(caller: Caller) -> None:
    """The gate or the API's authentication has found who it is."""
    origin = _present.get()
    if origin is not None:
        origin.user, origin.who = caller.user, caller.name


class RequestOrigin:
    """Remembers the address while the request is answered."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Answers the request."""
        mark = _present.set(Origin(address=request.META.get("REMOTE_ADDR") or None))
        try:
            return self.get_response(request)
        finally:
            _present.reset(mark)
