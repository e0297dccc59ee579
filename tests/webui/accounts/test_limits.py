from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from hypothesis import given
from hypothesis import strategies as st

from testbed.command.places import SOURCE
from webui.accounts import limits, services
from webui.accounts.models import Take, User
from webui.accounts.proxies import client_address
from webui.audit.models import Entry
from webui.settings.environment import networks, rates

MANY = {"api": 3, "strangers": 3, "runs": 3, "exports": 3, "sign-in": 3, "account": 3}


@pytest.fixture
def tight(settings: Any) -> None:
    settings.RATE_LIMITS = dict(MANY)


@pytest.mark.django_db
def test_a_limit_is_counted_by_person_and_minute(
    user: User, make_user: Any, monkeypatch: pytest.MonkeyPatch, tight: None
) -> None:
    clock = [6_000_000.0]
    monkeypatch.setattr(limits.time, "time", lambda: clock[0])
    for _ in range(3):
        limits.limit_take(limit="exports", who=user)
    with pytest.raises(limits.TooMany) as refusal:
        limits.limit_take(limit="exports", who=user)
    assert 0 < refusal.value.wait_s <= 60
    limits.limit_take(limit="exports", who=make_user("bob"))
    limits.limit_take(limit="runs", who=user)
    clock[0] += refusal.value.wait_s
    limits.limit_take(limit="exports", who=user)
    clock[0] += 180
    limits.limit_take(limit="exports", who=user)
    assert Take.objects.filter(who=f"user {user.pk}").count() == 1  # what is past is forgotten


@pytest.mark.django_db
def test_counts_of_addresses_that_never_come_again_are_forgotten(tight: None) -> None:
    limits.limit_take(limit="api", who="2001:db8::1")
    Take.objects.create(limit="api", who="2001:db8::2", minute=1)
    limits.limits_forget()
    assert [take.who for take in Take.objects.all()] == ["2001:db8::1"]


@pytest.mark.django_db
def test_the_api_says_when_to_come_again(user: User, client: Client, tight: None) -> None:
    _, secret = services.token_create(user=user, name="ci")
    headers = {"HTTP_AUTHORIZATION": f"Bearer {secret}"}
    for _ in range(3):
        assert client.get("/api/v1/runs", **headers).status_code == 200
    refusal = client.get("/api/v1/runs", **headers)
    assert refusal.status_code == 429
    assert refusal.json()["error"]["code"] == "too_many_requests"
    assert 0 < int(refusal.headers["Retry-After"]) <= 60
    # Guessing tokens is limited by address, and a good token still works from there.
    for _ in range(3):
        assert client.get("/api/v1/runs", HTTP_AUTHORIZATION="Bearer lp_guess").status_code == 401
    assert client.get("/api/v1/runs", HTTP_AUTHORIZATION="Bearer lp_guess").status_code == 429


@pytest.mark.django_db
def test_pages_say_it_too(logged_in: Client, make_run: Any, tight: None) -> None:
    run = make_run()
    for _ in range(3):
        logged_in.get(f"/runs/{run.pk}/export/csv")
    refusal = logged_in.get(f"/runs/{run.pk}/export/csv")
    assert refusal.status_code == 429
    assert int(refusal.headers["Retry-After"]) > 0
    assert "Come again in" in refusal.content.decode()
    assert logged_in.get("/runs").status_code == 200


@pytest.mark.django_db
def test_zero_is_no_limit(user: User, settings: Any) -> None:
    settings.RATE_LIMITS = MANY | {"api": 0}
    for _ in range(20):
        limits.limit_take(limit="api", who=user)
    assert not Take.objects.exists()


# --- the environment -------------------------------------------------------------------------------------------------


def test_limits_come_from_the_environment() -> None:
    assert rates("X", "api=5, exports=0", MANY) == MANY | {"api": 5, "exports": 0}
    for wrong in ("apis=5", "api", "api=-1", "api=many", "api=9" * 9):
        with pytest.raises(ValueError, match="X: "):
            rates("X", wrong, MANY)


@pytest.mark.parametrize(
    ("name", "value"), [("LOOPLANE_TRUSTED_PROXIES", "10.0.0.300"), ("LOOPLANE_RATE_LIMITS", "pages=3")]
)
def test_a_wrong_value_ends_the_start_with_its_name(name: str, value: str, tmp_path: Path) -> None:
    environment = {"PATH": "/usr/bin:/bin", "LOOPLANE_STATE": str(tmp_path), name: value}
    words = [sys.executable, "manage.py", "check"]
    done = subprocess.run(words, cwd=SOURCE, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert name in done.stderr.splitlines()[-1]


# --- whose address ---------------------------------------------------------------------------------------------------

PROXIES = networks("X", "127.0.0.1, 10.0.0.0/8")


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("127.0.0.1", "198.51.100.7", "198.51.100.7"),
        ("127.0.0.1", "1.2.3.4, 198.51.100.7, 10.1.1.1", "198.51.100.7"),  # what the client itself claims is not read
        ("198.51.100.7", "1.2.3.4", "198.51.100.7"),
        ("127.0.0.1", "", "127.0.0.1"),
        ("127.0.0.1", "unknown, 10.1.1.1", "10.1.1.1"),
        ("::ffff:127.0.0.1", "2001:db8::1", "2001:db8::1"),
    ],
)
def test_the_last_address_that_no_proxy_of_ours_has(peer: str, forwarded: str, client: str) -> None:
    assert client_address(peer, forwarded, PROXIES) == client


@given(st.text(max_size=60), st.sampled_from(["198.51.100.7", "2001:db8::5", ""]))
def test_nobody_but_a_proxy_moves_their_address(forwarded: str, peer: str) -> None:
    assert client_address(peer, forwarded, PROXIES) == peer


@pytest.mark.django_db
@pytest.mark.parametrize(("trusted", "seen"), [("", "127.0.0.1"), ("127.0.0.1", "203.0.113.9")])
def test_the_throttle_and_the_log_see_the_client(
    user: User, client: Client, settings: Any, trusted: str, seen: str
) -> None:
    settings.TRUSTED_PROXIES = networks("X", trusted)
    client.post("/login", {"username": "ada", "password": "wrong"}, HTTP_X_FORWARDED_FOR="203.0.113.9")
    assert Entry.objects.get(deed="session.refuse").address == seen


@pytest.mark.django_db
def test_a_client_cannot_claim_tls(client: Client, settings: Any) -> None:
    settings.SECURE_SSL_REDIRECT = True
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    assert client.get("/login", HTTP_X_FORWARDED_PROTO="https").status_code == 301
    settings.TRUSTED_PROXIES = networks("X", "127.0.0.1")
    assert client.get("/login", HTTP_X_FORWARDED_PROTO="https").status_code == 200
