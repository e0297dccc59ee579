"""Whoever asks, as every view, API operation and socket sees them: a person, and what they may do right now."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from django.http import HttpRequest

from webui.accounts.models import ApiToken, User
from webui.accounts.roles import Right, Role, Scope, rights


@dataclass(frozen=True)
class Caller:
    """A person with the rights of the way they came: a session has all of their role, a token what its scopes leave."""

    user: User
    rights: frozenset[Right]
    token: ApiToken | None = None

    def may(self, right: Right) -> bool:
        """Whether `right` is theirs here and now."""
        return right in self.rights

    @property
    def name(self) -> str:
        """As the audit log writes it."""
        return self.user.username if self.token is None else f"{self.user.username} ({self.token.start}…)"


def by_session(user: User) -> Caller:
    """The caller behind a page or a socket."""
    return Caller(user, rights(Role(user.role)))


def by_token(token: ApiToken) -> Caller:
    """The caller behind a bearer token."""
    return Caller(token.user, rights(Role(token.user.role), [Scope(scope) for scope in token.scopes]), token)


def caller_of(request: HttpRequest) -> Caller:
    """The caller of a page's request (behind the gate, so signed in) or of an API request (its authentication)."""
    auth = getattr(request, "auth", None)
    if isinstance(auth, Caller):
        return auth
    return by_session(cast(User, cast(Any, request).user))
