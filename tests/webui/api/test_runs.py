from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from testbed.events.ordering import merge
from tests.webui.api.calling import API, RUNS, Caller, error
from webui.accounts import services as accounts
from webui.accounts.models import User
from webui.api.schemas import RunOut
from webui.runs.models import Run
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db(transaction=True)

SMALL = (Path(__file__).resolve().parents[3] / "fixtures" / "experiments" / "blink" / "small.toml").read_text()


def test_a_run_of_a_shipped_experiment(call: Caller, sent: list[str]) -> None:
    response = call("POST", RUNS, {"experiment": "blink/small", "overrides": {"seed": 7, "workload.requests": 8}})
    assert response.status_code == 202
    run = response.json()
    assert response.headers["Location"] == f"{RUNS}/{run['id']}"
    assert (run["state"], run["outcome"], run["on"], run["seed"]) == ("queued", None, "sim", 7)
    assert run["overrides"] == ["seed=7", "workload.requests=8"]
    assert sent == [run["id"]]
    assert call("GET", response.headers["Location"]).json() == run
    RunOut.model_validate(run)


def test_every_example_of_the_description_is_accepted(call: Caller, sent: list[str]) -> None:
    fields = call("GET", "/api/v1/openapi.json").json()["components"]["schemas"]["RunIn"]["properties"]
    examples = [(name, example) for name, field in fields.items() for example in field.get("examples", [])]
    assert {name for name, _ in examples} == {"experiment", "overrides", "tags", "needs"}
    for name, example in examples:
        response = call("POST", RUNS, {"experiment": "blink/demo"} | {name: example})
        assert response.status_code == 202, (name, example, response.content)


def test_a_run_of_ones_own_text(call: Caller, sent: list[str]) -> None:
    response = call("POST", RUNS, {"spec": SMALL, "on": "mininet"})
    assert response.status_code == 202
    assert response.json()["on"] == "mininet"
    assert Run.objects.get().spec == SMALL


def test_the_key_makes_a_retry_safe(call: Caller, sent: list[str]) -> None:
    body = {"experiment": "blink/small"}
    first = call("POST", RUNS, body, **{"Idempotency-Key": "build-7"})
    again = call("POST", RUNS, body, **{"Idempotency-Key": "build-7"})
    assert (first.status_code, again.status_code) == (202, 200)
    assert first.json()["id"] == again.json()["id"]
    assert again.headers["Location"] == first.headers["Location"]
    other = call("POST", RUNS, {"experiment": "blink/demo"}, **{"Idempotency-Key": "build-7"})
    assert other.status_code == 409
    assert error(other)["code"] == "idempotency_key_reused"
    assert Run.objects.count() == 1


BAD_BODIES: list[tuple[Any, str]] = [
    ({}, "spec"),
    ({"spec": "a = 1", "experiment": "blink/small"}, "spec"),
    ({"experiment": "blink/none"}, "experiment"),
    ({"experiment": "../secret"}, "experiment"),
    ({"experiment": "blink/small", "on": "hardware"}, "on"),
    ({"experiment": "blink/small", "extra": 1}, "extra"),
    ({"experiment": 5}, "experiment"),
    ({"experiment": "blink/small", "overrides": {"workload.requests": "many"}}, "workload.requests"),
    ({"experiment": "blink/small", "overrides": {"workload.requests": None}}, "overrides"),
    ({"experiment": "blink/small", "overrides": {"no_such": 1}}, "no_such"),
    ({"experiment": "blink/small", "overrides": []}, "overrides"),
    ({"spec": "not toml"}, "line 1"),
    ({"spec": ""}, "name"),
    ({"spec": "x" * 200_001}, "spec"),
    ([], "body"),
]


@pytest.mark.parametrize(("body", "path"), BAD_BODIES)
def test_bad_bodies_name_the_place(call: Caller, body: Any, path: str) -> None:
    response = call("POST", RUNS, body)
    assert response.status_code == 422
    assert error(response).get("path", "").startswith(path)
    assert not Run.objects.exists()


def test_what_is_no_json_is_a_400(call: Caller, user: User) -> None:
    client = Client()
    secret = accounts.token_create(user=user, name="x")[1]
    response = client.post(
        RUNS, b"{bad", content_type="application/json", headers={"Authorization": f"Bearer {secret}"}
    )
    assert response.status_code == 400
    assert error(response)["code"] == "bad_request"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/api/v1/none", 404, "not_found"),
        ("GET", "/api/none", 404, "not_found"),
        ("GET", f"{RUNS}/20260101-000000-abcdef", 404, "not_found"),
        ("GET", f"{RUNS}/%00", 404, "not_found"),
        ("GET", f"{RUNS}/{'9' * 300}", 422, "invalid"),
        ("PUT", RUNS, 405, "method_not_allowed"),
        ("POST", f"{RUNS}/20260101-000000-abcdef/cancel", 404, "not_found"),
        ("GET", f"{RUNS}?limit=0", 422, "invalid"),
        ("GET", f"{RUNS}?limit=x", 422, "invalid"),
        ("GET", f"{RUNS}?state=flying", 422, "invalid"),
        ("GET", f"{RUNS}?cursor=20260101-000000-abcdef", 422, "bad_cursor"),
        ("GET", f"{RUNS}?sate=queued", 422, "unknown_parameter"),
        ("GET", f"{RUNS}/20260101-000000-abcdef/events", 404, "not_found"),
    ],
)
def test_every_refusal_has_the_one_shape(call: Caller, method: str, path: str, status: int, code: str) -> None:
    response = call(method, path)
    assert response.status_code == status
    assert error(response)["code"] == code


def test_a_body_beyond_all_measure_is_413(call: Caller) -> None:
    response = call("POST", RUNS, {"spec": "x" * 1_100_000})
    assert response.status_code == 413
    assert error(response)["code"] == "too_large"


def test_bytes_that_are_no_text_are_a_400(user: User) -> None:
    secret = accounts.token_create(user=user, name="x")[1]
    headers = {"Authorization": f"Bearer {secret}"}
    response = Client().post(RUNS, b'{"spec": "\xff\xfe"}', content_type="application/json", headers=headers)
    assert response.status_code == 400
    assert error(response)["code"] == "bad_request"


def test_405_says_what_is_allowed(call: Caller) -> None:
    assert "POST" in call("PUT", RUNS).headers["Allow"]


def test_an_unknown_token_is_401_also_where_a_session_would_need_a_csrf_token(client: Client, db: None) -> None:
    for method in (client.get, client.post):
        response = method(RUNS, headers={"Authorization": "Bearer lp_unknown"})
        assert (response.status_code, error(response)["code"]) == (401, "not_authenticated")
        assert response.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_job_that_forgot_its_token_is_told_so_and_not_of_a_csrf_token(db: None) -> None:
    client = Client(enforce_csrf_checks=True)
    for path in (RUNS, f"{RUNS}/20260101-000000-abcdef/cancel", f"{API}/leases", f"{API}/webhooks"):
        response = client.post(path, {"experiment": "blink/small"}, "application/json")
        assert (response.status_code, error(response)["code"]) == (401, "not_authenticated")


def test_strangers_get_401_and_how_to_get_in(client: Client, db: None) -> None:
    for headers in ({}, {"Authorization": "Bearer lp_wrong"}, {"Authorization": "Basic eDp5"}):
        response = client.get(RUNS, headers=headers)
        assert response.status_code == 401
        assert error(response)["code"] == "not_authenticated"
        assert response.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_bug_is_a_500_in_the_shape(
    call: Caller, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**_: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("webui.runs.selectors.run_list", broken)
    response = call("GET", RUNS)
    assert response.status_code == 500
    assert error(response)["code"] == "internal"
    assert "a bug" in caplog.text
    assert "a bug" not in response.content.decode()


def test_a_page_uses_its_session_with_the_csrf_check(user: User, sent: list[str]) -> None:
    client = Client(enforce_csrf_checks=True)
    client.force_login(user)
    assert client.get(RUNS).status_code == 200
    refused = client.post(RUNS, {"experiment": "blink/small"}, content_type="application/json")
    assert refused.status_code == 403
    assert error(refused)["code"] == "forbidden"
    assert "X-CSRFToken" in error(refused)["message"]
    client.get("/experiments/new")
    token = client.cookies["csrftoken"].value
    taken = client.post(
        RUNS, {"experiment": "blink/small"}, content_type="application/json", headers={"X-CSRFToken": token}
    )
    assert taken.status_code == 202


def test_cancel_by_owner_admin_and_nobody_else(
    call: Caller, make_run: Callable[..., Run], make_user: Callable[..., User], sent: list[str]
) -> None:
    mine, theirs = make_run(), make_run(owner=make_user("bob"), state=State.RUNNING)
    assert call("POST", f"{RUNS}/{theirs.pk}/cancel").status_code == 404  # not readable: it does not exist for them
    Run.objects.filter(pk=theirs.pk).update(visibility="everyone")
    assert call("POST", f"{RUNS}/{theirs.pk}/cancel").status_code == 403
    response = call("POST", f"{RUNS}/{mine.pk}/cancel")
    assert response.status_code == 202
    assert response.json()["outcome"] == "cancelled"
    ended = call("POST", f"{RUNS}/{mine.pk}/cancel")
    assert (ended.status_code, error(ended)["code"]) == (409, "already_finished")
    admin = Caller(make_user("op", role="admin"))
    first, second = (admin("POST", f"{RUNS}/{theirs.pk}/cancel") for _ in range(2))
    assert (first.status_code, second.status_code) == (202, 202)
    assert first.json()["cancelling"] is True


def test_lists_are_paged_without_gap_or_double(call: Caller, make_run: Callable[..., Run]) -> None:
    made = [make_run().pk for _ in range(7)]
    seen: list[str] = []
    cursor = ""
    while True:
        answer = call("GET", f"{RUNS}?limit=3&cursor={cursor}").json()
        seen += [run["id"] for run in answer["runs"]]
        if answer["next"] is None:
            break
        cursor = answer["next"]
    assert seen == made[::-1]
    assert call("GET", f"{RUNS}?owner=me").json()["runs"]
    assert call("GET", f"{RUNS}?outcome=passed").json() == {"runs": [], "next": None}


def test_a_finished_run_brings_its_summary(call: Caller, make_run: Callable[..., Run]) -> None:
    run = make_run(state=State.FINISHED, outcome=Outcome.PASSED, summary={"systems": {"blink": {}}})
    found = call("GET", f"{RUNS}/{run.label}?wait=30").json()
    assert found["summary"] == {"systems": {"blink": {}}}


def read_all(call: Caller, run: str, **query: str) -> tuple[list[dict[str, Any]], int]:
    events: list[dict[str, Any]] = []
    cursor, answers = "", 0
    while True:
        response = call("GET", f"{RUNS}/{run}/events?cursor={cursor}")
        assert response.headers["Content-Type"] == "application/x-ndjson"
        *lines, last = [json.loads(line) for line in response.content.splitlines()]
        assert response.headers["Looplane-Cursor"] == last["cursor"]
        events += lines
        answers += 1
        if last["end"]:
            return events, answers
        assert last["cursor"] != cursor
        cursor = last["cursor"]


def test_events_from_a_cursor_are_the_log(
    call: Caller, make_run: Callable[..., Run], put_run: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webui.api.events.PAGE_BYTES", 50_000)
    run = make_run(state=State.FINISHED, outcome=Outcome.PASSED)
    folder = put_run(run.pk)
    events, answers = read_all(call, run.pk)
    assert answers > 5
    expected = [(record.t, record.node, record.seq) for record in merge(folder / "events")]
    assert sorted((event["t"], event["node"], event["seq"]) for event in events) == expected


def test_events_of_a_run_that_goes_on_have_no_end(
    call: Caller, make_run: Callable[..., Run], put_run: Callable[[str], Path]
) -> None:
    run = make_run(state=State.RUNNING)
    folder = put_run(run.pk)
    shutil.rmtree(folder / "events")
    response = call("GET", f"{RUNS}/{run.pk}/events")
    assert json.loads(response.content) == {"cursor": "", "end": False}
    assert response.headers["Looplane-End"] == "false"


@pytest.mark.parametrize("query", ["cursor=zzz", "cursor=gpu0:-1", "cursor=gpu0:1,gpu0:2", "trial=../x", "wait=31"])
def test_odd_places_are_refused(call: Caller, make_run: Callable[..., Run], query: str) -> None:
    response = call("GET", f"{RUNS}/{make_run().pk}/events?{query}")
    assert response.status_code == 422
    assert error(response)["path"] == query.split("=")[0]


def test_experiments_and_the_description_of_it_all(call: Caller) -> None:
    names = [item["name"] for item in call("GET", "/api/v1/experiments").json()]
    assert {"blink/demo", "blink/small"} <= set(names)
    described = call("GET", "/api/v1/openapi.json").json()
    assert described["openapi"].startswith("3.1")
    assert {"/api/v1/runs", "/api/v1/runs/{run_id}/events"} <= set(described["paths"])
