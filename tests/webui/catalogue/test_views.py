from __future__ import annotations

import html
import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.test import Client

from testbed.experiment.reading import spec_from_bytes
from webui.catalogue import doctor, selectors
from webui.catalogue.answers import answer_of
from webui.catalogue.commands import curl_line, remote_line, shell_line
from webui.catalogue.launch_views import BLANK
from webui.catalogue.subjects import SUBJECTS
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


def cards(page: str) -> list[str]:
    return re.findall(r'<h2><a href="/experiments/([^"]+)"', page)


def test_cards_are_found_by_words_subject_and_group_together(logged_in: Client) -> None:
    def shown(**asked: str) -> set[str]:
        return set(cards(text(logged_in.get("/experiments", asked))))

    assert shown(text="PCIe qos") == {"dualpath/pcie-qos"}
    failing = {one.name for one in selectors.experiment_list() if "failures" in one.subjects}
    assert shown(subject="failures") == failing == {"blink/recovery", "dualpath/failure"}
    assert shown(subject="failures", group="blink") == {"blink/recovery"}
    assert shown(subject="failures", group="blink", text="no such words") == set()
    page = text(logged_in.get("/experiments", {"subject": "failures", "text": '"><i>'}))
    assert "No experiment fits" in page
    assert '"><i>' not in page
    assert "?group=blink&amp;subject=failures&amp;text=%22%3E%3Ci%3E" in page  # chips keep what was asked


def test_every_subject_has_experiments_and_none_has_all() -> None:
    found = selectors.experiment_list()
    for subject in SUBJECTS:
        assert 0 < sum(subject.slug in one.subjects for one in found) < len(found), subject.slug


def test_a_card_shows_its_last_answer(logged_in: Client, make_run: Callable[..., Run]) -> None:
    summary = {"systems": {"blink": {"ttft_ms": {"p50": 28.44, "p99": None}, "tpot_ms": {"p50": 9.5}, "itl_ms": {}}}}
    make_run(state=State.FINISHED, outcome=Outcome.PASSED, experiment="blink/small", summary=summary)
    make_run(state=State.FINISHED, outcome=Outcome.ERRORED, experiment="blink/small")
    page = text(logged_in.get("/experiments"))
    assert "blink 28.4 ms" in page
    assert "time to the first token, median to p99" in page
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
    checked = logged_in.post("/experiments/new", {"spec": BLANK, "on": "sim", "overrides": "", "do": "check"})
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


def test_the_card_of_a_sweep_has_its_systems_at_the_last_point() -> None:
    figures = {("gpu", 128): 128, ("gpu", 1024): 1024, ("cpu", 128): 256, ("cpu", 1024): 2048}
    systems = {f"{name} prompt={prompt}": {"ttft_ms": {"p50": ms}} for (name, prompt), ms in figures.items()}
    answer = answer_of(Run(systems=["gpu", "cpu"], summary={"systems": systems}))
    assert answer
    assert answer.label == "time to the first token, median to p99, at prompt 1024: gpu 1,024 ms, cpu 2,048 ms"
    assert answer.more == 2


def test_systems_that_make_traffic_of_their_own_are_launched_though_no_request_is_sent(logged_in: Client) -> None:
    page = text(logged_in.get("/experiments/dualpath/vl-isolation"))
    assert "a server without an end" not in page
    assert "the systems make traffic of their own" in page
    answer = logged_in.post("/experiments/dualpath/vl-isolation", {"on": "sim", "do": "start"})
    assert answer.status_code == 302, text(answer)


def test_a_server_without_an_end_is_not_launched_here(logged_in: Client) -> None:
    page = text(logged_in.get("/experiments/blink/serve"))
    assert "looplane serve" in page
    assert 'value="start" disabled' in page
    answer = logged_in.post("/experiments/blink/serve", {"on": "sim"})
    assert answer.status_code == 422
    assert "ends only when it is told to" in text(answer)
    assert not Run.objects.exists()


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


def test_the_same_run_from_elsewhere() -> None:
    overrides = ["workload.requests=8", "$(reboot)=1", 'question="Why\'s it so?"']
    line = shell_line("blink/demo", "mininet", overrides)
    words = ["run", "fixtures/experiments/blink/demo.toml", "--on", "mininet"]
    assert shlex.split(line) == ["./looplane", *words, *(word for one in overrides for word in ("--set", one))]
    remote = shlex.split(remote_line("blink/demo", "sim", overrides, ["a"], ["lab-2"]))
    assert remote[:4] == ["./looplane", "remote", "run", "blink/demo"]
    assert remote[-5:] == ["--tag", "a", "--needs", "lab-2", "--wait"]
    body = {"on": "sim", "overrides": overrides}
    sent = shlex.split(curl_line("http://x/api/v1/runs", "blink/demo", body).replace("\\\n", " "))
    assert json.loads(sent[sent.index("--json") + 1]) == {"experiment": "blink/demo", **body}
    own = shlex.split(curl_line("http://x/api/v1/runs", "", body))
    assert own[:2] == ["jq", "-Rs"]
    assert own[2] == json.dumps(body) + " + {spec: .}"


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
    assert ([one.title for one in report.notes], [one.title for one in report.fine]) == (["new"], ["tc"])
    assert not report.can_emulate
    assert doctor.read_report({}, privileged=False).findings == ()


def test_the_doctor_probes_by_itself_where_runnerd_is_away(logged_in: Client) -> None:
    page = text(logged_in.get("/experiments/doctor?fresh"))
    assert "No privileged runner" in page
    assert "findings are fine" in page
    assert doctor.doctor_report() is doctor.doctor_report()  # kept for a while


def test_a_doctors_note_is_not_shown_as_fine(logged_in: Client) -> None:
    page = text(logged_in.get("/experiments/doctor"))
    report = doctor.doctor_report()
    assert f"{len(report.fine)} of {len(report.findings)} findings are fine" in page
    assert len(report.fine) + len(report.notes) + len(report.open) == len(report.findings)


def test_the_answer_is_the_figure_that_the_expectations_speak_of(make_run: Callable[..., Run]) -> None:
    figures = {
        "itl_ms": {"p50": 1.0, "p99": 2.0},
        "ttft_ms": {"p50": 9.0},
        "jct": {"total_s": 4, "least_s": 3, "most_s": 5},
    }
    expectations = [{"metric": "systems.a.requests.failed"}, {"metric": "systems.a.itl_ms.p99"},
                    {"metric": "ratio(systems.a.jct.total_s, systems.b.jct.total_s)"}]  # fmt: skip
    summary = {"systems": {"b": figures, "a": figures}, "expectations": expectations}
    answer = answer_of(make_run(systems=["a", "b"], summary=summary))
    assert answer is not None
    assert answer.label == "job completion time, least to most of the repeats: a 4.00 s, b 4.00 s"
    # What not every system has is not drawn.
    summary["systems"] = {"a": figures, "b": {"itl_ms": {"p50": 0.5}, "jct": None}}
    answer = answer_of(make_run(systems=["a", "b"], summary=summary))
    assert answer is not None
    assert answer.label == "time between tokens, median to p99: a 1.00 ms, b 0.50 ms"
    assert answer_of(make_run(summary={})) is None
    assert answer_of(make_run(summary={"systems": {"a": {"ttft_ms": None}}})) is None


@pytest.mark.parametrize("number", [2, 40])
def test_the_catalogue_costs_the_same_queries_however_many_runs_there_are(
    number: int, logged_in: Client, make_run: Callable[..., Run], django_assert_max_num_queries: Any
) -> None:
    for place in range(number):
        make_run(experiment=f"blink/{('demo', 'small', 'serve')[place % 3]}")
    with django_assert_max_num_queries(22):
        logged_in.get("/experiments")


def test_fields_and_toml_make_the_same_run(logged_in: Client, sent: list[str]) -> None:
    """Known fault: a second way to say the same that says something else."""
    fields = {
        "mode": "fields", "on": "sim", "workload.requests": "8", "kind:workload.arrivals": "constant",
        "workload.arrivals[constant].rate_per_s": "2.5", "systems.blink.slots": "128", "tags": "a, b",
        "visibility": "everyone", "time_limit_min": "3",
    }  # fmt: skip
    logged_in.post("/experiments/blink/demo", fields)
    by_fields = Run.objects.get()
    assert by_fields.overrides == [
        "systems.blink.slots=128", "workload.requests=8", 'workload.arrivals={ kind = "constant", rate_per_s = 2.5 }'
    ]  # fmt: skip
    assert (by_fields.tags, by_fields.visibility, by_fields.time_limit_s) == (["a", "b"], "everyone", 180)
    file = text(logged_in.post("/experiments/blink/demo", {**fields, "do": "file"}))
    page = text(logged_in.post("/experiments/blink/demo", {**fields, "do": "toml"}))
    assert html.escape(file.splitlines()[-1]) in page
    logged_in.post("/experiments/new", {"mode": "toml", "on": "sim", "spec": file})
    by_toml = Run.objects.exclude(pk=by_fields.pk).get()
    specs = [spec_from_bytes(run.spec.encode(), "x", run.overrides) for run in (by_fields, by_toml)]
    assert specs[0] == specs[1]
    untouched = text(logged_in.post("/experiments/blink/demo", {"mode": "fields", "do": "file", "on": "sim"}))
    assert untouched == (settings.EXPERIMENTS_FOLDER / "blink" / "demo.toml").read_text()


def test_a_clone_is_the_same_run_and_knows_where_it_is_from(
    logged_in: Client, make_run: Callable[..., Run], sent: list[str]
) -> None:
    run = make_run(spec=BLANK, overrides=["seed=77", 'sweep."workload.requests"=[2, 4]', "captures=[]"], tags=["x"])
    page = text(logged_in.get(f"/experiments/new?from={run.pk}"))
    assert 'value="77"' in page
    inputs = dict(re.findall(r'<input type="(?:text|number|hidden)"[^>]* name="([^"]+)" value="([^"]*)"', page))
    told = {html.unescape(name): html.unescape(value) for name, value in inputs.items()}
    told.pop("csrfmiddlewaretoken", None)
    logged_in.post("/experiments/new", {**told, "on": "sim", "spec": BLANK})
    again = Run.objects.exclude(pk=run.pk).get()
    assert again.clone_of == run
    assert again.tags == ["x"]
    specs = [spec_from_bytes(one.spec.encode(), "x", one.overrides) for one in (run, again)]
    assert specs[0] == specs[1]


def test_what_is_wrong_beside_the_spec_is_said_and_nothing_is_made(logged_in: Client) -> None:
    for field, value, words in (
        ("tags", "<b>", "small letters"),
        ("time_limit_min", "100000", "1440"),
        ("needs", "no-such-tag", "no-such-tag"),
        ("visibility", "groups", "names at least one"),
    ):
        answer = logged_in.post("/experiments/blink/small", {"on": "sim", "mode": "fields", field: value})
        if answer.status_code == 302:  # no bench has reported, so none can lack anything
            assert field == "needs"
            Run.objects.all().delete()
            continue
        assert words in text(answer), field
        assert not Run.objects.exists()


def test_a_viewer_starts_nothing(make_user: Callable[..., Any]) -> None:
    client = Client()
    client.force_login(make_user("vera", role="viewer"))
    for address in ("/experiments/blink/small", "/experiments/new"):
        page = text(client.get(address))
        assert page.index("your role is viewer") < page.index('class="launch"'), "said before anything is filled in"
        assert 'disabled aria-describedby="may-not">Start run<' in page
        assert 'value="start"' not in page
    assert client.post("/experiments/blink/small", {"on": "sim"}).status_code == 403
    assert not Run.objects.exists()


def test_the_plan_follows_what_is_typed(logged_in: Client) -> None:
    typed = {"experiment": "blink/interference", "mode": "fields", "on": "mininet", "repeats": "2", "dilation": "9"}
    page = text(logged_in.post("/experiments/plan", typed))
    assert "<dt>Trials</dt><dd>12 " in page
    assert "6 systems × 2 repeats" in page
    assert "cnic" not in page  # ports are counted, not listed
    assert "in the kernel" in page
    faulty = text(logged_in.post("/experiments/plan", {**typed, "workload.requests": "<i>"}))
    assert "This cannot run yet" in faulty
    assert 'data-name="workload.requests"' in faulty
    assert "<i>" not in faulty
    own = text(logged_in.post("/experiments/plan", {"spec": BLANK, "mode": "toml", "on": "sim"}))
    assert "dpu0" in own
    only = text(logged_in.post("/experiments/plan", {"experiment": "blink/speculation", "on": "mininet"}))
    assert "a model that no emulation has" in only
