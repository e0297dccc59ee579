"""A worker's loop over one run, with a bench that a test steers: leases, cancels, adoption, the worker's own end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from django.db import connections
from django.utils import timezone

from webui.benches.identity import bench_here
from webui.runs import execution, services
from webui.runs.bench import BenchBusy, BenchError
from webui.runs.folder import Word
from webui.runs.models import Run
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db(transaction=True)

PATIENCE_S = 60.0
"""What comes at once may take long on a busy machine."""


@dataclass
class Steered:
    """A bench whose runs stand as the test says."""

    word: Word | Exception = field(default_factory=lambda: Word(State.PREPARING, None, ""))
    refusal: Exception | None = None
    started: list[str] = field(default_factory=list)
    cancelled: list[str] = field(default_factory=list)

    def start(self, run: Run) -> None:
        self.started.append(run.pk)
        if self.refusal is not None:
            raise self.refusal

    def look(self, run: Run) -> Word:
        if isinstance(self.word, Exception):
            raise self.word
        return self.word

    def cancel(self, run: Run) -> None:
        self.cancelled.append(run.pk)
        self.word = Word(State.FINISHED, Outcome.CANCELLED, "asked to")


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch, sent: list[str], make_bench: Callable[..., object]) -> Iterator[Steered]:
    make_bench()
    steered = Steered()
    monkeypatch.setattr(execution, "BENCHES", {"sim": steered, "mininet": steered})
    monkeypatch.setattr(execution, "TICK_S", 0.02)
    monkeypatch.setattr(execution, "STOP_PATIENCE_S", 1.0)
    yield steered
    execution.stopping.clear()


@pytest.fixture
def worker() -> Iterator[Callable[[Run], threading.Thread]]:
    threads: list[threading.Thread] = []

    def work(run: Run) -> threading.Thread:
        def body() -> None:
            try:
                execution.run_execute(run_id=run.pk)
            finally:
                connections.close_all()

        threads.append(threading.Thread(target=body))
        threads[-1].start()
        return threads[-1]

    yield work
    execution.stopping.set()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
    execution.stopping.clear()


def until(run: Run, condition: Callable[[Run], bool]) -> Run:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        run.refresh_from_db()
        if condition(run):
            return run
        time.sleep(0.01)
    raise AssertionError(f"{run.state} {run.outcome} {run.detail}")


def test_a_run_from_claim_to_outcome(
    bench: Steered, worker: Callable[..., object], make_run: Callable[..., Run]
) -> None:
    run = make_run()
    worker(run)
    until(run, lambda row: row.state == State.PREPARING)
    bench.word = Word(State.RUNNING, None, "")
    until(run, lambda row: row.state == State.RUNNING and row.started_at is not None)
    bench.word = Word(State.FINALISING, None, "")
    until(run, lambda row: row.state == State.FINALISING)
    bench.word = Word(State.FINISHED, Outcome.FAILED, "ttft above its bound")
    until(run, lambda row: row.state == State.FINISHED)
    assert (run.outcome, run.detail) == (Outcome.FAILED, "ttft above its bound")
    assert bench.started == [run.pk]


def test_a_duplicate_message_starts_nothing(
    bench: Steered, worker: Callable[..., threading.Thread], make_run: Callable[..., Run]
) -> None:
    run = make_run()
    worker(run)
    until(run, lambda row: row.state == State.PREPARING)
    second = worker(run)
    second.join(PATIENCE_S)
    assert not second.is_alive()
    assert bench.started == [run.pk]


def test_a_flag_ends_a_running_run(bench: Steered, worker: Callable[..., object], make_run: Callable[..., Run]) -> None:
    run = make_run()
    bench.word = Word(State.RUNNING, None, "")
    worker(run)
    until(run, lambda row: row.state == State.RUNNING)
    assert services.run_cancel(run_id=run.pk, user=None)
    until(run, lambda row: row.state == State.FINISHED)
    assert run.outcome == Outcome.CANCELLED
    assert bench.cancelled == [run.pk]


def test_a_busy_bench_gives_the_run_back(
    bench: Steered, worker: Callable[..., threading.Thread], make_run: Callable[..., Run]
) -> None:
    run = make_run(backend="mininet")
    bench.refusal = BenchBusy("run x is under way")
    worker(run).join(PATIENCE_S)
    run.refresh_from_db()
    assert (run.state, run.detail, run.lease_owner) == (State.QUEUED, "run x is under way", "")


def test_a_bench_that_refuses_ends_the_run_with_its_words(
    bench: Steered, worker: Callable[..., threading.Thread], make_run: Callable[..., Run]
) -> None:
    run = make_run()
    bench.refusal = BenchError("no runner here")
    worker(run).join(PATIENCE_S)
    run.refresh_from_db()
    assert (run.state, run.outcome, run.detail) == (State.FINISHED, Outcome.ERRORED, "no runner here")


def test_a_bench_that_cannot_be_asked_is_asked_again(
    bench: Steered, worker: Callable[..., object], make_run: Callable[..., Run]
) -> None:
    run = make_run()
    bench.word = ConnectionError("restarting")
    worker(run)
    until(run, lambda row: row.state == State.PREPARING)
    time.sleep(0.2)
    bench.word = Word(State.FINISHED, Outcome.PASSED, "")
    until(run, lambda row: row.outcome == Outcome.PASSED)


def test_a_fault_of_our_own_is_errored_and_logged(
    bench: Steered,
    worker: Callable[..., threading.Thread],
    make_run: Callable[..., Run],
    caplog: pytest.LogCaptureFixture,
) -> None:
    run = make_run()
    bench.refusal = ZeroDivisionError("a bug")
    worker(run).join(PATIENCE_S)
    run.refresh_from_db()
    assert (run.state, run.outcome) == (State.FINISHED, Outcome.ERRORED)
    assert "a bug" in caplog.text


def test_a_worker_that_lost_its_lease_lets_go(
    bench: Steered, worker: Callable[..., threading.Thread], make_run: Callable[..., Run]
) -> None:
    run = make_run()
    first = worker(run)
    until(run, lambda row: row.state == State.PREPARING)
    Run.objects.filter(pk=run.pk).update(lease_owner="another")
    first.join(PATIENCE_S)
    assert not first.is_alive()
    run.refresh_from_db()
    assert (run.state, run.lease_owner) == (State.PREPARING, "another")


def test_when_the_worker_ends_an_emulation_goes_on_and_is_adopted(
    bench: Steered, worker: Callable[..., threading.Thread], make_run: Callable[..., Run]
) -> None:
    run = make_run(backend="mininet")
    bench.word = Word(State.RUNNING, None, "")
    first = worker(run)
    until(run, lambda row: row.state == State.RUNNING)
    execution.stopping.set()
    first.join(PATIENCE_S)
    assert bench.cancelled == []
    execution.stopping.clear()
    worker(run)
    until(run, lambda row: row.attempts == 2)
    bench.word = Word(State.FINISHED, Outcome.PASSED, "")
    until(run, lambda row: row.outcome == Outcome.PASSED)


def test_when_the_supervisor_was_killed_the_worker_stays_until_the_run_has_its_end(
    bench: Steered,
    worker: Callable[..., threading.Thread],
    make_run: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its runner ends at the same moment, so that nobody else would write the end down before the next start."""
    run = make_run(backend="mininet")
    bench.word = Word(State.RUNNING, None, "")
    last = worker(run)
    until(run, lambda row: row.state == State.RUNNING)
    monkeypatch.setattr(execution, "started_by", 0)
    bench.word = ConnectionError("it ends too")
    execution.stopping.set()
    until(run, lambda row: row.detail == execution.BENCH_SILENT)
    bench.word = Word(State.FINISHED, Outcome.CANCELLED, "the console was stopped while it ran")
    last.join(PATIENCE_S)
    run.refresh_from_db()
    assert (run.outcome, run.detail) == (Outcome.CANCELLED, "the console was stopped while it ran")
    assert bench.cancelled == []


def test_when_the_worker_ends_a_simulation_ends_too(
    bench: Steered, worker: Callable[..., threading.Thread], make_run: Callable[..., Run]
) -> None:
    run = make_run()
    bench.word = Word(State.RUNNING, None, "")
    first = worker(run)
    until(run, lambda row: row.state == State.RUNNING)
    execution.stopping.set()
    first.join(PATIENCE_S)
    run.refresh_from_db()
    assert (run.outcome, run.detail) == (Outcome.CANCELLED, "the console was stopped while it ran")


def test_a_run_whose_time_ran_out_is_asked_to_end_and_says_so(
    bench: Steered, worker: Callable[..., object], make_run: Callable[..., Run]
) -> None:
    run = make_run(time_limit_s=3600)
    bench.word = Word(State.RUNNING, None, "")
    worker(run)
    until(run, lambda row: row.state == State.RUNNING)
    assert bench.cancelled == []
    Run.objects.filter(pk=run.pk).update(ends_by=timezone.now())
    until(run, lambda row: row.state == State.FINISHED)
    assert (run.outcome, run.detail) == (Outcome.CANCELLED, "its time ran out")
    assert bench.cancelled == [run.pk]


def test_a_run_that_passes_in_its_last_moment_has_passed(
    bench: Steered, worker: Callable[..., object], make_run: Callable[..., Run]
) -> None:
    run = make_run()
    bench.word = Word(State.RUNNING, None, "")
    worker(run)
    until(run, lambda row: row.state == State.RUNNING)
    bench.word = Word(State.FINISHED, Outcome.PASSED, "")
    Run.objects.filter(pk=run.pk).update(ends_by=timezone.now())
    until(run, lambda row: row.state == State.FINISHED)
    assert (run.outcome, run.detail) == (Outcome.PASSED, "")


def test_an_emulation_does_not_start_on_a_bench_that_has_just_fallen_ill(
    bench: Steered,
    worker: Callable[..., threading.Thread],
    make_run: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(execution, "before_emulation", lambda: "its disk is full")
    run, simulated = make_run(backend="mininet"), make_run()
    worker(run).join(PATIENCE_S)
    run.refresh_from_db()
    assert (run.state, run.bench_id) == (State.QUEUED, None)
    assert "its disk is full" in run.detail
    assert bench.started == []
    Run.objects.filter(pk=run.pk).update(needs=["elsewhere"])
    worker(simulated)
    until(simulated, lambda row: row.state == State.PREPARING)


def test_a_run_that_was_begun_here_never_goes_back_to_the_queue(
    bench: Steered,
    worker: Callable[..., threading.Thread],
    make_run: Callable[..., Run],
    put_run: Callable[[str], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another bench would begin it a second time: its folder is shared, its processes are not."""
    monkeypatch.setattr(execution, "before_emulation", lambda: "its disk is full")
    run = make_run(backend="mininet")
    assert services.run_claim(run_id=run.pk, lease_owner="dead", bench=bench_here())
    put_run(run.pk)
    services.run_abandon(run_id=run.pk, lease_owner="dead")
    bench.refusal = BenchBusy("the runner restarts")
    worker(run).join(PATIENCE_S)
    run.refresh_from_db()
    assert (run.state, run.bench_id, run.attempts) == (State.PREPARING, bench_here(), 2)
    bench.refusal = None
    worker(run)
    bench.word = Word(State.FINISHED, Outcome.PASSED, "")
    until(run, lambda row: row.outcome == Outcome.PASSED)
