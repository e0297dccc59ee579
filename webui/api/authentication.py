"""Who calls the API: a bearer token (CI), or the session of a page (with the CSRF check that goes with cookies)."""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings
from django.http import HttpRequest
from ninja.security import HttpBearer
from ninja.security.apikey import APIKeyCookie

from webui.accounts import selectors, services
from webui.accounts.models import User


class Token(HttpBearer):
    """`Authorization: Bearer lp_…`."""

    def authenticate(self, request: HttpRequest, token: str) -> User | None:
        """The token's user, or None."""
        found = selectors.token_find(secret=token)
        if found is None:
            return None
        services.token_use(token=found)
        return found.user


class Session(APIKeyCookie):
    """The console's own session; unsafe methods need the CSRF token."""

    param_name = settings.SESSION_COOKIE_NAME

    def authenticate(self, request: HttpRequest, key: str | None) -> User | None:
        """The session's user, once a password of their own is chosen."""
        user = cast(Any, request.user)
        if user.is_authenticated and not user.one_time_password:
            return cast(User, user)
        return None
