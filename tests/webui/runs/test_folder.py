from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from webui.runs.folder import (
    SUMMARY_LIMIT,
    download_path,
    downloads_of,
    folder_of,
    plan_of,
    read_json,
    summary_of,
    trial_folder,
    trials_of,
    word_of,
)
from webui.runs.states import Outcome, State

RUN = "20260101-000000-abcdef"

BAD_IDS = ["", ".", "..", "../x", "20260101-000000-ABCDEF", "20260101-000000-abcdef/..", "20260101-000000-abcdef\n"]


@pytest.mark.parametrize("bad", BAD_IDS)
def test_only_run_ids_have_folders(bad: str) -> None:
    with pytest.raises(ValueError, match="no run id"):
        folder_of(bad)


def test_a_recorded_run_is_read(put_run: Callable[[str], Path]) -> None:
    folder = put_run(RUN)
    word = word_of(RUN)
    assert word
    assert (word.state, word.outcome) == (State.FINISHED, Outcome.PASSED)
    assert summary_of(RUN)["outcome"] == "passed"
    assert plan_of(folder)["system"] == "blink"
    assert trials_of(RUN) == []
    assert [item.title for item in downloads_of(RUN)][:2] == ["Report", "Summary, JSON"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "{}", '{"state": "finished"}', '{"state": "running", "outcome": "passed"}', '{"state": "flying"}'],
)
def test_a_word_that_makes_no_sense_is_none(put_run: Callable[[str], Path], text: str) -> None:
    folder = put_run(RUN)
    (folder / "control" / "outcome.json").write_text(text)
    assert word_of(RUN) is None


def test_what_is_missing_or_too_long_is_none(tmp_path: Path) -> None:
    assert read_json(tmp_path / "none.json") is None
    big = tmp_path / "big.json"
    big.write_text(json.dumps({"a": "x" * 100}))
    assert read_json(big, limit=50) is None
    assert read_json(big) is not None
    assert summary_of(RUN) == {}
    assert trials_of(RUN) == []


def big_summary(folder: Path, systems: int, trials: int = 0) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    figures = summary["systems"]["blink"]
    summary["systems"] = {f"blink requests={number}": figures for number in range(systems)}
    summary["trials"] = summary["trials"] * (trials or len(summary["trials"]))
    (folder / "summary.json").write_text(json.dumps(summary))
    return summary


def test_of_a_long_summary_the_row_takes_the_figures_and_says_what_it_left_out(put_run: Callable[[str], Path]) -> None:
    folder = put_run(RUN)
    assert "left_out" not in summary_of(RUN)
    whole = big_summary(folder, 100)
    assert len(json.dumps(whole)) > SUMMARY_LIMIT
    told = summary_of(RUN)
    assert len(json.dumps(told)) <= SUMMARY_LIMIT
    assert (told["outcome"], told["fidelity"], told["expectations"]) == (
        whole["outcome"], whole["fidelity"], whole["expectations"],
    )  # fmt: skip
    assert told["systems"].keys() == whole["systems"].keys()
    for name, figures in told["systems"].items():
        assert figures["itl_ms"] == whole["systems"][name]["itl_ms"]
    assert told["left_out"]
    for path in told["left_out"]:
        part = path.removeprefix("systems.*.")
        assert all(part in whole["systems"][name] and part not in told["systems"][name] for name in told["systems"])


def test_of_a_summary_of_any_length_the_verdict_is_kept(put_run: Callable[[str], Path]) -> None:
    whole = big_summary(put_run(RUN), 1000, 5000)
    whole["expectations"] = whole["expectations"] * 10_000
    (folder_of(RUN) / "summary.json").write_text(json.dumps(whole))
    told = summary_of(RUN)
    assert len(json.dumps(told)) <= SUMMARY_LIMIT
    assert told["outcome"] == "passed"
    assert told["fidelity"]["verdict"] == "faithful"
    assert {"systems", "trials", "expectations"} <= set(told["left_out"])


def test_trials_by_their_labels_only(put_run: Callable[[str], Path]) -> None:
    folder = put_run(RUN)
    for name in ("blink-1", ".hidden", "blink rate=8"):
        (folder / "trials" / name).mkdir(parents=True)
    assert trials_of(RUN) == ["blink-1"]
    for number in (16, 8):
        (folder / "trials" / f"blink-requests={number}-r0").mkdir()
    planned = ["blink-requests=8-r0", "blink-requests=16-r0", "blink-1"]
    (folder / "trials" / "order.json").write_text(json.dumps(planned))
    assert trials_of(RUN) == planned
    (folder / "trials" / "order.json").write_text("{")
    assert trials_of(RUN) == []
    assert trial_folder(RUN, "") == folder
    assert trial_folder(RUN, "blink-1") == folder / "trials" / "blink-1"
    for bad in ("..", "a/b", ".", "x" * 200):
        with pytest.raises(ValueError, match="no trial label"):
            trial_folder(RUN, bad)


@pytest.mark.parametrize(
    "name",
    [
        "../../db/secret_key",
        "control/outcome.json",
        "events/../spec.toml",
        "events/.hidden.jsonl",
        "report/index.html/../../spec.toml",
        "spec.toml\x00",
        "/etc/passwd",
        "events/none.jsonl",
        "trials/../spec.toml",
        f"events/{'x' * 300}.jsonl",
        "",
    ],
)
def test_nothing_else_is_handed_out(put_run: Callable[[str], Path], name: str) -> None:
    put_run(RUN)
    assert download_path(RUN, name) is None


def test_a_link_out_of_the_folder_is_not_followed(put_run: Callable[[str], Path], tmp_path: Path) -> None:
    folder = put_run(RUN)
    secret = tmp_path / "secret"
    secret.write_text("x")
    (folder / "captures").mkdir(exist_ok=True)
    (folder / "captures" / "gpu0.pcap").symlink_to(secret)
    assert download_path(RUN, "captures/gpu0.pcap") is None
    assert download_path(RUN, "spec.toml") == folder / "spec.toml"
