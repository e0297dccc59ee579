from __future__ import annotations

import html
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from webui.catalogue import doctor, selectors
from webui.catalogue.views import BLANK, shell_line
from webui.runs.models import Run
from webui.runs.specs import read_spec
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db


def text(response: Any) -> str:
    found: str = response.content.decode()
    return found


def test_every_shipped_experiment_is_a_card_with_its_question(logged_in: Client) -> None:
    page = text(logged_in.get("/experiments"))
    found = selectors.experiment_list()
    assert {"blink/demo", "blink/small", "blink/serve"} <= {one.name for one in found}
    for one in found:
        assert not one.fault, one
        assert f"/experiments/{one.name}" in page
    assert "Does every part work?" in page


def test_a_card_shows_its_last_answer(logged_in: Client, make_run: Callable[..., Run]) -> None:
    summary = {"systems": {"blink": {"ttft_ms": {"p50": 28.44, "p99": None}, "tpot_ms": {"p50": 9.5}, "itl_ms": {}}}}
    make_run(state=State.FINISHED, outcome=Outcome.PASSED, experiment="blink/small", summary=summary)
    make_run(state=State.FINISHED, outcome=Outcome.ERRORED, experiment="blink/small")
    page = text(logged_in.get("/experiments"))
    assert "28.4" in page
    assert "9.50" in page
    assert "Finished, errored" in page  # the newest one is named, and hides no answer


def test_two_systems_are_dots_on_one_axis(logged_in: Client, make_run: Callable[..., Run]) -> None:
    systems = {name: {"ttft_ms": {"p50": value, "p99": value * 2}} for name, value in (("vllm", 60.0), ("blink", 20.0))}
    make_run(
        state=State.FINISHED,
        outcome=Outcome.PASSED,
        experiment="blink/small",
        systems=["blink", "vllm"],
        summary={"systems": systems},
    )
    page = text(logged_in.get("/experiments"))
    assert "blink 20.0 ms, vllm 60.0 ms" in page


def test_launching_queues_a_run_and_leads_to_its_page(logged_in: Client, sent: list[str]) -> None:
    response = logged_in.post(
        "/experiments/blink/small", {"on": "sim", "overrides": "# fewer\nworkload.requests = 8\n\nseed=3"}
    )
    run = Run.objects.get()
    assert response.headers["Location"] == f"/runs/{run.pk}"
    assert run.overrides == ["workload.requests = 8", "seed=3"]
    assert (run.experiment, run.backend, run.seed) == ("blink/small", "sim", 3)


def test_faults_stand_beside_the_form_and_nothing_is_lost(logged_in: Client) -> None:
    response = logged_in.post(
        "/experiments/blink/small", {"on": "mininet", "overrides": "workload.requests = many\nx = 1"}
    )
    page = text(response)
    assert response.status_code == 422
    assert "workload.requests" in page
    assert "a whole number" in page
    assert "no such key" in page
    assert "workload.requests = many" in page
    assert 'value="mininet" checked' in page
    assert not Run.objects.exists()


def test_an_experiment_of_ones_own(logged_in: Client, sent: list[str]) -> None:
    assert html.escape(BLANK.splitlines()[1]) in text(logged_in.get("/experiments/new"))
    read_spec(BLANK, overrides=[], where="blank")
    checked = logged_in.post("/experiments/new", {"spec": BLANK, "on": "sim", "overrides": "", "check": "1"})
    assert "can run as it stands" in text(checked)
    assert not Run.objects.exists()
    logged_in.post("/experiments/new", {"spec": BLANK.replace("\n", "\r\n"), "on": "sim", "overrides": ""})
    assert Run.objects.get().spec == BLANK


def test_a_run_is_cloned_with_its_changes(logged_in: Client, make_run: Callable[..., Run]) -> None:
    run = make_run(spec="# mine\n" + BLANK, overrides=["seed=77"], backend="mininet")
    page = text(logged_in.get(f"/experiments/new?from={run.pk}"))
    assert "# mine" in page
    assert "seed=77" in page
    assert 'value="mininet" checked' in page
    assert logged_in.get("/experiments/new?from=nope").status_code == 404


def test_a_server_without_an_end_is_not_launched_here(logged_in: Client) -> None:
    page = text(logged_in.get("/experiments/blink/serve"))
    assert "looplane serve" in page
    assert "Start run" not in page


@pytest.mark.parametrize("name", ["blink/none", "none", "blink", "../secret", "blink/demo.toml", "a" * 300])
def test_unknown_names_are_404(logged_in: Client, name: str) -> None:
    assert logged_in.get(f"/experiments/{name}").status_code == 404


def test_a_broken_file_is_shown_with_its_fault(
    logged_in: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "broken.toml").write_text("name = 1\n")
    (tmp_path / "mine" / "Odd Name.toml").write_text("")
    monkeypatch.setattr(settings, "EXPERIMENTS_FOLDER", tmp_path)
    page = text(logged_in.get("/experiments"))
    assert "cannot be read" in page
    assert "Odd Name" not in page


def test_the_same_run_from_a_shell() -> None:
    line = shell_line("blink/demo", "mininet", "# no\nworkload.requests = 8\n$(reboot)=1")
    assert line == (
        "./looplane run fixtures/experiments/blink/demo.toml --on mininet "
        "--set 'workload.requests = 8' --set '$(reboot)=1'"
    )


def test_findings_are_ordered_and_counted() -> None:
    answer = {
        "can_emulate": False,
        "findings": [
            {"name": "tc", "level": "ok", "detail": "there", "remedy": ""},
            {"name": "docker", "level": "missing", "detail": "none", "remedy": "apt-get install docker.io"},
            {"name": "new", "level": "odd", "detail": ""},
            {"name": "memlock", "level": "warning", "detail": "low", "remedy": "ulimit"},
            "no finding",
        ],
    }
    report = doctor.read_report(answer, privileged=True)
    assert [finding.tone for finding in report.findings] == ["bad", "warn", "info", "ok"]
    assert [finding.title for finding in report.open] == ["docker", "memlock"]
    assert not report.can_emulate
    assert doctor.read_report({}, privileged=False).findings == ()


def test_the_doctor_probes_by_itself_where_runnerd_is_away(logged_in: Client) -> None:
    page = text(logged_in.get("/experiments/doctor?fresh"))
    assert "No privileged runner" in page
    assert "findings are fine" in page
    assert doctor.doctor_report() is doctor.doctor_report()  # kept for a while
