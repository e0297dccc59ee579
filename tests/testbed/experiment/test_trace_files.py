"""Experiments that name recorded sessions: where the file is looked for, and that nothing needs it afterwards."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from testbed.experiment.complaints import SpecError
from testbed.experiment.reading import at_point, read_spec, spec_from_bytes, spec_from_tables, tables_of
from testbed.experiment.spec import Spec
from testbed.experiment.trace_files import LARGEST_TRACE, TRACES
from testbed.workload.agent_loads import FileTrajectories
from testbed.workload.schedule import read_workload, requests_in
from testbed.workload.trajectories import facts

HEAD = 'name = "x"\ntitle = "X"\n[systems.dualpath]\nkind = "dualpath"\n[workload.trajectories]\nkind = "file"\n'


def text(**settings: Any) -> bytes:
    told = {"path": "llmservingsim.jsonl", "format": "llmservingsim", "input": "delta", **settings}
    return (HEAD + "".join(f"{key} = {json.dumps(value)}\n" for key, value in told.items())).encode()


def load_of(spec: Spec) -> FileTrajectories:
    load = spec.workload.trajectories
    assert isinstance(load, FileTrajectories)
    return load


def faults(data: bytes, folder: Path | None = None) -> list[str]:
    with pytest.raises(SpecError) as raised:
        spec_from_bytes(data, "x.toml", folder=folder)
    return raised.value.lines()


def test_a_file_lies_beside_the_experiment_or_with_the_projects_traces(tmp_path: Path) -> None:
    shipped = load_of(spec_from_bytes(text(), "x.toml"))
    assert len(shipped.found(1)) == 12
    lines = (TRACES / "llmservingsim.jsonl").read_bytes().splitlines(keepends=True)
    (tmp_path / "llmservingsim.jsonl").write_bytes(b"".join(lines[:3]))
    (tmp_path / "x.toml").write_bytes(text())
    assert len(load_of(read_spec(tmp_path / "x.toml")).found(1)) == 3, "the experiment's own goes first"


def test_a_run_needs_the_file_no_more_once_the_experiment_is_read(tmp_path: Path) -> None:
    shutil.copytree(TRACES / "claude-code", tmp_path / "sessions")
    (tmp_path / "x.toml").write_bytes(text(path="sessions", format="claude-code", input="cumulative", agents=9))
    spec = read_spec(tmp_path / "x.toml")
    shutil.rmtree(tmp_path / "sessions")
    again = spec_from_tables(json.loads(json.dumps(tables_of(spec))), "spec.json")
    assert again == spec
    workload = read_workload(tables_of(spec)["workload"])
    assert workload.trajectories is not None
    assert len(workload.trajectories.trajectories(1)) == 9
    assert requests_in(workload, 1) >= 36


def test_a_sweep_may_fit_the_sessions_and_not_read_them_otherwise() -> None:
    spec = spec_from_bytes(text(max_tokens=4_000), "x.toml")
    smaller = load_of(at_point(spec, [("workload.trajectories.max_tokens", 500)]))
    assert max(facts(one).total for one in smaller.found(1)) == pytest.approx(500, abs=20)
    swept = text() + b'[sweep]\n"workload.trajectories.input" = ["delta", "cumulative"]\n'
    (fault,) = faults(swept)
    assert "it has been read" in fault


def test_fitting_and_pauses() -> None:
    load = load_of(spec_from_bytes(text(max_tokens=3_000, fit="cut", pauses=True), "x.toml"))
    found = load.found(1)
    assert all(facts(one).total <= 3_000 for one in found)
    assert any(here.pause for one in found for here in one.rounds)
    quiet = load_of(spec_from_bytes(text(max_tokens=3_000, fit="cut"), "x.toml")).found(1)
    assert not any(here.pause for one in quiet for here in one.rounds)
    assert load.found(1) == found
    assert load.found(2) != found, "tokens are the seed's"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"path": "nothing.jsonl"}, "nothing.jsonl: there is no such file in fixtures/traces"),
        ({"path": "README.md"}, "line 1: JSON is malformed"),
        ({"path": "claude-code", "format": "claude-code", "input": "cumulative", "max_tokens": 9, "fit": "cut"},
         "no session whose first turn fits in 9 tokens"),
        ({"input": "cumulative"}, 'is this input = "delta"?'),
        ({"format": "mooncake"}, "line 1: Object missing required field `input_length`"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_the_file_is_one_line_of_the_experiments_complaints(
    settings: dict[str, Any], complaint: str
) -> None:
    (fault,) = faults(text(**settings))
    assert fault.startswith(f'x.toml: workload.trajectories.path: "{settings.get("path", "llmservingsim.jsonl")}": ')
    assert complaint in fault
    assert "\n" not in fault


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret.jsonl", "a/../../b", "..", "", "nul\0byte", "x" * 201])
def test_a_path_leads_nowhere_else(path: str, tmp_path: Path) -> None:
    (fault,) = faults(text(path=path), tmp_path)
    assert "workload.trajectories.path" in fault


@pytest.mark.parametrize("left_out", ["input", "format", "path"])
def test_how_to_read_it_is_always_said(left_out: str) -> None:
    lines = [line for line in text().splitlines() if not line.startswith(left_out.encode())]
    (fault,) = faults(b"\n".join(lines))
    assert fault.startswith(f"x.toml: workload.trajectories.{left_out}: missing")


def test_pipes_empty_folders_and_endless_files_are_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "empty").mkdir()
    with (tmp_path / "long.jsonl").open("wb") as file:
        file.truncate(LARGEST_TRACE + 1)
    for path, complaint in (
        ("pipe.jsonl", "no regular file"),
        ("empty", "no .json or .jsonl file"),
        ("long.jsonl", "too large"),
    ):
        (fault,) = faults(text(path=path), tmp_path)
        assert complaint in fault


def test_the_guides_example_reads() -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs" / "guide" / "traces.md").read_text()
    example = guide.split("```toml\n")[1].split("```")[0]
    spec = spec_from_bytes((HEAD.split("[workload")[0] + example).encode(), "x.toml")
    load = load_of(spec)
    assert max(facts(one).total for one in load.found(1)) == pytest.approx(8192, abs=40)
    assert len(load.trajectories(1)) == 8
