"""Every shipped experiment is run under the simulated clock, and what it expects must hold (house style 27)."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.conclusion import conclude
from testbed.experiment.launch import prepare, simulate
from testbed.experiment.reading import read_spec
from testbed.serving.tokens import Vocabulary, deepseek_vocabulary

TOP = Path(__file__).resolve().parents[2]
EXPERIMENTS = sorted((TOP / "fixtures" / "experiments").rglob("*.toml"))


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return deepseek_vocabulary()


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_it_runs_and_what_it_expects_holds(path: Path, tmp_path: Path, vocabulary: Vocabulary) -> None:
    spec = read_spec(path)
    run = prepare(spec, tmp_path, clock="simulated", text=path.read_bytes())
    for trial, plan in zip(run.trials, run.plans, strict=True):
        end = simulate(plan, trial, vocabulary=vocabulary)
        assert (end.outcome, end.detail) == ("passed", "")
    summary = conclude(run.folder)
    assert (summary.outcome, summary.detail) == ("passed", "")
    assert len(summary.expectations) == len(spec.expect)
    assert all(row.held for row in summary.expectations)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_it_says_what_it_asks_and_expects(path: Path) -> None:
    spec = read_spec(path)
    assert spec.question
    assert spec.expect or spec.workload.requests == 0


def test_names_are_unique() -> None:
    names = [read_spec(path).name for path in EXPERIMENTS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("kind", SYSTEMS)
def test_every_system_has_an_experiment_and_a_page(kind: str) -> None:
    used = {system.kind for path in EXPERIMENTS for system in read_spec(path).systems.values()}
    assert kind in used
    assert (TOP / SYSTEMS[kind].page).is_file(), f"{kind} has no page {SYSTEMS[kind].page}"
