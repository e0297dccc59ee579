"""What changes accounts: people and their passwords, sign-in, sessions, API tokens. Groups: `webui.accounts.groups`.

Each deed that somebody else could want to know of is noted in the audit log, in the same transaction.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import timedelta

from django.contrib.auth.password_validation import validate_password
from django.contrib.sessions.backends.base import SessionBase
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils import timezone

from webui.accounts.models import ApiToken, LoginFailure, Quota, Session, User
from webui.accounts.roles import Role, Scope
from webui.accounts.selectors import WINDOW, admins_open, login_name, token_digest, token_list
from webui.accounts.sessions import ADDRESS, AGENT, OPENED, SEEN, moment
from webui.accounts.signals import account_closed
from webui.audit.deeds import Deed
from webui.audit.services import note

FIRST_USER = "admin"
TOKEN_PREFIX = "lp_"  # the public part, so that secret scanners know what they see
TOKEN_DAYS = 90
TOKENS_AT_ONCE = 50
SEEN_EVERY = timedelta(minutes=1)
QUOTA_FIELDS = ("queued_runs", "active_runs", "bench_minutes_per_day", "run_minutes", "lease_minutes")


class AccountError(Exception):
    """A change that the rules do not allow; the sentence is for the person who asked."""


# --- people ----------------------------------------------------------------------------------------------------------


def password_make() -> str:
    """A one-time password: 80 bits in groups that can be read out and typed."""
    letters = "abcdefghjkmnpqrstuvwxyz23456789"
    return "-".join("".join(secrets.choice(letters) for _ in range(4)) for _ in range(4))


@transaction.atomic
def user_create(*, name: str, role: Role = Role.RUNNER) -> tuple[User, str]:
    """A new user and the one-time password to hand over. Raises AccountError if the name is taken or no good."""
    password = password_make()
    user = User(username=name, role=role.value, one_time_password=True)
    user.set_password(password)
    try:
        user.full_clean()
    except ValidationError as fault:
        raise AccountError(f"user {name!r}: {' '.join(fault.messages)}") from None
    if User.objects.filter(username__iexact=name).exists():
        raise AccountError(f"user {name!r}: There is one whose name differs in case only.")
    user.save()
    note(Deed.USER_CREATE, user.username, role=role.value)
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


@transaction.atomic
def user_change_role(*, user: User, role: Role) -> bool:
    """What the person is from now on, live pages and tokens included. False if they were that already.

    Raises AccountError rather than leave the console without an admin.
    """
    before = Role(user.role)
    if role is before:
        return False
    if before is Role.ADMIN:
        _keep_an_admin(user)
    user.role = role.value
    user.save(update_fields=["role"])
    note(Deed.USER_CHANGE, user.username, role=role.value, before=before.value)
    return True


@transaction.atomic
def user_change_quota(*, user: User, quota: dict[str, int | None]) -> bool:
    """The person's own limits; None takes the console's. False if nothing changes."""
    row, _ = Quota.objects.get_or_create(user=user)
    changed = {name: quota[name] for name in QUOTA_FIELDS if name in quota and quota[name] != getattr(row, name)}
    for name, value in changed.items():
        setattr(row, name, value)
    if changed:
        row.save(update_fields=list(changed))
        note(Deed.USER_CHANGE, user.username, quota=changed)
    return bool(changed)


@transaction.atomic
def user_close(*, user: User) -> bool:
    """Ends the user's access: sign-in, sessions, tokens and live pages (which ask again every few seconds). What waits
    in the queue is cancelled; what is under way goes on to its end.

    False if it was closed. Raises AccountError for the last admin.
    """
    if not user.is_active:
        return False
    if user.role == Role.ADMIN:
        _keep_an_admin(user)
    user.is_active = False
    user.save(update_fields=["is_active"])
    user.sessions.all().delete()
    user.tokens.filter(revoked_at=None).update(revoked_at=timezone.now())
    note(Deed.USER_CLOSE, user.username)
    account_closed.send(User, user=user)
    return True


@transaction.atomic
def user_open(*, user: User) -> bool:
    """The person may sign in again with the password they had; tokens stay revoked. False if it was open."""
    if user.is_active:
        return False
    user.is_active = True
    user.save(update_fields=["is_active"])
    note(Deed.USER_OPEN, user.username)
    return True


def _keep_an_admin(user: User) -> None:
    if not admins_open().select_for_update().exclude(pk=user.pk).exists():
        raise AccountError(f"{user.username} is the only admin. Make somebody else admin first.")


# --- passwords and sign-in -------------------------------------------------------------------------------------------


@transaction.atomic
def user_reset_password(*, user: User) -> str:
    """A fresh one-time password; open sessions of the user end."""
    password = password_make()
    user.set_password(password)
    user.one_time_password = True
    user.save(update_fields=["password", "one_time_password"])
    user.sessions.all().delete()
    note(Deed.PASSWORD_RESET, user.username)
    return password


@transaction.atomic
def user_choose_password(*, user: User, password: str) -> None:
    """The user's own password; every session but the one that hands the new hash on ends.

    Raises AccountError with the rules that it breaks.
    """
    try:
        validate_password(password, user)
    except ValidationError as fault:
        raise AccountError(" ".join(fault.messages)) from None
    if user.check_password(password):
        raise AccountError("Choose a password other than the present one.")
    user.set_password(password)
    user.one_time_password = False
    user.save(update_fields=["password", "one_time_password"])
    user.sessions.all().delete()
    note(Deed.PASSWORD_CHOOSE, user.username)


@transaction.atomic
def login_fail(*, name: str, address: str | None) -> None:
    """Notes a refused sign-in and forgets those that no longer count."""
    now = timezone.now()
    typed = login_name(typed=name)
    LoginFailure.objects.filter(at__lt=now - WINDOW).delete()
    LoginFailure.objects.create(name=typed, address=address)
    # What was typed may be a password in the wrong field: it is written down only if somebody has that name.
    known = User.objects.filter(username__iexact=typed).first()
    note(Deed.SIGN_IN_REFUSED, known.username if known else "", known=known is not None)


@transaction.atomic
def login_succeed(*, user: User, address: str | None) -> None:
    """Forgets the failures of this name at this address."""
    LoginFailure.objects.filter(name=login_name(typed=user.username), address=address).delete()
    note(Deed.SIGN_IN, user.username, by=user)


# --- sessions --------------------------------------------------------------------------------------------------------


def session_open(*, session: SessionBase, address: str | None, agent: str) -> None:
    """What its owner will know it by in the list."""
    now = timezone.now().isoformat()
    session.update({OPENED: now, SEEN: now, ADDRESS: address, AGENT: agent[:200]})


def session_touch(*, session: SessionBase) -> None:
    """Notes its use, at most once a minute; that also moves its end."""
    now, seen = timezone.now(), moment(session.get(SEEN))
    session.setdefault(OPENED, now.isoformat())
    if seen is None or now - seen > SEEN_EVERY:
        session[SEEN] = now.isoformat()


@transaction.atomic
def session_end(*, user: User, number: str) -> bool:
    """Ends one of the user's sessions, by its number in the list; its live pages close within seconds."""
    for row in Session.objects.filter(user=user):
        if row.number == number:
            row.delete()
            note(Deed.SIGN_OUT, user.username, sessions=1)
            return True
    return False


@transaction.atomic
def session_end_all(*, user: User, but: str | None = None) -> int:
    """Ends all of them, or all but the one with the key `but`; how many."""
    ended, _ = Session.objects.filter(user=user).exclude(session_key=but).delete()
    if ended:
        note(Deed.SIGN_OUT, user.username, sessions=ended)
    return ended


# --- API tokens ------------------------------------------------------------------------------------------------------


@transaction.atomic
def token_create(
    *, user: User, name: str, days: int = TOKEN_DAYS, scopes: Sequence[Scope] = tuple(Scope)
) -> tuple[ApiToken, str]:
    """A new token and its secret, which is nowhere else. Raises AccountError on an empty name or odd days."""
    name = name.strip()
    if not name or len(name) > 60:
        raise AccountError("A token needs a name of at most 60 characters, such as the job that will use it.")
    if not 1 <= days <= 366:
        raise AccountError(f"A token lives 1 to 366 days, not {days}.")
    if not scopes:
        raise AccountError("A token needs at least one scope.")
    if token_list(user=user).count() >= TOKENS_AT_ONCE:
        raise AccountError(f"You have {TOKENS_AT_ONCE} tokens, as many as there may be. Revoke one first.")
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = ApiToken.objects.create(
        user=user,
        name=name,
        digest=token_digest(secret=secret),
        start=secret[:8],
        scopes=[scope.value for scope in scopes],
        expires_at=timezone.now() + timedelta(days=days),
    )
    note(Deed.TOKEN_CREATE, user.username, token=token.start, name=name, days=days, scopes=token.scopes)
    return token, secret


@transaction.atomic
def token_revoke(*, user: User, token_id: int) -> bool:
    """Ends one of the user's tokens; False if there is no such working token."""
    token = ApiToken.objects.filter(pk=token_id, user=user, revoked_at=None).first()
    if token is None:
        return False
    if not ApiToken.objects.filter(pk=token_id, revoked_at=None).update(revoked_at=timezone.now()):
        return False
    note(Deed.TOKEN_REVOKE, user.username, token=token.start, name=token.name)
    return True


def token_use(*, token: ApiToken) -> None:
    """Notes that the token was used, at most once a minute so that a busy client does not write all the time."""
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at > timedelta(minutes=1):
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
