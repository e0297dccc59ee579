"""Every page needs a sign-in unless it says otherwise, and a one-time password opens only the page that replaces it.

The REST API has its own gate (tokens or session, `webui.api.authentication`), which answers in JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseRedirect
from django.shortcuts import render
from django.urls import reverse

from webui.accounts.callers import by_session, caller_of
from webui.accounts.limits import TooMany, limit_of, limit_take
from webui.accounts.roles import Right
from webui.accounts.services import session_touch
from webui.audit.origin import origin_is

ALLOWED_BEFORE_CHOICE = frozenset({"password", "logout", "login"})
View = TypeVar("View", bound=Callable[..., HttpResponseBase])


class AccountGate(LoginRequiredMiddleware):
    """Asks who it is, whether they have chosen a password, and whether they come too often."""

    def process_view(
        self,
        request: HttpRequest,
        view_func: Callable[..., HttpResponseBase],
        view_args: tuple[Any, ...],
        view_kwargs: dict[str, Any],
    ) -> HttpResponseBase | None:
        """None lets the view run."""
        if request.path.startswith("/api/"):
            return None
        answer: HttpResponseBase | None = super().process_view(request, view_func, view_args, view_kwargs)
        if answer is not None:
            return answer
        limit = limit_of(request)
        if request.user.is_authenticated:
            origin_is(by_session(request.user))
            session_touch(session=request.session)
            name = request.resolver_match.url_name if request.resolver_match else None
            if request.user.one_time_password and name not in ALLOWED_BEFORE_CHOICE:
                return HttpResponseRedirect(reverse("password"))
        try:
            if limit is not None:
                limit_take(limit=limit, who=_who(request))
        except TooMany as fault:
            return too_many(request, fault)
        return None


def _who(request: HttpRequest) -> Any:
    return request.user if request.user.is_authenticated else request.META.get("REMOTE_ADDR")


def too_many(request: HttpRequest, fault: TooMany) -> HttpResponse:
    """429, as a page."""
    context = {"status": 429, "title": "Too many at once", "advice": str(fault)}
    response = render(request, "error.html", context, status=429)
    response.headers["Retry-After"] = str(fault.wait_s)
    return response


def needs(right: Right) -> Callable[[View], View]:
    """Decorates a page that only those with `right` may have; 403 for others, before anything is looked up."""

    def decorate(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not caller_of(request).may(right):
                raise PermissionDenied
            return view(request, *args, **kwargs)

        return guarded  # type: ignore[return-value]

    return decorate
