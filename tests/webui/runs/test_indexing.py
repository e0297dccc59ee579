from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from webui.runs.indexing import SILENT_S, runs_index
from webui.runs.models import Origin, Run
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db

RUN = "20260102-030405-abcdef"


def say(folder: Path, **word: str | None) -> None:
    (folder / "control" / "outcome.json").write_text(json.dumps(word))


def test_an_empty_database_fills_itself_from_the_folders(put_run: Callable[[str], Path], sent: list[str]) -> None:
    put_run(RUN)
    assert runs_index() >= 1
    run = Run.objects.get(pk=RUN)
    assert (run.state, run.outcome, run.origin, run.owner) == (State.FINISHED, Outcome.PASSED, Origin.FOLDER, None)
    assert (run.experiment, run.question) == ("blink/small", "Does every part work?")
    assert (run.backend, run.systems, run.seed) == ("sim", ["blink"], 8)
    assert f"{run.created_at:%Y%m%d-%H%M%S}" == RUN[:15]
    assert run.summary["systems"]["blink"]
    assert runs_index() == 0


@pytest.mark.parametrize(
    ("command", "backend"),
    [
        (["looplane", "serve", "x.toml", "--on", "sim"], "sim"),
        (["looplane", "serve", "x.toml"], "sim"),
        (["looplane", "serve", "x.toml", "--on", "mininet"], "mininet"),
        (["looplane", "run", "x.toml", "--on", "mininet"], "mininet"),
    ],
)
def test_a_server_in_one_process_keeps_wall_time_and_is_no_emulation(
    put_run: Callable[[str], Path], sent: list[str], command: list[str], backend: str
) -> None:
    folder = put_run(RUN)
    for name, facts in (("plan", {"clock": "wall"}), ("provenance", {"command": command, "revision": "c" * 40 + "+"})):
        told = json.loads((folder / f"{name}.json").read_text()) | facts
        (folder / f"{name}.json").write_text(json.dumps(told))
    runs_index()
    run = Run.objects.get(pk=RUN)
    assert (run.backend, run.revision) == (backend, "c" * 40)


def test_a_run_that_goes_on_is_followed_to_its_end(put_run: Callable[[str], Path], sent: list[str]) -> None:
    folder = put_run(RUN)
    say(folder, state="preparing", outcome=None)
    runs_index()
    assert Run.objects.get(pk=RUN).state == State.PREPARING
    say(folder, state="finalising", outcome=None)
    runs_index()
    assert Run.objects.get(pk=RUN).state == State.FINALISING
    say(folder, state="finished", outcome="failed", detail="why")
    runs_index()
    run = Run.objects.get(pk=RUN)
    assert (run.state, run.outcome, run.detail) == (State.FINISHED, Outcome.FAILED, "why")


def test_after_a_reboot_a_silent_run_is_lost(put_run: Callable[[str], Path], sent: list[str]) -> None:
    folder = put_run(RUN)
    say(folder, state="running", outcome=None)
    runs_index()
    old = time.time() - SILENT_S - 5
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (old, old))
    runs_index()
    run = Run.objects.get(pk=RUN)
    assert (run.state, run.outcome) == (State.FINISHED, Outcome.LOST)


def test_folders_that_are_no_runs_and_runs_without_a_spec_are_left(
    runs_folder: Path, put_run: Callable[[str], Path]
) -> None:
    folder = put_run(RUN)
    (folder / "spec.toml").unlink()
    (runs_folder / "notes").mkdir()
    try:
        assert runs_index() == 0
    finally:
        shutil.rmtree(runs_folder / "notes")


def test_a_spec_of_another_version_is_still_a_run(put_run: Callable[[str], Path], sent: list[str]) -> None:
    folder = put_run(RUN)
    (folder / "spec.toml").write_text('name = "x"\nnew_key = 1\n')
    runs_index()
    assert Run.objects.get(pk=RUN).question == f"Run {RUN}"


def test_the_consoles_own_runs_are_not_touched(
    put_run: Callable[[str], Path], make_run: Callable[..., Run], sent: list[str]
) -> None:
    put_run(RUN)
    make_run(id=RUN, state=State.RUNNING)
    assert runs_index() == 0
    assert Run.objects.get(pk=RUN).state == State.RUNNING


def _says(name: str, text: str) -> Callable[[Path], object]:
    return lambda folder: (folder / name).write_text(text)


@pytest.mark.parametrize(
    "spoil",
    [
        _says("provenance.json", '{"overrides": null}'),
        _says("provenance.json", '{"overrides": 5}'),
        _says("summary.json", '{"a": NaN}'),
        _says("summary.json", '{"a": 1e999}'),
        _says("summary.json", '{"a": "\\u0000"}'),
        _says("summary.json", '{"a": "\\ud800"}'),
        _says("summary.json", '{"a": ' + "[" * 200_000 + "]" * 200_000 + "}"),
        _says("summary.json", json.dumps({"systems": ["x" * 1000] * 400})),
        _says("control/outcome.json", '{"state": "finished", "outcome": "passed", "detail": "\\ud800"}'),
        lambda folder: shutil.rmtree(folder / "control"),
    ],
    ids=["null", "number", "nan", "infinite", "nul", "surrogate", "deep", "list", "half a pair", "half deleted"],
)
def test_a_folder_that_is_spoilt_never_keeps_the_others_from_the_index(
    put_run: Callable[[str], Path], sent: list[str], spoil: Callable[[Path], object]
) -> None:
    spoilt = "20260101-030405-00000a"  # looked at first
    spoil(put_run(spoilt))
    put_run(RUN)
    runs_index()
    assert Run.objects.get(pk=RUN).outcome == Outcome.PASSED
    assert Run.objects.filter(pk=spoilt).exists()


def test_a_folder_that_cannot_be_taken_up_is_complained_of_once(
    put_run: Callable[[str], Path], sent: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    put_run("20269999-030405-00000b")  # no such day
    put_run(RUN)
    for _ in range(3):
        runs_index()
    assert list(Run.objects.values_list("pk", flat=True)) == [RUN]
    assert caplog.text.count("20269999-030405-00000b cannot be taken up") == 1
