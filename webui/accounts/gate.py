"""Every page needs a log-in unless it says otherwise, and a one-time password opens only the page that replaces it.

The REST API has its own gate (tokens or session, `webui.api.authentication`), which answers in JSON.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.contrib.auth.middleware import LoginRequiredMiddleware
from django.http import HttpRequest, HttpResponseBase, HttpResponseRedirect
from django.urls import reverse

from webui.accounts.callers import by_session
from webui.audit.origin import origin_is

ALLOWED_BEFORE_CHOICE = frozenset({"password", "logout", "login"})


class AccountGate(LoginRequiredMiddleware):
    """Asks who it is, then whether they have chosen a password."""

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
        if answer is not None or not request.user.is_authenticated:
            return answer
        name = request.resolver_match.url_name if request.resolver_match else None
        origin_is(by_session(request.user))
        if request.user.one_time_password and name not in ALLOWED_BEFORE_CHOICE:
            return HttpResponseRedirect(reverse("password"))
        return None
