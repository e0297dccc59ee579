"""What accounts can be asked."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta

from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY
from django.contrib.auth.models import Group
from django.db.models import Count, Q, QuerySet
from django.utils import timezone

from webui.accounts.callers import Caller
from webui.accounts.models import ApiToken, LoginFailure, Session, User
from webui.accounts.roles import Right, Role
from webui.accounts.sessions import SessionStore

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
    user_id = session.get(SESSION_KEY)
    if user_id is None:
        return None
    user = User.objects.filter(pk=user_id, is_active=True).first()
    if user is None or user.get_session_auth_hash() != session.get(HASH_SESSION_KEY):
        return None
    return user


def session_list(*, user: User) -> QuerySet[Session]:
    """The user's open sessions, the last used first."""
    return Session.objects.filter(user=user, expire_date__gt=timezone.now()).order_by("-seen_at")


def user_list(*, text: str = "", role: str = "", closed: bool | None = None) -> QuerySet[User]:
    """People by name; each filter that is given narrows. For admins."""
    people = User.objects.prefetch_related("groups").order_by("username")
    if text:
        people = people.filter(Q(username__icontains=text) | Q(groups__name__icontains=text)).distinct()
    if role:
        people = people.filter(role=role)
    if closed is not None:
        people = people.filter(is_active=not closed)
    return people


def user_get(*, name: str) -> User | None:
    """The person of this name; names are told apart by case only where the database does."""
    return User.objects.filter(username=name).first()


def group_list(*, caller: Caller) -> QuerySet[Group]:
    """The groups that the caller has to do with: an admin all, others those they are in."""
    groups = Group.objects.annotate(members=Count("user")).order_by("name")
    return groups if caller.may(Right.ADMINISTER) else groups.filter(pk__in=caller.user.groups.values("pk"))


def group_get(*, group_id: int, caller: Caller) -> Group | None:
    """The group, if it is one of theirs."""
    return group_list(caller=caller).filter(pk=group_id).first()


def group_members(*, group: Group) -> QuerySet[User]:
    """Its people, by name."""
    return User.objects.filter(groups=group).order_by("username")


def group_may_change(*, caller: Caller, group: Group) -> bool:
    """An admin, or an instructor who is in it."""
    if caller.may(Right.ADMINISTER):
        return True
    return caller.may(Right.MANAGE_MEMBERS) and caller.user.groups.filter(pk=group.pk).exists()


def admins_open() -> QuerySet[User]:
    """Admins who can sign in; there is always one."""
    return User.objects.filter(role=Role.ADMIN, is_active=True)
