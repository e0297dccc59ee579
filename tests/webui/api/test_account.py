"""Who calls, tokens, benches and leases, and the description itself."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone

from testbed.command.places import SOURCE
from tests.webui.api.calling import API, Caller, error
from webui.accounts import services as accounts
from webui.accounts.models import ApiToken, User
from webui.accounts.roles import Scope
from webui.api.api import api
from webui.api.manual import sections
from webui.benches.models import Bench, Health, Lease

pytestmark = pytest.mark.django_db(transaction=True)


def test_who_calls(call: Caller, user: User, logged_in: Client) -> None:
    told = call("GET", f"{API}/me").json()
    assert (told["user"], told["role"], told["by"]) == ("ada", "runner", "token")
    assert logged_in.get(f"{API}/me").json()["by"] == "session"
    secret = accounts.token_create(user=user, name="reads", scopes=[Scope.READ])[1]
    answer = Client().get(f"{API}/me", headers={"Authorization": f"Bearer {secret}"})
    assert answer.json()["rights"] == ["read"]


def test_a_token_revokes_itself_and_no_other(call: Caller, user: User, logged_in: Client) -> None:
    other = Caller(user)
    told = call("GET", f"{API}/tokens").json()["tokens"]
    assert [token["current"] for token in told].count(True) == 1
    mine = next(token["id"] for token in told if token["current"])
    theirs = next(token["id"] for token in told if not token["current"])
    assert call("DELETE", f"{API}/tokens/{theirs}").status_code == 403
    assert call("DELETE", f"{API}/tokens/{mine}").status_code == 204
    assert call("GET", f"{API}/me").status_code == 401
    assert other("GET", f"{API}/me").status_code == 200
    assert ApiToken.objects.filter(revoked_at=None).count() == 1


def test_a_refusal_names_what_is_short_the_token_or_the_role(user: User, make_user: Callable[..., User]) -> None:
    secret = accounts.token_create(user=user, name="reads", scopes=[Scope.READ])[1]
    lease = {"bench": "bench-1", "minutes": 30}
    narrow = Client().post(f"{API}/leases", lease, "application/json", headers={"Authorization": f"Bearer {secret}"})
    assert "which this token does not give" in error(narrow)["message"]
    viewer = Caller(make_user("eve", role="viewer"))("POST", f"{API}/leases", lease)
    assert "which the role viewer does not give" in error(viewer)["message"]


def test_health_needs_nobody(client: Client) -> None:
    assert client.get(f"{API}/health").json() == {"status": "ok"}


def test_a_bench_is_taken_extended_and_given_back(call: Caller, make_user: Callable[..., User]) -> None:
    Bench.objects.create(name="bench-1", health=Health.WELL, seen_at=timezone.now(), tags=["lab"])
    assert [bench["lease"] for bench in call("GET", f"{API}/benches").json()["benches"]] == [None]
    lease = call("POST", f"{API}/leases", {"bench": "bench-1", "minutes": 30, "purpose": "a class"})
    assert lease.status_code == 201, lease.content
    number = lease.json()["id"]
    other = Caller(make_user("bob"))
    assert other("POST", f"{API}/leases", {"bench": "bench-1", "minutes": 30}).status_code == 409
    assert other("DELETE", f"{API}/leases/{number}").status_code == 403
    before = Lease.objects.get().ends_at
    assert call("POST", f"{API}/leases/{number}/extend", {"minutes": 10}).status_code == 200
    assert Lease.objects.get().ends_at == before + timedelta(minutes=10)
    held = other("GET", f"{API}/benches").json()["benches"][0]["lease"]
    assert (held["holder"], held["purpose"]) == ("ada", "a class")
    assert call("DELETE", f"{API}/leases/{number}").status_code == 204
    assert call("GET", f"{API}/leases").json() == {"leases": []}
    assert call("POST", f"{API}/leases", {"bench": "none", "minutes": 30}).status_code == 404
    assert error(call("POST", f"{API}/leases", {"bench": "bench-1", "minutes": True}))["path"] == "minutes"
    viewer = Caller(make_user("vera", role="viewer"))
    assert viewer("POST", f"{API}/leases", {"bench": "bench-1", "minutes": 30}).status_code == 403


def test_the_description_is_printed_without_a_console() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "testbed.command", "openapi"], cwd=SOURCE, capture_output=True, check=True, timeout=60
    )
    document = json.loads(done.stdout)
    assert document == json.loads(json.dumps(api.get_openapi_schema()))
    assert document["openapi"] == "3.1.0"
    assert set(document["components"]["securitySchemes"]) == {"Token", "Session"}


def test_every_operation_describes_itself() -> None:
    document = api.get_openapi_schema()
    ids: list[str] = []
    for path, methods in document["paths"].items():
        for method, told in methods.items():
            ids.append(told["operationId"])
            assert told["summary"], (method, path)
            assert told["description"], (method, path)
            assert told["tags"][0] in {tag["name"] for tag in document["tags"]}, (method, path)
            assert {"400", "422", "429", "503"} <= set(told["responses"])
            assert ("401" in told["responses"]) == bool(told.get("security"))
            for status, answer in told["responses"].items():
                assert answer["description"], (method, path, status)
    assert len(ids) == len(set(ids))
    links = [name for methods in document["paths"].values() for told in methods.values()
             for answer in told["responses"].values() for name in answer.get("links", {})]  # fmt: skip
    assert links
    assert set(links) <= set(ids)


def test_the_manual_has_every_call_and_asks_who_it_is(logged_in: Client, client: Client) -> None:
    assert client.get(f"{API}/docs").status_code == 302
    page = logged_in.get(f"{API}/docs").content.decode()
    calls = [one for section in sections(api.get_openapi_schema(), "http://x") for one in section.calls]
    document = api.get_openapi_schema()
    assert len(calls) == sum(method != "head" for methods in document["paths"].values() for method in methods)
    for one in calls:
        assert f'id="{one.anchor}"' in page
    assert "<script>" not in page
    assert "style=" not in page
