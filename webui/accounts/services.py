"""What changes accounts."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta

from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from webui.accounts.models import ApiToken, LoginFailure, User
from webui.accounts.roles import Role, Scope
from webui.accounts.selectors import WINDOW, login_name, token_digest

FIRST_USER = "admin"
TOKEN_PREFIX = "lp_"  # the public part, so that secret scanners know what they see
TOKEN_DAYS = 90


class AccountError(Exception):
    """A change that the rules do not allow; the sentence is for the person who asked."""


def password_make() -> str:
    """A one-time password: 80 bits in groups that can be read out and typed."""
    letters = "abcdefghjkmnpqrstuvwxyz23456789"
    return "-".join("".join(secrets.choice(letters) for _ in range(4)) for _ in range(4))


def user_create(*, name: str, role: Role = Role.RUNNER) -> tuple[User, str]:
    """A new user and the one-time password to hand over. Raises AccountError if the name is taken or no good."""
    password = password_make()
    user = User(username=name, role=role.value, one_time_password=True)
    user.set_password(password)
    try:
        user.full_clean()
    except ValidationError as fault:
        raise AccountError(f"user {name!r}: {' '.join(fault.messages)}") from None
    user.save()
    return user, password


@transaction.atomic
def user_first(*, new_password: bool = False) -> tuple[User, str | None]:
    """The admin that a fresh installation has, made if there is none.

    The password is new as long as nobody has chosen one, or on `new_password`; else None, since only a hash is left.
    """
    user = User.objects.select_for_update().filter(username=FIRST_USER).first()
    if user is None:
        return user_create(name=FIRST_USER, role=Role.ADMIN)
    if user.one_time_password or new_password:
        return user, user_reset_password(user=user)
    return user, None


def user_reset_password(*, user: User) -> str:
    """A fresh one-time password; open sessions of the user end."""
    password = password_make()
    user.set_password(password)
    user.one_time_password = True
    user.save(update_fields=["password", "one_time_password"])
    return password


def user_choose_password(*, user: User, password: str) -> None:
    """The user's own password. Raises AccountError with the rules that it breaks."""
    try:
        validate_password(password, user)
    except ValidationError as fault:
        raise AccountError(" ".join(fault.messages)) from None
    if user.check_password(password):
        raise AccountError("Choose a password other than the present one.")
    user.set_password(password)
    user.one_time_password = False
    user.save(update_fields=["password", "one_time_password"])


def user_disable(*, user: User) -> None:
    """Ends the user's access: log-in, sessions, tokens and live pages (which ask again every few seconds)."""
    user.is_active = False
    user.save(update_fields=["is_active"])


def login_fail(*, name: str, address: str | None) -> None:
    """Notes a refused log-in and forgets those that no longer count."""
    now = timezone.now()
    LoginFailure.objects.filter(at__lt=now - WINDOW).delete()
    LoginFailure.objects.create(name=login_name(typed=name), address=address)


def login_succeed(*, name: str, address: str | None) -> None:
    """Forgets the failures of this name at this address."""
    LoginFailure.objects.filter(name=login_name(typed=name), address=address).delete()


def token_create(
    *, user: User, name: str, days: int = TOKEN_DAYS, scopes: Sequence[Scope] = tuple(Scope)
) -> tuple[ApiToken, str]:
    """A new token and its secret, which is nowhere else. Raises AccountError on an empty name or odd days."""
    name = name.strip()
    if not name or len(name) > 60:
        raise AccountError("A token needs a name of at most 60 characters, such as the job that will use it.")
    if not 1 <= days <= 366:
        raise AccountError(f"A token lives 1 to 366 days, not {days}.")
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        user=user,
        name=name,
        digest=token_digest(secret=secret),
        start=secret[:8],
        scopes=[scope.value for scope in scopes],
        expires_at=timezone.now() + timedelta(days=days),
    )
    return token, secret


def token_revoke(*, user: User, token_id: int) -> bool:
    """Ends one of the user's tokens; False if there is no such working token."""
    changed = ApiToken.objects.filter(pk=token_id, user=user, revoked_at=None).update(revoked_at=timezone.now())
    return changed == 1


def token_use(*, token: ApiToken) -> None:
    """Notes that the token was used, at most once a minute so that a busy client does not write all the time."""
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at > timedelta(minutes=1):
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
