"""Pages of the list while runs come in, filters, and what a list costs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.django import TransactionTestCase
from pytest_django import DjangoAssertNumQueries

from testbed.experiment.run_folder import new_run_id
from tests.webui.api.calling import RUNS, Caller, error
from webui.accounts.models import User
from webui.api.schemas import RunBrief
from webui.runs.models import Run
from webui.runs.states import Outcome, State


def add(owner: User, minutes_ago: int) -> str:
    """A run that says it was made then; several may be of one moment."""
    run = Run.objects.create(id=new_run_id(timezone.now()), question="?", backend="sim", spec="", owner=owner)
    moment = timezone.now().replace(second=0, microsecond=0) - timedelta(minutes=minutes_ago)
    Run.objects.filter(pk=run.pk).update(created_at=moment)
    return run.pk


class Paging(TransactionTestCase):
    @given(
        st.lists(st.integers(0, 5), min_size=1, max_size=12),
        st.lists(st.integers(0, 5), max_size=8),
        st.integers(1, 4),
    )
    @settings(max_examples=12)
    def test_pages_stay_right_while_runs_are_added(self, before: list[int], during: list[int], limit: int) -> None:
        """Every run that was there at the start comes once, in order; one that is added comes at most once."""
        user = User.objects.create(username="ada")
        call = Caller(user)
        there = [add(user, minutes) for minutes in before]
        coming, seen, cursor = list(during), [], ""
        while True:
            page = call("GET", f"{RUNS}?limit={limit}&cursor={cursor}").json()
            seen += [run["id"] for run in page["runs"]]
            if page["next"] is None:
                break
            cursor = page["next"]
            if coming:
                add(user, coming.pop())
        assert len(seen) == len(set(seen))
        assert [run for run in seen if run in there] == [
            run.pk for run in Run.objects.filter(pk__in=there).order_by("-created_at", "-id")
        ]


@pytest.mark.django_db(transaction=True)
def test_a_list_costs_the_same_with_one_run_and_with_a_hundred(
    call: Caller, make_run: Callable[..., Run], django_assert_num_queries: DjangoAssertNumQueries, settings: Any
) -> None:
    settings.RATE_LIMITS = {**settings.RATE_LIMITS, "api": 0}
    settings.RUNS_FOLDER = "/nonexistent"  # and no look at any folder
    make_run()
    call("GET", f"{RUNS}?limit=100")  # notes the token's use, once a minute
    with django_assert_num_queries(3):  # token, groups, runs
        call("GET", f"{RUNS}?limit=100")
    for number in range(99):
        make_run(state=State.QUEUED if number % 2 else State.RUNNING)
    with django_assert_num_queries(3):
        page = call("GET", f"{RUNS}?limit=100").json()
    assert len(page["runs"]) == 100
    for run in page["runs"]:
        RunBrief.model_validate(run)


@pytest.mark.django_db(transaction=True)
def test_each_filter_narrows(call: Caller, make_run: Callable[..., Run], make_user: Callable[..., User]) -> None:
    passed = make_run(state=State.FINISHED, outcome=Outcome.PASSED, fidelity="faithful", tags=["nightly"])
    emulated = make_run(backend="mininet", experiment="blink/demo", question="How fast is a ring?")
    shared = make_run(owner=make_user("bob"), visibility="everyone")
    make_run(owner=User.objects.get(username="bob"))  # not the caller's to read

    def ids(query: str) -> set[str]:
        return {run["id"] for run in call("GET", f"{RUNS}?{query}").json()["runs"]}

    assert ids("") == {passed.pk, emulated.pk, shared.pk}
    assert ids("owner=me") == {passed.pk, emulated.pk}
    assert (
        ids("state=finished") == ids("outcome=passed") == ids("fidelity=faithful") == ids("tag=nightly") == {passed.pk}
    )
    assert ids("tag=night") == set()
    assert ids("on=mininet") == ids("experiment=blink/demo") == ids("text=RING") == {emulated.pk}
    now = timezone.now().isoformat().replace("+00:00", "Z")
    assert ids(f"created_after={now}") == set()
    assert ids(f"created_before={now}") == ids("")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(
    ("query", "path"),
    [("created_after=2026", "created_after"), ("created_before=0.5", "created_before"), ("owner=bob", "owner"),
     ("created_after=2026-01-01T00:00:00", "created_after"), ("text=%00", "text"), ("cursor=%F0%9F%98%80", "cursor"),
     ("limit=1e2", "limit"), ("tags=x", "tags")],
)  # fmt: skip
def test_odd_filters_are_refused_by_name(call: Caller, query: str, path: str) -> None:
    response = call("GET", f"{RUNS}?{query}")
    assert response.status_code == 422
    assert error(response)["path"] == path
