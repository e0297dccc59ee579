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


FEW = ("workload.trajectories.agents=2", "workload.trajectories.turns=2")
SHORTENED: dict[str, tuple[str, ...]] = {
    "blink-cpu-vs-gpu": ("workload.requests=2", "sweep={}"),
    "blink-interference": ("repeats=1", "workload.requests=6"),
    "blink-interference-all": ("repeats=1", "workload.requests=6"),
    "blink-interference-sweep": ("workload.requests=2", "workload.lengths.output_cap=16", "sweep={}"),
    "blink-isolated": ("workload.requests=2", "workload.lengths.output_cap=16"),
    "blink-isolated-sweep": ("workload.requests=2", "workload.lengths.output_cap=16", "sweep={}"),
    "blink-launch-law": ("workload.requests=1", "workload.lengths.output=16"),
    "blink-mitigations": ("repeats=1", "workload.requests=6"),
    "dualpath-ablation": FEW,
    "dualpath-append-and-generation": (*FEW, "sweep={}"),
    "dualpath-copies": FEW,
    "dualpath-cxl": FEW,
    "dualpath-decode-landing": ("sweep={}", *FEW),
    "dualpath-dram-pool": FEW,
    "dualpath-faster-snic": (*FEW, "sweep={}"),
    "dualpath-no-benefit": FEW,
    "dualpath-no-benefit-single": ("sweep={}", *FEW),
    "dualpath-online": (*FEW, "sweep={}"),
    "dualpath-packing": (*FEW, "workload.trajectories.found_trajectories=2", "workload.trajectories.max_tokens=600"),
    "dualpath-pd-ratio": FEW,
    "dualpath-snics": ("sweep={}", *FEW),
    "dualpath-split-reads": ("sweep={}", "workload.trajectories.turns=3"),
}
"""Experiments whose figures take a minute of this host each: what is laid over them without --soak. Then every system
runs to its end, and of what is expected only that no agent or request failed is held against it."""
EMULATED = {
    "blink-interference": ("systems.blink-on-host.ttft_ms.p50", "systems.blink-on-host.publish_to_client_ms.p99"),
    "blink-interference-all": ("systems.blink-on-host.ttft_ms.p50", "systems.blink-on-host.publish_to_client_ms.p99"),
}
"""Figures that only real cores can show: in a simulation a DPU has its own, wherever it is put."""


@pytest.fixture(scope="module")
def vocabulary() -> Vocabulary:
    return deepseek_vocabulary()


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_it_runs_and_what_it_expects_holds(path: Path, tmp_path: Path, vocabulary: Vocabulary, soak: bool) -> None:
    shortened = () if soak else SHORTENED.get(read_spec(path).name, ())
    spec = read_spec(path, shortened)
    run = prepare(spec, tmp_path, clock="simulated", text=path.read_bytes())
    for trial, plan in zip(run.trials, run.plans, strict=True):
        end = simulate(plan, trial, vocabulary=vocabulary)
        assert (end.outcome, end.detail) == ("passed", "")
    summary = conclude(run.folder)
    rows = summary.expectations
    if shortened:
        rows = [row for row in rows if row.metric.endswith((".jct.failed", ".requests.failed"))]
        assert rows
    else:
        assert {row.metric for row in rows} == set(spec.expect)
        emulated = EMULATED.get(spec.name, ())
        rows = [row for row in rows if not any(words in row.metric for words in emulated)]
        assert emulated or (summary.outcome, summary.detail) == ("passed", "")
    assert all(row.held for row in rows)


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
