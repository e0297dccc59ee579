"""Who calls the API: a bearer token (CI), or the session of a page (with the CSRF check that goes with cookies)."""

from __future__ import annotations

from typing import Any, cast

from django.conf import settings
from django.http import HttpRequest
from ninja.errors import AuthenticationError
from ninja.security import HttpBearer
from ninja.security.apikey import APIKeyCookie

from webui.accounts import selectors, services
from webui.accounts.callers import Caller, by_session, by_token
from webui.accounts.limits import limit_take, limits_of_api
from webui.accounts.models import User
from webui.accounts.roles import BY_ROLE, Right, Role
from webui.api.errors import ApiError
from webui.audit.origin import origin_is


class Token(HttpBearer):
    """`Authorization: Bearer lp_…`."""

    def authenticate(self, request: HttpRequest, token: str) -> Caller:
        """The token's user with the rights that its scopes leave. Raises AuthenticationError for an unknown token: a
        session beside it is not asked, since its CSRF check would answer 403 in place of 401.
        """
        found = selectors.token_find(secret=token)
        if found is None:
            limit_take(limit="strangers", who=request.META.get("REMOTE_ADDR"))
            raise AuthenticationError
        services.token_use(token=found)
        return _admitted(request, by_token(found))


class Session(APIKeyCookie):
    """The console's own session; unsafe methods need the CSRF token."""

    param_name = settings.SESSION_COOKIE_NAME

    def _get_key(self, request: HttpRequest) -> str | None:
        """Without a session there is nothing for a CSRF token to protect: 401, as for every stranger."""
        return super()._get_key(request) if self.param_name in request.COOKIES else None

    def authenticate(self, request: HttpRequest, key: str | None) -> Caller | None:
        """The session's user, once a password of their own is chosen."""
        user = cast(Any, request.user)
        if user.is_authenticated and not user.one_time_password:
            return _admitted(request, by_session(cast(User, user)))
        return None


def _admitted(request: HttpRequest, caller: Caller) -> Caller:
    """Known from here on; raises TooMany for somebody who comes too often, or for something costly too often."""
    origin_is(caller)
    for limit in limits_of_api(request):
        limit_take(limit=limit, who=caller.user)
    return caller


def require(caller: Caller, right: Right) -> None:
    """Raises a 403 in the shape unless `right` is the caller's."""
    if not caller.may(right):
        narrowed = caller.token is not None and right in BY_ROLE[Role(caller.user.role)]
        why = "this token" if narrowed else f"the role {caller.user.role}"
        what = right.value.replace("_", " ")
        raise ApiError(403, "forbidden", f"This needs the right to {what}, which {why} does not give.")
