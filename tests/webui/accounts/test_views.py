from __future__ import annotations

import re

import pytest
from django.test import Client

from webui.accounts import selectors, services
from webui.accounts.models import User

pytestmark = pytest.mark.django_db

PAGES = ["/experiments", "/runs", "/account/tokens", "/runs/table", "/experiments/new", "/experiments/doctor"]


@pytest.mark.parametrize("address", PAGES)
def test_strangers_are_sent_to_the_door(client: Client, address: str) -> None:
    response = client.get(address)
    assert response.status_code == 302
    assert response.headers["Location"] == f"/login?next={address}"


def test_logging_in_and_out(client: Client, user: User) -> None:
    assert client.post("/login", {"username": "ada", "password": "wrong"}).status_code == 200
    response = client.post("/login", {"username": "ada", "password": "correct-horse-9", "next": "/runs"})
    assert response.headers["Location"] == "/runs"
    assert client.get("/runs").status_code == 200
    client.post("/logout")
    assert client.get("/runs").status_code == 302


@pytest.mark.parametrize("name", ["", "\x00", "a" * 10_000, "\ud83d", "' OR 1=1 --"])
def test_odd_names_are_wrong_names(client: Client, user: User, name: str) -> None:
    typed = name.encode("utf-8", "surrogatepass").decode("utf-8", "replace")
    assert client.post("/login", {"username": typed, "password": "x"}).status_code == 200


@pytest.mark.parametrize(
    "place",
    ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "http:///evil.example"],
)
def test_the_door_sends_nobody_elsewhere(client: Client, user: User, place: str) -> None:
    response = client.post("/login", {"username": "ada", "password": "correct-horse-9", "next": place})
    assert response.headers["Location"] == "/experiments"


def test_too_many_wrong_passwords_have_to_wait(client: Client, user: User) -> None:
    for _ in range(selectors.FAILURES_BY_NAME):
        client.post("/login", {"username": "ada", "password": "wrong"})
    response = client.post("/login", {"username": "ada", "password": "correct-horse-9"})
    assert response.status_code == 429
    assert int(response.headers["Retry-After"]) > 0
    assert "Too many wrong passwords" in response.content.decode()
    assert client.get("/runs").status_code == 302


def test_a_one_time_password_opens_only_its_own_page(client: Client) -> None:
    user, password = services.user_create(name="new")
    assert client.post("/login", {"username": "new", "password": password}).status_code == 302
    for page in PAGES:
        assert client.get(page).headers["Location"] == "/account/password"
    assert client.get("/api/v1/runs").status_code == 401
    assert client.post("/account/password", {"password": "short", "again": "short"}).status_code == 422
    assert client.post("/account/password", {"password": "a fine horse 9", "again": "a fine hose 9"}).status_code == 422
    response = client.post("/account/password", {"password": "a fine horse 9", "again": "a fine horse 9"})
    assert response.headers["Location"] == "/experiments"
    assert client.get("/runs").status_code == 200
    user.refresh_from_db()
    assert not user.check_password(password)


def test_a_chosen_password_is_asked_for_before_it_is_replaced(logged_in: Client, user: User) -> None:
    words = {"present": "not it", "password": "a fine horse 9", "again": "a fine horse 9"}
    assert logged_in.post("/account/password", words).status_code == 422
    assert logged_in.post("/account/password", {**words, "present": "correct-horse-9"}).status_code == 302
    assert logged_in.get("/runs").status_code == 200  # this session stays


def test_a_token_is_shown_once(logged_in: Client, user: User) -> None:
    made = {"name": "nightly", "days": 30, "scopes": ["read", "run"]}
    page = logged_in.post("/account/tokens", made, follow=True).content.decode()
    secret = re.search(r'id="secret"[^>]*>(lp_[^<]+)<', page)[1]  # type: ignore[index]
    assert selectors.token_find(secret=secret)
    again = logged_in.get("/account/tokens").content.decode()
    assert secret not in again
    assert "nightly" in again
    token = selectors.token_list(user=user).get()
    logged_in.post(f"/account/tokens/{token.pk}/revoke")
    assert selectors.token_find(secret=secret) is None
    assert logged_in.post("/account/tokens", {"name": "", "days": 30}).status_code == 422


def test_forms_need_their_csrf_token(user: User) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    response = client.post("/account/tokens", {"name": "x", "days": 1})
    assert response.status_code == 403
    assert "too old" in response.content.decode()


def test_a_closed_account_loses_its_session(logged_in: Client, user: User) -> None:
    assert selectors.session_user(session_key=logged_in.session.session_key) == user
    services.user_close(user=user)
    assert logged_in.get("/runs").status_code == 302
    assert selectors.session_user(session_key=logged_in.session.session_key) is None
    assert selectors.session_user(session_key="unknown") is None
    assert selectors.session_user(session_key=None) is None


def test_a_new_password_ends_other_sessions(logged_in: Client, user: User) -> None:
    services.user_reset_password(user=user)
    assert selectors.session_user(session_key=logged_in.session.session_key) is None
