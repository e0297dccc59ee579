from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from testbed.experiment.summary import fold_trial, summarise, write_summary
from tests.testbed.metrics.host_stories import host_story
from webui.accounts.models import User
from webui.runs.exports import FORMATS
from webui.runs.models import Run
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db

XSS = "<script>alert(1)</script>"


def text(response: Any) -> str:
    return b"".join(response.streaming_content).decode() if response.streaming else response.content.decode()


@pytest.fixture
def finished(make_run: Callable[..., Run], put_run: Callable[[str], Path]) -> Run:
    run = make_run(state=State.FINISHED, outcome=Outcome.PASSED, experiment="blink/small", systems=["blink"], seed=8)
    put_run(run.pk)
    return run


def facts_of(page: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(page.split('id="page-facts" type="application/json">')[1].split("</script>")[0])
    return found


def test_the_page_brings_plan_and_tables_along(logged_in: Client, finished: Run) -> None:
    facts = facts_of(text(logged_in.get(f"/runs/{finished.pk}")))
    assert facts["run"]["outcome"] == "passed"
    assert facts["plan"]["slots"] == 4096
    assert {node["name"] for node in facts["plan"]["nodes"]} == {"client0", "dpu0", "gpu0", "host0"}
    assert facts["stream"] == f"/ws/runs/{finished.pk}"
    assert facts["expectations"] == 2
    assert {limit["name"] for limit in facts["limits"]} >= {"lateness p99", "drops"}
    assert facts["levels"]["clock.late"] == "warning"


def test_a_short_label_leads_to_the_whole_id(logged_in: Client, finished: Run) -> None:
    assert logged_in.get(f"/runs/{finished.label}").headers["Location"] == f"/runs/{finished.pk}"


@pytest.mark.parametrize("state", [State.QUEUED, State.PREPARING, State.RUNNING, State.FINALISING])
def test_a_page_in_every_state(logged_in: Client, make_run: Callable[..., Run], state: State) -> None:
    page = text(logged_in.get(f"/runs/{make_run(state=state).pk}"))
    assert "Cancel run…" in page
    assert facts_of(page)["plan"] is None


def test_what_people_write_is_escaped_everywhere(logged_in: Client, make_run: Callable[..., Run]) -> None:
    run = make_run(question=XSS, overrides=[XSS], spec=XSS, detail=XSS, experiment="", systems=[XSS])
    for address in (
        f"/runs/{run.pk}",
        "/runs",
        "/experiments",
        "/runs/table",
        f"/experiments/new?from={run.pk}",
        f"/runs?text={XSS}",
    ):
        page = text(logged_in.get(address))
        assert XSS not in page, address
    assert text(logged_in.post("/experiments/new", {"spec": XSS, "on": "sim", "overrides": XSS})).count(XSS) == 0


@pytest.mark.parametrize(
    "address", ["/runs/nope", "/runs/20260101-000000-abcdef", "/runs/x/files", "/runs/x/export/csv", "/runs/%00"]
)
def test_what_is_not_there_is_a_404_page(logged_in: Client, address: str) -> None:
    response = logged_in.get(address)
    assert response.status_code == 404
    assert "There is nothing here" in text(response)


def test_files_are_listed_and_fetched(logged_in: Client, finished: Run) -> None:
    listed = text(logged_in.get(f"/runs/{finished.pk}/files"))
    assert "Report" in listed
    assert "Events gpu0" in listed
    spec = logged_in.get(f"/runs/{finished.pk}/files/spec.toml")
    assert "blink-small" in text(spec)
    assert spec.headers["Content-Disposition"].startswith("attachment")
    report = logged_in.get(f"/runs/{finished.pk}/files/report/index.html")
    assert report.headers["Content-Security-Policy"].startswith("sandbox")
    assert "<html" in text(report)
    assert logged_in.get(f"/runs/{finished.pk}/files/control/outcome.json").status_code == 404


def test_the_host_its_neighbours_and_recovery_are_a_table_of_a_finished_run(
    logged_in: Client, finished: Run, runs_folder: Path
) -> None:
    address = f"/runs/{finished.pk}/surroundings"
    assert "Host, neighbours" not in text(logged_in.get(address))
    told = runs_folder / finished.pk / "summary.json"
    told.write_bytes(write_summary(summarise("x", "x", [fold_trial("t", "vllm", "", host_story().records())])))
    for page in (text(logged_in.get(address)), text(logged_in.get(f"/runs/{finished.pk}"))):
        assert "Host, neighbours, recovery" in page
        assert "launch gap p50" in page
        assert "<td>beside</td><td>zip: " in page
    told.write_text('{"systems": {"vllm": {"host": 3}, "blink": []}}')
    assert "Host, neighbours" not in text(logged_in.get(address))


@pytest.mark.parametrize("form", list(FORMATS))
def test_every_export(logged_in: Client, finished: Run, form: str) -> None:
    response = logged_in.get(f"/runs/{finished.pk}/export/{form}")
    assert response.status_code == 200
    assert finished.label in response.headers["Content-Disposition"]
    data = response.content
    match form:
        case "perfetto":
            assert json.loads(data)["traceEvents"]
        case "csv":
            with zipfile.ZipFile(io.BytesIO(data)) as archive:
                assert sorted(archive.namelist()) == ["requests.csv", "tokens.csv"]
        case "json":
            assert json.loads(data)
        case "junit":
            assert b"<testsuite" in data


def test_an_export_of_a_run_without_a_folder_says_why(logged_in: Client, make_run: Callable[..., Run]) -> None:
    run = make_run(state=State.FINISHED, outcome=Outcome.LOST)
    response = logged_in.get(f"/runs/{run.pk}/export/csv", follow=True)
    assert "cannot be exported" in text(response)
    assert logged_in.get(f"/runs/{run.pk}/export/pdf").status_code == 404


def test_cancel_from_the_page(
    logged_in: Client, make_run: Callable[..., Run], make_user: Callable[..., User], sent: list[str]
) -> None:
    run = make_run(state=State.RUNNING)
    assert logged_in.get(f"/runs/{run.pk}/cancel").status_code == 405
    logged_in.post(f"/runs/{run.pk}/cancel")
    run.refresh_from_db()
    assert run.is_cancelling
    other = make_run(state=State.RUNNING, owner=make_user("bob"))
    assert logged_in.post(f"/runs/{other.pk}/cancel").status_code == 404
    Run.objects.filter(pk=other.pk).update(visibility="everyone")
    assert "Only the run" in text(logged_in.post(f"/runs/{other.pk}/cancel", follow=True))
    other.refresh_from_db()
    assert not other.is_cancelling


def test_the_list_filters_and_pages(
    logged_in: Client, make_run: Callable[..., Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("webui.runs.views.PAGE", 2)
    runs = [make_run(question=f"Question {n}?") for n in range(3)]
    first = text(logged_in.get("/runs"))
    assert runs[2].label in first
    assert runs[0].label not in first
    assert f"before={runs[1].pk}" in first
    assert runs[0].label in text(logged_in.get(f"/runs?before={runs[1].pk}"))
    assert "No run matches" in text(logged_in.get("/runs?outcome=passed&text=zzz"))
    assert runs[1].label in text(logged_in.get("/runs?text=Question 1&mine=1&state=queued&on=sim"))


@pytest.mark.parametrize(
    "query",
    [
        "state=x",
        "outcome=%00",
        "before=zzz",
        "text=%00%FF",
        "on=1&on=2",
        "limit=-1",
        "limit=²",
        "mine=maybe",
        "text=" + "x" * 5000,
    ],
)
def test_odd_filters_are_dropped_not_an_error(logged_in: Client, make_run: Callable[..., Run], query: str) -> None:
    make_run()
    assert logged_in.get(f"/runs?{query}").status_code == 200
    assert logged_in.get(f"/runs/table?{query}").status_code == 200


def test_an_empty_list_says_the_next_step(logged_in: Client) -> None:
    assert "No run yet" in text(logged_in.get("/runs"))
    assert "looplane demo" in text(logged_in.get("/runs/table"))
