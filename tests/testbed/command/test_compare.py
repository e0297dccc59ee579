"""`looplane compare`: the table, one JSON object, and one line for what cannot be compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.command.__main__ import main

SMALL = Path(__file__).resolve().parents[3] / "fixtures" / "experiments" / "blink" / "small.toml"
OTHER = 'systems.other={kind = "blink", max_batch = 2}'
A, B = "20261130-100000-0d0d01", "20261130-100000-0d0d02"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two finished runs: one with two systems, one with a single one."""
    runs = tmp_path_factory.mktemp("runs")
    for run_id, more in ((A, ["--set", OTHER]), (B, ["--set", "systems.blink.max_batch=2"])):
        assert main(["run", str(SMALL), "--out", str(runs), "--run-id", run_id, *more]) == 0
    return runs


def test_two_runs(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", f"{runs / A}:blink", str(runs / B)]) == 0
    told = capsys.readouterr().out
    assert "What differs (1 of" in told
    assert "system.max_batch  80  2" in told
    assert "TTFT, mean" in told
    assert "one repeat each" in told


def test_a_run_alone_is_its_systems(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", str(runs / A), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [side["system"] for side in told["sides"]] == ["blink", "other"]


def test_nothing_is_written_to_what_is_compared(runs: Path) -> None:
    before = sorted(runs.rglob("*"))
    assert main(["compare", str(runs / A), str(runs / B), "--all"]) == 0
    assert sorted(runs.rglob("*")) == before


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{b}"], f"{B}: has a single system; name a second run"),
        (["{a}:warp", "{b}"], f"run {A} has no 'warp'; it has blink; other"),
        (["{a}"] * 7, "7 runs: at most 6 can be compared"),
        (["nowhere", "{b}"], "there is no such run folder"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    runs: Path, words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *(word.format(a=runs / A, b=runs / B) for word in words)]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert said in told.err
    assert len(told.err.splitlines()) == 1
