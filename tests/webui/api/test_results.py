"""Verdicts as JSON and JUnit, exports, differences; events compressed and resumed."""

from __future__ import annotations

import gzip
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest

from tests.webui.api.calling import API, RUNS, Caller, error
from webui.accounts.models import User
from webui.runs.models import Run
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def passed(make_run: Callable[..., Run], put_run: Callable[[str], Path]) -> Run:
    run = make_run(state=State.FINISHED, outcome=Outcome.PASSED, experiment="blink/small")
    put_run(run.pk)
    return run


def test_a_verdict_as_json_and_as_junit(call: Caller, passed: Run) -> None:
    told = call("GET", f"{RUNS}/{passed.pk}/verdict")
    assert (told.status_code, told.headers["Vary"]) == (200, "Accept")
    verdict = told.json()
    assert (verdict["passed"], verdict["outcome"], verdict["fidelity"]["verdict"]) == (True, "passed", "faithful")
    assert verdict["expectations"]
    assert all(row["held"] for row in verdict["expectations"])
    for accept in ("application/xml", "text/xml", "application/json;q=0.1, application/xml"):
        junit = call("GET", f"{RUNS}/{passed.pk}/verdict", Accept=accept)
        assert junit.headers["Content-Type"].split(";")[0] in ("application/xml", "text/xml")
        suite = ElementTree.fromstring(junit.content)
        assert (suite.get("failures"), suite.get("errors")) == ("0", "0")
    assert call("GET", f"{RUNS}/{passed.pk}/verdict", Accept="*/*").json() == verdict


@pytest.mark.parametrize("outcome", [Outcome.ERRORED, Outcome.CANCELLED, Outcome.LOST])
def test_a_run_that_left_nothing_has_a_verdict(call: Caller, make_run: Callable[..., Run], outcome: Outcome) -> None:
    run = make_run(state=State.FINISHED, outcome=outcome, detail="no <b>bench</b> \x01")
    verdict = call("GET", f"{RUNS}/{run.pk}/verdict").json()
    assert (verdict["passed"], verdict["outcome"], verdict["fidelity"]) == (False, outcome, None)
    suite = ElementTree.fromstring(call("GET", f"{RUNS}/{run.pk}/verdict", Accept="application/xml").content)
    assert suite.get("errors") == "1"
    assert "no <b>bench</b>" in suite.findall(".//error")[0].get("message", "")


def test_what_goes_on_has_neither_verdict_nor_export(call: Caller, make_run: Callable[..., Run]) -> None:
    run = make_run(state=State.RUNNING)
    for path in ("verdict?wait=0.3", "export/junit", "export/perfetto"):
        response = call("GET", f"{RUNS}/{run.pk}/{path}")
        assert (response.status_code, error(response)["code"]) == (409, "not_finished")


def test_exports(call: Caller, passed: Run) -> None:
    kinds = {"perfetto": "application/json", "json": "application/json", "csv": "application/zip",
             "junit": "application/xml"}  # fmt: skip
    for form, kind in kinds.items():
        response = call("GET", f"{RUNS}/{passed.pk}/export/{form}")
        assert (response.status_code, response.headers["Content-Type"]) == (200, kind)
        assert response.content
    assert call("GET", f"{RUNS}/{passed.pk}/export/pdf").status_code == 422


def test_a_run_without_a_log_cannot_be_exported(call: Caller, make_run: Callable[..., Run]) -> None:
    run = make_run(state=State.FINISHED, outcome=Outcome.CANCELLED)
    response = call("GET", f"{RUNS}/{run.pk}/export/json")
    assert (response.status_code, error(response)["code"]) == (409, "no_export")


def test_a_run_does_not_differ_from_itself(call: Caller, passed: Run, make_user: Callable[..., User]) -> None:
    told = call("GET", f"{RUNS}/{passed.pk}/diff/{passed.label}").json()
    assert told["settings"] == []
    assert told["figures"]
    stranger = Caller(make_user("bob"))
    assert stranger("GET", f"{RUNS}/{passed.pk}/diff/{passed.pk}").status_code == 404
    assert call("GET", f"{RUNS}/{passed.pk}/diff/20260101-000000-abcdef").status_code == 404


def test_events_are_compressed_when_asked_and_the_same(call: Caller, passed: Run) -> None:
    plain = call("GET", f"{RUNS}/{passed.pk}/events")
    assert "Content-Encoding" not in plain.headers
    for accepted in ("gzip", "br, GZIP;q=0.5", "*"):
        packed = call("GET", f"{RUNS}/{passed.pk}/events", **{"Accept-Encoding": accepted})
        assert (packed.headers["Content-Encoding"], packed.headers["Vary"]) == ("gzip", "Accept-Encoding")
        assert gzip.decompress(packed.content) == plain.content
        assert len(packed.content) < len(plain.content) / 3
    for refused in ("gzip;q=0", "identity", "br, gzip;q=0.0"):
        kept = call("GET", f"{RUNS}/{passed.pk}/events", **{"Accept-Encoding": refused})
        assert "Content-Encoding" not in kept.headers


def test_a_reader_that_is_cut_off_goes_on(
    served: str, user: User, passed: Run, runs_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each answer breaks off in its middle; the reader keeps whole lines up to the last cursor it was given."""
    lines = (runs_folder / passed.pk / "events").glob("*.jsonl")
    expected = sorted(line for path in lines for line in path.read_bytes().splitlines())
    headers = {"Authorization": f"Bearer {Caller(user).secret}"}
    found: list[bytes] = []
    cursor, breaks, end = "", 0, False
    with httpx.Client(base_url=served, headers=headers) as client:
        while not end:
            answer = client.get(f"{RUNS}/{passed.pk}/events", params={"cursor": cursor})
            if breaks % 2 == 0:  # the connection is lost with the answer in hand: nothing of it counts
                breaks += 1
                continue
            breaks += 1
            *body, last = answer.content.splitlines()
            found += body
            cursor, end = json.loads(last)["cursor"], json.loads(last)["end"]
    assert sorted(found) == expected


def test_an_experiment_is_read_without_running_it(call: Caller) -> None:
    told = call("POST", f"{API}/validate", {"experiment": "blink/small", "on": "mininet"}).json()
    assert told["ok"], told
    assert told["trials"] >= 1
    assert {"client", "gpu"} <= {node["role"] for node in told["plan"]["nodes"]}
    assert all(port["rate_bits_per_s"] > 0 for node in told["plan"]["nodes"] for port in node["ports"])
    bad = {"experiment": "blink/small", "overrides": {"workload.requests": "many", "seed": -1}}
    told = call("POST", f"{API}/validate", bad).json()
    assert (told["ok"], told["plan"]) == (False, None)
    assert {"workload.requests", "seed"} <= {fault["path"] for fault in told["faults"]}
    broken = call("POST", f"{API}/validate", {"spec": "not toml"}).json()
    assert (broken["ok"], len(broken["faults"])) == (False, 1)
    assert not Run.objects.exists()


@pytest.mark.soak
def test_shipped_experiments_can_be_foreseen(call: Caller, soak: bool) -> None:
    """Without their bench, and nothing of them is made. By default every eighth, since some take seconds to plan."""
    for item in call("GET", f"{API}/experiments").json()[:: 1 if soak else 8]:
        whole = call("GET", f"{API}/experiments/{item['name']}").json()
        assert whole["spec"]
        told = call("POST", f"{API}/validate", {"spec": whole["spec"], "on": "sim"}).json()
        assert told["ok"], (item["name"], told["faults"])
    assert call("GET", f"{API}/experiments/none/such").status_code == 404
    assert call("GET", f"{API}/schema/experiment").json()["$schema"]
