"""Pages, lanes and tables of comparisons: for whom they are there, and what odd addresses get."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytestmark = pytest.mark.django_db

ADDRESSES = ("/compare", "/compare/lanes", "/compare/table.csv", "/compare/table.json")
SWEEPS = ("/compare/sweep", "/compare/sweep.csv", "/compare/sweep.json")


def address(path: str, *runs: str, **more: str) -> str:
    return f"{path}?{urlencode([*(('run', run) for run in runs), *more.items()])}"


def test_a_stranger_is_asked_to_log_in(client: Client, swept: Any) -> None:
    for path in (*ADDRESSES, *SWEEPS):
        answer = client.get(address(path, swept.pk))
        assert answer.status_code == 302
        assert answer["Location"].startswith("/login")


@pytest.mark.parametrize("role", ["viewer", "runner", "instructor"])
def test_anothers_run_is_not_there(make_user: Callable[..., Any], swept: Any, role: str) -> None:
    client = Client()
    client.force_login(make_user("bob", role=role))
    for path in (*ADDRESSES, *SWEEPS):
        for told in ((swept.pk,), (swept.label,), (f"{swept.pk}:other",), (swept.pk, swept.pk)):
            answer = client.get(address(path, *told))
            assert answer.status_code == 404
            assert b"batch" not in answer.content
        never = client.get(address(path, "20261130-120000-ffffff"))
        assert never.status_code == 404
    assert client.get("/compare").content.count(b'name="run"') == 0


@pytest.mark.parametrize("role", ["viewer", "admin"])
def test_a_shared_run_is(make_user: Callable[..., Any], swept: Any, role: str) -> None:
    if role == "viewer":
        swept.visibility = "everyone"
        swept.save()
    client = Client()
    client.force_login(make_user("bob", role=role))
    for path in (*ADDRESSES, *SWEEPS):
        assert client.get(address(path, swept.pk)).status_code == 200


def test_one_run_that_is_not_ones_own_hides_the_whole_comparison(
    logged_in: Client, make_user: Callable[..., Any], finished: Callable[..., Any]
) -> None:
    mine, theirs = finished(), finished("20261130-110001-0a0a02", owner=make_user("bob"))
    for path in ADDRESSES:
        assert logged_in.get(address(path, mine.pk, theirs.pk)).status_code == 404


def test_the_page_says_what_differs_what_came_of_it_and_escapes_what_people_wrote(
    logged_in: Client, swept: Any
) -> None:
    page = logged_in.get(address("/compare", swept.pk)).content.decode()
    assert "system.max_batch" in page
    assert "mean time to first token" in page
    assert "ttft_ms.mean" in page
    assert "Whole distributions" in page
    assert 'data-lanes="/compare/lanes?run=' in page
    assert "data-pending" not in page
    assert "<script>" not in page
    assert " style=" not in page
    assert "<b>batch</b>" not in logged_in.get("/compare").content.decode()


def test_all_figures_on_request(logged_in: Client, swept: Any) -> None:
    few = logged_in.get(address("/compare", swept.pk)).content.decode()
    every = logged_in.get(address("/compare", swept.pk, all="1")).content.decode()
    assert "ttft_ms.worst" not in few
    assert "ttft_ms.worst" in every


def test_fewer_than_two_sides_offer_a_list(logged_in: Client, finished: Callable[..., Any]) -> None:
    run = finished()
    for told in ((), (run.pk,)):
        answer = logged_in.get(address("/compare", *told))
        assert answer.status_code == 200
        assert f'value="{run.pk}"' in answer.content.decode()
    searched = logged_in.get(address("/compare", text="nowhere")).content.decode()
    assert "No finished run matches" in searched


def test_an_empty_console_says_the_next_step(logged_in: Client) -> None:
    assert "Open an <a" in logged_in.get("/compare").content.decode()


def test_the_list_takes_the_same_queries_for_many_runs(
    logged_in: Client, make_run: Callable[..., Any], django_assert_max_num_queries: Any
) -> None:
    for _ in range(30):
        make_run(state="finished", outcome="passed")
    with django_assert_max_num_queries(8):
        logged_in.get("/compare")


@pytest.mark.parametrize(
    ("told", "words"),
    [(["ID:warp", "ID"], "has no &#x27;warp&#x27;"), (["ID"] * 7, "at most 6 can be compared")],
)
def test_what_cannot_be_compared_is_said_above_the_list(
    logged_in: Client, swept: Any, told: list[str], words: str
) -> None:
    answer = logged_in.get(address("/compare", *(text.replace("ID", swept.pk) for text in told)))
    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert logged_in.get(address("/compare/table.csv", f"{swept.pk}:warp", swept.pk)).status_code == 422


def test_lanes_are_the_same_requests_in_the_same_order(logged_in: Client, swept: Any) -> None:
    told = json.loads(logged_in.get(address("/compare/lanes", swept.pk)).content)
    assert told["matched"] == "name"
    one, other = told["sides"]
    assert [lane["name"] for lane in one["lanes"]] == [lane["name"] for lane in other["lanes"]]
    assert len(one["lanes"]) == one["requests"] == 10
    assert one["lanes"][0]["start"] == other["lanes"][0]["start"] == 0
    for side in (one, other):
        for lane in side["lanes"]:
            assert lane["phases"][0]["start"] == lane["start"]
            assert lane["tokens"] == sorted(lane["tokens"])


def test_the_table_reads_as_csv_and_holds_what_the_json_holds(logged_in: Client, swept: Any) -> None:
    told = json.loads(logged_in.get(address("/compare/table.json", swept.pk)).content)
    answer = logged_in.get(address("/compare/table.csv", swept.pk))
    assert answer["Content-Disposition"] == f'attachment; filename="compare-{swept.label}.csv"'
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    figures = {row["path"]: row for row in rows if row["what"] == "figure"}
    assert len(figures) == len(told["figures"])
    for figure in told["figures"]:
        value = figures[figure["metric"]]["A value"]
        assert (float(value) if value else None) == figure["cells"][0]["value"]
    assert {row["path"] for row in rows if row["what"] == "differs"} == {row["path"] for row in told["settings"]}


def test_a_sweep_is_a_chart_whose_points_open_trials(logged_in: Client, swept: Any) -> None:
    page = logged_in.get(address("/compare/sweep", swept.pk)).content.decode()
    assert f'href="/runs/{swept.pk}?trial=blink-rate_per_s%3D50"' in page
    assert 'aria-label="blink at Workload, arrivals, rate 50 a second: ' in page
    assert page.count('<circle class="hit"') == 4
    assert "<table" in page
    bounded = logged_in.get(address("/compare/sweep", swept.pk, y="ttft_ms.p50")).content.decode()
    assert "at most 100 ms" in bounded


@pytest.mark.parametrize(
    ("more", "words"),
    [({"x": "seed"}, "x: &#x27;seed&#x27;: workload"), ({"y": "warp"}, "y: &#x27;warp&#x27;: a figure")],
)
def test_what_was_not_swept_is_refused_in_one_line(
    logged_in: Client, swept: Any, more: dict[str, str], words: str
) -> None:
    answer = logged_in.get(address("/compare/sweep", swept.pk, **more))
    assert answer.status_code == 422
    assert words in answer.content.decode()
    assert logged_in.get(address("/compare/sweep.csv", swept.pk, **more)).status_code == 422


def test_a_run_without_a_sweep_leads_elsewhere(logged_in: Client, finished: Callable[..., Any]) -> None:
    answer = logged_in.get(address("/compare/sweep", finished().pk))
    assert answer.status_code == 422
    assert "Compare this run with another" in answer.content.decode()


def test_the_sweeps_table_has_a_row_for_each_point(logged_in: Client, swept: Any) -> None:
    rows = list(csv.DictReader(io.StringIO(logged_in.get(address("/compare/sweep.csv", swept.pk)).content.decode())))
    assert [(row["system"], row["workload.arrivals.rate_per_s"]) for row in rows] == [
        ("blink", "50"), ("blink", "200"), ("other", "50"), ("other", "200"),
    ]  # fmt: skip
    told = json.loads(logged_in.get(address("/compare/sweep.json", swept.pk)).content)
    assert [float(row["ttft_ms.mean"]) for row in rows] == [
        point["cell"]["value"] for line in told["panels"][0]["lines"] for point in line["points"]
    ]


OURS = ["0a1b2c", "0a1b2c:", "0a1b2c:\x00", "0a1b2c:other"]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    path=st.sampled_from([*ADDRESSES, *SWEEPS]),
    told=st.lists(st.one_of(st.text(max_size=30), st.sampled_from(OURS)), max_size=8),
    more=st.dictionaries(st.sampled_from(["x", "y", "text", "pick", "all", "view"]), st.text(max_size=20), max_size=3),
)  # fmt: skip
def test_odd_addresses_are_no_fault_of_ours(
    logged_in: Client, swept: Any, path: str, told: list[str], more: dict[str, str]
) -> None:
    """Known fault F12."""
    assert logged_in.get(address(path, *told, **more)).status_code in (200, 404, 422)
