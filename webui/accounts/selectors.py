"""What accounts can be asked."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from django.contrib.sessions.backends.db import SessionStore
from django.db.models import QuerySet
from django.utils import timezone

from webui.accounts.models import ApiToken, LoginFailure, User

WINDOW = timedelta(minutes=15)
"""How far back the throttle looks."""
FAILURES_BY_NAME = 5
"""Failures for one user name from one address after which it has to wait."""
FAILURES_BY_ADDRESS = 30
"""Failures from one address, whatever the name."""


def token_digest(*, secret: str) -> str:
    """What is stored of a token."""
    return hashlib.sha256(secret.encode()).hexdigest()


def token_list(*, user: User) -> QuerySet[ApiToken]:
    """The user's tokens that still work, newest first."""
    return ApiToken.objects.filter(user=user, revoked_at=None, expires_at__gt=timezone.now())


def token_find(*, secret: str) -> ApiToken | None:
    """The working token with this secret, of a user who may still log in."""
    return (
        ApiToken.objects.select_related("user")
        .filter(
            digest=token_digest(secret=secret), revoked_at=None, expires_at__gt=timezone.now(), user__is_active=True
        )
        .first()
    )


def login_name(*, typed: str) -> str:
    """What was typed as user name, as failures are counted: it may be anything."""
    return typed.replace("\x00", "").strip().lower()[:150]


def login_blocked_until(*, name: str, address: str | None) -> datetime | None:
    """When this name at this address may try again, or None for now."""
    since = timezone.now() - WINDOW
    failures = LoginFailure.objects.filter(at__gt=since, address=address)
    for limit, rows in (
        (FAILURES_BY_NAME, failures.filter(name=login_name(typed=name))),
        (FAILURES_BY_ADDRESS, failures),
    ):
        # The limit-th newest failure: while it is within the window, the limit is reached.
        deciding = rows.order_by("-at").values_list("at", flat=True)[limit - 1 : limit]
        for moment in deciding:
            return moment + WINDOW
    return None


def session_user(*, session_key: str | None) -> User | None:
    """The user whose session this is, if session and account are still good. Asked again and again by live pages."""
    if not session_key:
        return None
    session = SessionStore(session_key=session_key)
    user_id = session.get("_auth_user_id")
    if user_id is None:
        return None
    user = User.objects.filter(pk=user_id, is_active=True).first()
    if user is None or user.get_session_auth_hash() != session.get("_auth_user_hash"):
        return None
    return user
