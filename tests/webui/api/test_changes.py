"""Making runs with wishes, once each; sharing, tags, time; by owner, admin and nobody else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import Group
from django.utils import timezone

from tests.webui.api.calling import RUNS, Caller, error
from webui.accounts.models import Quota, User
from webui.runs.models import Run
from webui.runs.states import State

pytestmark = pytest.mark.django_db(transaction=True)


def test_ten_requests_with_one_key_at_once_make_one_run(served: str, user: User) -> None:
    """Over real connections to the real server."""
    headers = {"Authorization": f"Bearer {Caller(user).secret}", "Idempotency-Key": "build-7"}
    answers: list[httpx.Response] = []
    barrier = threading.Barrier(10)

    def ask() -> None:
        barrier.wait()
        answers.append(httpx.post(f"{served}{RUNS}", json={"experiment": "blink/small"}, headers=headers, timeout=60))

    threads = [threading.Thread(target=ask) for _ in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [202]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert Run.objects.count() == 1


def test_wishes_are_kept(call: Caller, user: User, sent: list[str], make_run: Callable[..., Run]) -> None:
    group = Group.objects.create(name="class-a")
    user.groups.add(group)
    before = make_run()
    wishes = {
        "tags": ["nightly", "pr-81"],
        "time_limit_s": 60,
        "visibility": "groups",
        "groups": ["class-a"],
        "clone_of": before.pk,
    }
    run = call("POST", RUNS, {"experiment": "blink/small", **wishes}).json()
    assert {name: run[name] for name in wishes} == wishes
    assert run["queue"]["position"] is not None


@pytest.mark.parametrize(
    ("wish", "path"),
    [
        ({"tags": ["Not A Tag"]}, "tags"),
        ({"tags": ["x"] * 11}, "tags"),
        ({"time_limit_s": 1}, "time_limit_s"),
        ({"time_limit_s": 86_400}, "time_limit_s"),
        ({"time_limit_s": "60"}, "time_limit_s"),
        ({"visibility": "world"}, "visibility"),
        ({"visibility": "groups"}, "groups"),
        ({"visibility": "groups", "groups": ["of-others"]}, "groups"),
        ({"clone_of": "20260101-000000-abcdef"}, "clone_of"),
        ({"needs": ["a need with spaces"]}, "needs"),
    ],
)
def test_wishes_that_cannot_be_are_refused_by_name(call: Caller, wish: dict[str, Any], path: str) -> None:
    Group.objects.create(name="of-others")
    response = call("POST", RUNS, {"experiment": "blink/small", **wish})
    assert response.status_code == 422, response.content
    assert error(response)["path"].startswith(path)
    assert not Run.objects.exists()


def test_a_full_quota_says_when_to_come_again(call: Caller, user: User, sent: list[str]) -> None:
    Quota.objects.create(user=user, queued_runs=1)
    assert call("POST", RUNS, {"experiment": "blink/small"}).status_code == 202
    response = call("POST", RUNS, {"experiment": "blink/small"})
    assert response.status_code == 429
    assert int(response.headers["Retry-After"]) > 0
    assert error(response)["code"] == "quota"
    assert Run.objects.count() == 1


def test_a_run_is_tagged_and_shared(call: Caller, user: User, make_run: Callable[..., Run]) -> None:
    group = Group.objects.create(name="class-a")
    user.groups.add(group)
    run = make_run(tags=["old"])
    told = call("PATCH", f"{RUNS}/{run.pk}", {"tags": ["new", "more"]}).json()
    assert (told["tags"], told["visibility"]) == (["new", "more"], "private")
    told = call("PATCH", f"{RUNS}/{run.pk}", {"visibility": "groups", "groups": ["class-a"]}).json()
    assert (told["tags"], told["visibility"], told["groups"]) == (["new", "more"], "groups", ["class-a"])
    told = call("PATCH", f"{RUNS}/{run.pk}", {"visibility": "everyone"}).json()
    assert (told["visibility"], told["groups"]) == ("everyone", [])
    refused = call("PATCH", f"{RUNS}/{run.pk}", {"tags": ["kept-not"], "visibility": "groups"})
    assert refused.status_code == 422
    run.refresh_from_db()
    assert run.tags == ["new", "more"]  # all or nothing


def test_others_change_nothing(make_run: Callable[..., Run], make_user: Callable[..., User]) -> None:
    run = make_run(visibility="everyone", state=State.RUNNING, ends_by=timezone.now() + timedelta(minutes=1))
    for role in ("viewer", "runner", "instructor"):
        other = Caller(make_user(role, role=role))
        assert other("PATCH", f"{RUNS}/{run.pk}", {"tags": ["x"]}).status_code == 403
        assert other("POST", f"{RUNS}/{run.pk}/extend", {"minutes": 5}).status_code == 403
        assert other("POST", f"{RUNS}/{run.pk}/cancel").status_code == 403
    run.refresh_from_db()
    assert (run.tags, run.cancel_requested_at) == ([], None)


def test_more_time(call: Caller, make_run: Callable[..., Run]) -> None:
    soon = timezone.now() + timedelta(minutes=1)
    run = make_run(state=State.RUNNING, ends_by=soon)
    told = call("POST", f"{RUNS}/{run.pk}/extend", {"minutes": 5})
    assert told.status_code == 200
    run.refresh_from_db()
    assert run.ends_by == soon + timedelta(minutes=5)
    for minutes in (0, 1441, 1.5, True, "5"):
        assert error(call("POST", f"{RUNS}/{run.pk}/extend", {"minutes": minutes}))["path"] == "minutes"
    queued = make_run()
    assert call("POST", f"{RUNS}/{queued.pk}/extend", {"minutes": 5}).status_code == 409
