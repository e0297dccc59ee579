"""The digest of a run says what the summary says, repeat by repeat."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from testbed.command.places import SOURCE
from testbed.comparison.digest import (
    DIGEST,
    DISTRIBUTIONS,
    MOST_LANES,
    MOST_MARKS,
    make_digest,
    read_detail,
    read_digest,
    stamp_of,
)
from testbed.experiment.run_folder import RunFolder


def test_a_trial_alone_has_the_figures_of_a_run_of_one_trial(swept: RunFolder, place: Path) -> None:
    """Eight trials: two systems, two points, two repeats; each pooled figure lies between those of its repeats."""
    digest = read_digest(place)
    assert digest is not None
    assert len(digest.trials) == 8
    summary = json.loads(swept.summary_file.read_bytes())
    for name, system in summary["systems"].items():
        own = [trial for trial in digest.trials if trial.variant == name]
        assert [trial.repeat for trial in own] == [0, 1]
        means = [trial.figures["ttft_ms.mean"] for trial in own]
        assert min(means) <= system["ttft_ms"]["mean"] <= max(means)
        assert sum(trial.figures["requests.completed"] for trial in own) == system["requests"]["completed"]
        assert sum(trial.counts["itl_ms"] for trial in own) == system["itl_ms"]["n"]


def test_pooled_samples_are_those_of_the_summary(swept: RunFolder, place: Path) -> None:
    digest = read_digest(place)
    assert digest is not None
    summary = json.loads(swept.summary_file.read_bytes())
    for name, system in summary["systems"].items():
        for distribution in DISTRIBUTIONS:
            samples = digest.pooled[name][distribution]
            assert samples.n == system[distribution]["n"]
            assert samples.values[-1] == pytest.approx(system[distribution]["worst"], abs=1e-6)


def test_lanes_are_the_first_requests_with_their_tokens(place: Path) -> None:
    digest = read_digest(place)
    assert digest is not None
    detail = read_detail(place, digest.trials[0].label)
    assert detail is not None
    assert detail.requests == len(detail.lanes) == 12
    assert len(detail.lanes) <= MOST_LANES
    assert sum(len(lane.tokens) for lane in detail.lanes) <= MOST_MARKS
    for lane in detail.lanes:
        assert lane.state == "done"
        assert lane.start <= lane.tokens[0] <= lane.tokens[-1] <= lane.end
        assert [phase[0] for phase in lane.phases] == ["sending", "queued", "prefill", "decode", "delivery"]


def test_a_run_without_figures_gets_a_digest_that_says_so(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "20261130-120000-0a1b2c")
    assert stamp_of(folder) == ""
    assert "no figures yet" in make_digest(folder, tmp_path / "digest").fault


def test_a_broken_log_is_told_in_one_line_and_again_from_the_file(swept: RunFolder, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / swept.name)
    for path in (swept.summary_file, swept.spec_json, *swept.path.glob("trials/*/plan.json")):
        target = folder.path / path.relative_to(swept.path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    broken = next(folder.trials_folder.iterdir()) / "events" / "gpu0.jsonl"
    broken.parent.mkdir()
    broken.write_bytes(b'{"no": "record"}\n')
    fault = make_digest(folder, tmp_path / "digest").fault
    assert "gpu0.jsonl" in fault
    assert "\n" not in fault
    kept = read_digest(tmp_path / "digest")
    assert kept is not None
    assert kept.fault == fault


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"run": 1}'])
def test_a_damaged_digest_is_none(data: bytes, tmp_path: Path) -> None:
    (tmp_path / DIGEST).write_bytes(data)
    assert read_digest(tmp_path) is None


def test_a_digest_of_another_version_is_none(place: Path, tmp_path: Path) -> None:
    digest = read_digest(place)
    assert digest is not None
    (tmp_path / DIGEST).write_bytes(msgspec.json.encode(msgspec.structs.replace(digest, version=digest.version + 1)))
    assert read_digest(tmp_path) is None


def test_the_program_makes_the_same_digest(swept: RunFolder, place: Path, tmp_path: Path) -> None:
    words = [sys.executable, "-m", "testbed.comparison", str(swept.path), str(tmp_path)]
    done = subprocess.run(words, cwd=SOURCE, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / DIGEST).read_bytes() == (place / DIGEST).read_bytes()
