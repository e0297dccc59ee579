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
    assert (facts["plan"]["slots"], facts["plan"]["rings"]) == (4096, ["gpu0"])
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
    address = f"/runs/{finished.pk}/evidence"
    assert "launch gap" not in text(logged_in.get(address))
    told = runs_folder / finished.pk / "summary.json"
    told.write_bytes(write_summary(summarise("x", "x", [fold_trial("t", "vllm", "", host_story().records())])))
    for page in (text(logged_in.get(address)), text(logged_in.get(f"/runs/{finished.pk}"))):
        assert "Host, neighbours, energy, recovery" in page
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


def test_the_log_is_searched_paged_and_downloaded(logged_in: Client, finished: Run) -> None:
    address = f"/runs/{finished.pk}/log"
    found = logged_in.get(f"{address}?level=info&text=REQUEST-00001").json()
    assert found["older"] is None
    assert {event["type"] for event in found["events"]} == {"request.sent", "request.finished"}
    first = logged_in.get(address).json()
    assert len(first["events"]) == 250
    after = logged_in.get(f"{address}?before={first['older']}").json()["events"]
    assert (after[0]["t"], after[0]["node"], after[0]["seq"]) < tuple(
        first["events"][-1][name] for name in ("t", "node", "seq")
    )
    assert {event["node"] for event in logged_in.get(f"{address}?node=dpu0").json()["events"]} == {"dpu0"}
    whole = logged_in.get(f"{address}?download=1&node=gpu0")
    assert finished.label in whole.headers["Content-Disposition"]
    lines = [json.loads(line) for line in text(whole).splitlines()]
    assert [line["seq"] for line in lines] == list(range(len(lines)))
    refused = logged_in.get(f"{address}?before=yesterday")
    assert refused.status_code == 400
    assert "as 1200:gpu0:17" in refused.json()["error"]["message"]


def test_all_files_come_as_one_zip(logged_in: Client, finished: Run) -> None:
    response = logged_in.get(f"/runs/{finished.pk}/archive")
    assert response.headers["Content-Type"] == "application/zip"
    with zipfile.ZipFile(io.BytesIO(b"".join(response.streaming_content))) as archive:
        assert f"{finished.pk}/events/gpu0.jsonl" in archive.namelist()
        assert archive.testzip() is None


def test_a_queued_run_has_a_place_and_a_reason(logged_in: Client, make_run: Callable[..., Run]) -> None:
    run = make_run(state=State.QUEUED)
    queue = logged_in.get(f"/runs/{run.pk}/queue").json()
    assert queue["position"] == 1
    assert queue["reason"]
    assert facts_of(text(logged_in.get(f"/runs/{run.pk}")))["run"]["queue"] == queue


def test_several_trials_have_a_table_and_one_is_shown(
    logged_in: Client, make_run: Callable[..., Run], put_run: Callable[[str], Path], runs_folder: Path
) -> None:
    run = make_run(state=State.FINISHED, outcome=Outcome.PASSED)
    folder = put_run(run.pk)
    (folder / "trials").mkdir()
    for label in ("blink-r0", "blink-r1"):
        (folder / "trials" / label / "events").mkdir(parents=True)
    rows = [
        {"label": f"blink-r{n}", "system": "blink", "outcome": "completed", "sent": 8, "detail": XSS} for n in (0, 1)
    ]
    (folder / "summary.json").write_text(json.dumps({"trials": rows, "systems": {"blink": {"ttft_ms": {"p50": 7.25}}}}))
    page = text(logged_in.get(f"/runs/{run.pk}?trial=blink-r1"))
    assert facts_of(page)["trial"] == "blink-r1"
    assert '<tr aria-current="true"><th scope="row"><a class="mono" href="?trial=blink-r1"' in page
    assert '<td class="num">7.25</td>' in page
    assert XSS not in page
    assert "Sweep as a chart" not in page


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
