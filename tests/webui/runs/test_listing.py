"""The list of runs: constant queries, pages both ways, filters, tags, and what may be done with several at once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from webui.accounts.callers import by_session
from webui.accounts.models import User
from webui.runs.listing import Asked, read_address, run_page
from webui.runs.models import Run, Visibility
from webui.runs.states import Outcome, State
from webui.runs.tags import TagFault, read_tags, run_tag

Make = Callable[..., Any]


def fill(number: int, owner: User, **fields: Any) -> None:
    """So many rows, a minute apart, some of the same moment."""
    now, present = timezone.now(), Run.objects.count()
    # Numbered: of a thousand random ids of one second two are the same in every thirtieth run of the tests.
    rows = [
        Run(id=f"{now:%Y%m%d-%H%M%S}-{present + n:06x}", question=f"Question {n}", backend="sim", spec="x", owner=owner,
            **fields)
        for n in range(number)
    ]  # fmt: skip
    Run.objects.bulk_create(rows)
    for place, row in enumerate(rows):
        row.created_at = now - timedelta(minutes=place // 3)
    Run.objects.bulk_update(rows, ["created_at"], batch_size=200)


@pytest.mark.django_db
@pytest.mark.parametrize(
    "address", ["/runs", "/runs?text=question&state=queued", "/runs?tag=none&sort=ended", "/runs/table"]
)
def test_a_page_of_the_list_costs_the_same_queries_however_many_runs_there_are(
    address: str, logged_in: Client, user: User
) -> None:
    logged_in.get(address)
    asked = []
    for more in (10, 990):
        fill(more, user)
        with CaptureQueriesContext(connection) as queries:
            assert logged_in.get(address).status_code == 200
        asked.append([query["sql"].split(" WHERE ")[0] for query in queries])
    # Session, person, groups, benches, ids, rows; and what the session does about its own age.
    assert len(asked[0]) == len(asked[1]) <= 10, asked


@pytest.mark.django_db
@pytest.mark.parametrize("order", ["newest", "oldest", "ended"])
def test_pages_go_on_and_back_without_gap_or_double(order: str, user: User) -> None:
    fill(23, user, state=State.FINISHED, outcome=Outcome.PASSED, finished_at=timezone.now())
    caller = by_session(user)
    filters = {} if order == "newest" else {"sort": order}
    whole = [run.pk for run in run_page(caller=caller, asked=Asked(filters)).rows]
    assert len(whole) == len(set(whole)) == 23
    pages, asked = [], Asked(filters)
    while True:
        page = run_page(caller=caller, asked=asked, rows=5)
        pages.append([run.pk for run in page.rows])
        if not page.older:
            break
        asked = Asked(filters, after=page.older)
    assert [pk for rows in pages for pk in rows] == whole
    back = []
    while page.newer:
        page = run_page(caller=caller, asked=Asked(filters, before=page.newer), rows=5)
        back.append([run.pk for run in page.rows])
    assert back == pages[-2::-1]


@pytest.mark.django_db
def test_a_run_that_may_not_be_read_is_no_place_to_go_on_from(make_user: Make, make_run: Make, user: User) -> None:
    theirs = make_run(owner=make_user("eve"), visibility=Visibility.PRIVATE)
    fill(3, user)
    page = run_page(caller=by_session(user), asked=Asked(after=theirs.pk))
    assert len(page.rows) == 3


@pytest.mark.django_db
def test_every_filter_narrows(make_run: Make, make_user: Make, user: User) -> None:
    from webui.benches.models import Bench

    bench = Bench.objects.create(name="bench-1")
    eve = make_user("eve")
    one = make_run(
        experiment="blink/demo", tags=["nightly", "lab-2"], fidelity="faithful", bench=bench, backend="mininet",
        state=State.FINISHED, outcome=Outcome.PASSED, finished_at=timezone.now(), question="Who is 'first'?"
    )  # fmt: skip
    other = make_run(owner=eve, visibility=Visibility.EVERYONE, tags=["night"])
    Run.objects.filter(pk=other.pk).update(created_at=timezone.now() - timedelta(days=3))
    caller = by_session(user)

    def found(query: str) -> set[str]:
        from django.http import QueryDict

        return {run.pk for run in run_page(caller=caller, asked=read_address(QueryDict(query).dict())).rows}

    only_one = ["experiment=blink/demo", "tag=lab-2", "tag=nightly", "fidelity=faithful", "bench=bench-1", "on=mininet"]
    only_one += ["state=finished", "outcome=passed", "time=day", "mine=1", "owner=ada", "sort=ended"]
    only_one += ["text=FIRST", "text=lab-2", "text=%27first%27", f"text={one.label}"]
    for query in only_one:
        assert found(query) == {one.pk}, query
    for query in ("tag=night", "owner=eve", "state=queued", "text=night%22"):
        assert found(query) == {other.pk}, query
    for query in ("tag=nigh", "text=%25", "text=_x_", "owner=nobody", "bench=b", "experiment=blink/dem"):
        assert found(query) == set(), query
    for query in ("state=nonsense", "on=moon", "sort=up", "time=eon", "after=zzzzzz", "text=%00"):
        assert found(query) == {one.pk, other.pk}, query


@pytest.mark.django_db
def test_several_are_cancelled_at_once_but_only_ones_own(
    logged_in: Client, make_run: Make, make_user: Make, sent: list[str]
) -> None:
    mine, theirs = make_run(), make_run(owner=make_user("eve"), visibility=Visibility.EVERYONE)
    hidden = make_run(owner=theirs.owner, visibility=Visibility.PRIVATE)
    data = {"act": "cancel", "run": [mine.pk, theirs.pk, hidden.pk], "back-state": "queued"}
    answer = logged_in.post("/runs/chosen", data, follow=True)
    assert answer.redirect_chain[-1][0] == "/runs?state=queued"
    page = answer.content.decode()
    assert "1 run asked to end" in page
    assert "1 of them belongs to somebody else" in page
    states = dict(Run.objects.values_list("pk", "state"))
    assert states == {mine.pk: State.FINISHED, theirs.pk: State.QUEUED, hidden.pk: State.QUEUED}


@pytest.mark.django_db
def test_two_to_eight_are_compared(logged_in: Client, make_run: Make) -> None:
    one, two = make_run(), make_run()
    page = logged_in.post("/runs/chosen", {"act": "compare", "run": [one.pk]}, follow=True).content.decode()
    assert "Tick two to 8 runs" in page
    answer = logged_in.post("/runs/chosen", {"act": "compare", "run": [one.pk, two.pk]})
    assert answer.headers["Location"] == f"/compare?run={one.pk}&run={two.pk}"


@pytest.mark.django_db
def test_tags_are_added_and_removed_by_those_who_may(
    logged_in: Client, make_run: Make, make_user: Make, user: User
) -> None:
    mine, theirs = make_run(tags=["a"]), make_run(owner=make_user("eve"), visibility=Visibility.EVERYONE)
    data = {"act": "tag", "tags": "Nightly, lab-2", "run": [mine.pk, theirs.pk]}
    page = logged_in.post("/runs/chosen", data, follow=True).content.decode()
    assert "Tags of 1 run changed" in page
    assert Run.objects.get(pk=mine.pk).tags == ["a", "nightly", "lab-2"]
    assert Run.objects.get(pk=theirs.pk).tags == []
    logged_in.post("/runs/chosen", {"act": "untag", "tags": "a", "run": [mine.pk]})
    assert Run.objects.get(pk=mine.pk).tags == ["nightly", "lab-2"]
    assert "allowed" not in page
    bad = logged_in.post("/runs/chosen", {"act": "tag", "tags": "<b>", "run": [mine.pk]}, follow=True)
    assert "small letters" in bad.content.decode()
    with pytest.raises(TagFault, match="at most 10"):
        run_tag(caller=by_session(user), run_ids=[mine.pk], add=[f"t{n}" for n in range(9)])


def test_tags_are_words() -> None:
    assert read_tags(" a,b  A\nb ") == ["a", "b"]
    for bad in ("é", "-x", "x" * 31, 'a"b', "a b c d e f g h i j k"):
        with pytest.raises(TagFault):
            read_tags(bad)


@pytest.mark.django_db
def test_a_viewer_is_offered_no_change(make_user: Make, make_run: Make) -> None:
    run = make_run(visibility=Visibility.EVERYONE)
    client = Client()
    client.force_login(make_user("vera", role="viewer"))
    page = client.get("/runs").content.decode()
    assert run.label in page
    assert "Cancel these runs" not in page
    client.post("/runs/chosen", {"act": "tag", "tags": "x", "run": [run.pk]})
    client.post("/runs/chosen", {"act": "cancel", "run": [run.pk]})
    run.refresh_from_db()
    assert (run.tags, run.state) == ([], State.QUEUED)
