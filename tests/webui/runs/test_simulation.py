"""Simulations as processes of the worker: the real command, on a small experiment."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from django.conf import settings

from webui.runs.folder import Word, folder_of
from webui.runs.models import Run
from webui.runs.simulation import SimulationBench, process_start
from webui.runs.states import Outcome, State

SMALL = (Path(__file__).resolve().parents[3] / "fixtures" / "experiments" / "blink" / "small.toml").read_text()
LONG = ["workload.requests=4000", "workload.arrivals.rate_per_s=40"]
PATIENCE_S = 60.0


@pytest.fixture
def make(db: None) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def run(**fields: object) -> Run:
        from django.utils import timezone

        from testbed.experiment.run_folder import new_run_id

        made.append(Run(**{"id": new_run_id(timezone.now()), "backend": "sim", "spec": SMALL} | fields))
        return made[-1]

    yield run
    for one in made:
        process = SimulationBench()._recorded(one)
        if process is not None and process_start(process.pid) == process.started:
            os.killpg(process.pid, signal.SIGKILL)
        shutil.rmtree(folder_of(one.pk), ignore_errors=True)
        shutil.rmtree(Path(settings.DATABASE_FOLDER) / "launches" / one.pk, ignore_errors=True)


def wait_for(bench: SimulationBench, run: Run, state: State) -> Word:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        word = bench.look(run)
        if word.state is state:
            return word
        time.sleep(0.05)
    raise AssertionError(f"never {state}: {bench.look(run)} {bench.last_line(run)}")


def test_a_simulation_runs_to_its_verdict(make: Callable[..., Run]) -> None:
    run, bench = make(overrides=["workload.requests=3", "seed=5"]), SimulationBench()
    bench.start(run)
    word = wait_for(bench, run, State.FINISHED)
    # The file expects eight requests, so three fail it: an outcome that is foreseen.
    assert word.outcome is Outcome.FAILED
    assert (folder_of(run.pk) / "summary.json").is_file()


def test_a_spec_that_the_command_refuses_ends_with_its_own_words(make: Callable[..., Run]) -> None:
    run, bench = make(spec="name = 1\n"), SimulationBench()
    bench.start(run)
    word = wait_for(bench, run, State.FINISHED)
    assert word.outcome is Outcome.ERRORED
    assert "title" in word.detail or "name" in word.detail


def test_a_cancel_ends_it_and_keeps_what_it_has(make: Callable[..., Run]) -> None:
    run, bench = make(overrides=LONG), SimulationBench()
    bench.start(run)
    wait_for(bench, run, State.RUNNING)
    bench.cancel(run)
    word = wait_for(bench, run, State.FINISHED)
    assert word.outcome is Outcome.CANCELLED
    assert (folder_of(run.pk) / "plan.json").is_file()


def test_a_killed_process_is_seen_within_a_look(make: Callable[..., Run]) -> None:
    run, bench = make(overrides=LONG), SimulationBench()
    bench.start(run)
    wait_for(bench, run, State.RUNNING)
    process = bench._recorded(run)
    assert process
    os.kill(process.pid, signal.SIGKILL)
    word = wait_for(bench, run, State.FINISHED)
    assert word.outcome is Outcome.ERRORED
    assert "SIGKILL" in word.detail


def test_another_worker_adopts_it_and_does_not_start_it_again(make: Callable[..., Run]) -> None:
    run, first = make(overrides=LONG), SimulationBench()
    first.start(run)
    wait_for(first, run, State.RUNNING)
    second = SimulationBench()  # knows nothing but the files
    second.start(run)
    assert second._recorded(run) == first._recorded(run)
    assert second.look(run).state is State.RUNNING
    second.cancel(run)
    wait_for(first, run, State.FINISHED)  # the parent, which reaps
    assert second.look(run).outcome is Outcome.CANCELLED


def test_a_process_that_is_gone_without_a_word_is_lost(make: Callable[..., Run]) -> None:
    run = make(id="20260101-000000-0a0b0c")
    folder_of(run.pk).mkdir()
    bench = SimulationBench()
    bench.start(run)  # the folder is there, so somebody has started it
    word = bench.look(run)
    assert (word.state, word.outcome) == (State.FINISHED, Outcome.LOST)


def test_a_pid_that_was_used_again_is_not_ours(make: Callable[..., Run]) -> None:
    run, bench = make(id="20260101-000000-0a0b0d"), SimulationBench()
    folder = bench._folder(run)
    folder.mkdir(parents=True)
    (folder / "process.json").write_text(f'{{"pid": {os.getpid()}, "started": 1}}')
    bench.cancel(run)  # must not signal this test
    assert bench.look(run).outcome is Outcome.CANCELLED
    assert process_start(os.getpid())
    assert process_start(2**22 + 1) is None
