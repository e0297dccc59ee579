"""Fixtures of whole runs: prepared run folders, benches that are ended, a host that is afterwards as before."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from testbed.experiment.launch import prepare, simulate
from testbed.experiment.reading import read_spec

sys.path.insert(0, str(Path(__file__).parent))  # tests are imported by path; these are their shared modules

from whole_run import EXPERIMENTS, BenchProcess


@pytest.fixture
def prepare_run(tmp_path: Path) -> Callable[..., Path]:
    """Prepares the run folder of an experiment of fixtures/, with overrides."""

    def make(experiment: str, *overrides: str) -> Path:
        spec = read_spec(EXPERIMENTS / experiment, overrides)
        return prepare(spec, tmp_path, clock="wall").folder.path

    return make


@pytest.fixture
def simulate_run(tmp_path: Path) -> Callable[..., Path]:
    """Runs an experiment of fixtures/ under the simulated clock; its run folder."""

    def run(experiment: str, *overrides: str) -> Path:
        prepared = prepare(read_spec(EXPERIMENTS / experiment, overrides), tmp_path / "simulated", clock="simulated")
        assert simulate(prepared.plans[0], prepared.folder).outcome == "passed"
        return prepared.folder.path

    return run


@pytest.fixture
def start_bench() -> Iterator[Callable[..., BenchProcess]]:
    """Starts benches; each has ended and cleaned up when the test is over."""
    running: list[BenchProcess] = []

    def start(folder: Path, *arguments: str) -> BenchProcess:
        running.append(BenchProcess(folder, *arguments))
        return running[-1]

    yield start
    for bench in running:
        bench.close()
