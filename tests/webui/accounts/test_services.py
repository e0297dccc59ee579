from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.utils import timezone

from webui.accounts import selectors, services
from webui.accounts.models import ApiToken, User

pytestmark = pytest.mark.django_db


def test_the_first_user_gets_new_passwords_until_one_is_chosen() -> None:
    user, first = services.user_first()
    assert user.role == "admin"
    assert user.one_time_password
    _, second = services.user_first()
    assert first
    assert second
    assert first != second
    user.refresh_from_db()
    assert not user.check_password(first)
    services.user_choose_password(user=user, password="my own horse 9")
    assert services.user_first() == (user, None)
    _, third = services.user_first(new_password=True)
    assert third
    user.refresh_from_db()
    assert user.one_time_password


def test_a_chosen_password_must_be_another_and_not_a_poor_one(user: User) -> None:
    for poor in ("short", "password123", "1234567890123", "correct-horse-9"):
        with pytest.raises(services.AccountError):
            services.user_choose_password(user=user, password=poor)
    user.refresh_from_db()
    assert user.check_password("correct-horse-9")


def test_names_are_taken_once(user: User) -> None:
    with pytest.raises(services.AccountError, match="ada"):
        services.user_create(name="ada")
    with pytest.raises(services.AccountError):
        services.user_create(name="no spaces")


def test_a_token_is_stored_as_its_digest_only(user: User) -> None:
    token, secret = services.token_create(user=user, name="nightly")
    assert secret.startswith("lp_")
    assert secret not in json.dumps(list(ApiToken.objects.values()), default=str)
    assert selectors.token_find(secret=secret) == token
    assert selectors.token_find(secret=secret + "x") is None


def test_a_token_ends_by_revoking_by_time_and_with_its_user(user: User) -> None:
    token, secret = services.token_create(user=user, name="a")
    assert services.token_revoke(user=user, token_id=token.pk)
    assert not services.token_revoke(user=user, token_id=token.pk)
    assert selectors.token_find(secret=secret) is None
    old, secret = services.token_create(user=user, name="b", days=1)
    ApiToken.objects.filter(pk=old.pk).update(expires_at=timezone.now() - timedelta(seconds=1))
    assert selectors.token_find(secret=secret) is None
    _, secret = services.token_create(user=user, name="c")
    services.user_close(user=user)
    assert selectors.token_find(secret=secret) is None
    assert selectors.token_list(user=user).count() == 0


def test_nobody_revokes_anothers_token(user: User, make_user: Callable[..., User]) -> None:
    token, secret = services.token_create(user=user, name="a")
    assert not services.token_revoke(user=make_user("eve"), token_id=token.pk)
    assert selectors.token_find(secret=secret) == token


@pytest.mark.parametrize(("name", "days"), [("", 5), ("x" * 61, 5), ("a", 0), ("a", 367)])
def test_odd_tokens_are_refused(user: User, name: str, days: int) -> None:
    with pytest.raises(services.AccountError):
        services.token_create(user=user, name=name, days=days)


def test_use_is_noted_once_a_minute(user: User) -> None:
    token, _ = services.token_create(user=user, name="a")
    services.token_use(token=token)
    token.refresh_from_db()
    first = token.last_used_at
    assert first
    services.token_use(token=token)
    token.refresh_from_db()
    assert token.last_used_at == first


def test_the_throttle_counts_by_name_and_by_address(monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(selectors.FAILURES_BY_NAME):
        assert selectors.login_blocked_until(name="ada", address="10.0.0.1") is None
        services.login_fail(name="Ada ", address="10.0.0.1")
    until = selectors.login_blocked_until(name="ADA", address="10.0.0.1")
    assert until
    assert timedelta(0) < until - timezone.now() <= selectors.WINDOW
    assert selectors.login_blocked_until(name="ada", address="10.0.0.2") is None
    assert selectors.login_blocked_until(name="bob", address="10.0.0.1") is None
    for number in range(selectors.FAILURES_BY_ADDRESS):
        services.login_fail(name=f"n{number}", address="10.0.0.3")
    assert selectors.login_blocked_until(name="fresh", address="10.0.0.3")
    later = timezone.now() + selectors.WINDOW
    monkeypatch.setattr(timezone, "now", lambda: later)
    assert selectors.login_blocked_until(name="ada", address="10.0.0.1") is None


def test_success_forgets_the_failures(user: User) -> None:
    for _ in range(selectors.FAILURES_BY_NAME):
        services.login_fail(name="ada", address=None)
    assert selectors.login_blocked_until(name="ada", address=None)
    services.login_succeed(user=user, address=None)
    assert selectors.login_blocked_until(name="ada", address=None) is None


def command(*words: str) -> dict[str, Any]:
    out = io.StringIO()
    call_command("user", *words, stdout=out)
    answer: dict[str, Any] = json.loads(out.getvalue())
    return answer


def test_accounts_from_the_shell() -> None:
    made = command("create", "bob", "--role", "admin")
    bob = User.objects.get(username="bob")
    assert bob.check_password(made["password"])
    assert bob.role == "admin"
    command("first")
    again = command("password", "bob")
    bob.refresh_from_db()
    assert bob.check_password(again["password"])
    assert command("close", "bob")["password"] is None
    bob.refresh_from_db()
    assert not bob.is_active
    assert command("first")["user"] == "admin"


@pytest.mark.parametrize("words", [("first", "ada"), ("create",), ("password", "nobody"), ("create", "a b")])
def test_odd_commands_say_why(words: tuple[str, ...]) -> None:
    with pytest.raises(CommandError):
        command(*words)
