"""Real Celery workers: what is lost is sent again, what dies is adopted, what is doubled runs once."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from celery import Celery
from django.conf import settings

from testbed.command.places import SOURCE
from webui.accounts.models import User
from webui.benches.console import console_mark
from webui.benches.models import Bench, Health
from webui.runs import services
from webui.runs.folder import folder_of
from webui.runs.models import Backend, Run
from webui.runs.states import Outcome, State
from webui.runs.wishes import Wishes

pytestmark = pytest.mark.django_db(transaction=True)

SMALL = (SOURCE / "fixtures" / "experiments" / "blink" / "small.toml").read_text()
LONG = ["workload.requests=6000", "workload.arrivals.rate_per_s=40"]
PATIENCE_S = 60.0


def redis_server() -> str | None:
    return os.environ.get("LOOPLANE_REDIS_SERVER") or shutil.which("redis-server")


both_brokers = pytest.mark.parametrize("broker", ["filesystem", "redis"], indirect=True)
"""What rests on delivery is shown on both; the recipe must not depend on which it is."""


@pytest.fixture
def broker(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The embedded broker, or a Redis of the test's own."""
    if getattr(request, "param", "filesystem") == "filesystem":
        yield {}
        return
    program = redis_server()
    if program is None:
        pytest.skip("needs redis-server (apt-get install redis-server, or LOOPLANE_REDIS_SERVER)")
    path = tmp_path / "redis.sock"
    words = [program, "--port", "0", "--unixsocket", str(path), "--save", "", "--dir", str(tmp_path)]
    server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if path.exists():
                break
            time.sleep(0.05)
        address = f"redis+socket://{path}"
        # The application of this process has read its settings already; what it sends goes by another one.
        with Celery("sender", broker=address) as sender:
            sender.conf.task_default_queue = settings.CELERY_TASK_DEFAULT_QUEUE
            monkeypatch.setattr(services, "app", sender)
            yield {"REDIS_URL": address}
    finally:
        server.terminate()
        server.wait(10)


Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start_worker(state_folder: Path, broker: dict[str, str]) -> Iterator[Start]:
    workers: list[subprocess.Popen[bytes]] = []
    for folder in ("messages", "control"):
        (settings.QUEUE_FOLDER / folder).mkdir(parents=True, exist_ok=True)
    console_mark()

    def start(**bench: str) -> subprocess.Popen[bytes]:
        environment = {
            **os.environ,
            "LOOPLANE_STATE": str(state_folder),
            "DJANGO_SETTINGS_MODULE": "webui.settings",
            **broker,
            **bench,
        }
        words = [sys.executable, "-W", "ignore", "-m", "celery", "--app", "webui.celery", "--quiet", "worker"]
        words += ["--pool", "threads", "--concurrency", "4", "--loglevel", "WARNING"]
        words += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        workers.append(subprocess.Popen(words, cwd=SOURCE, env=environment))
        return workers[-1]

    yield start
    for worker in workers:
        if worker.poll() is None:
            worker.terminate()
            worker.wait(30)
    shutil.rmtree(settings.QUEUE_FOLDER, ignore_errors=True)
    shutil.rmtree(settings.DATABASE_FOLDER / "launches", ignore_errors=True)
    for run in Run.objects.all():
        shutil.rmtree(folder_of(run.pk), ignore_errors=True)


def start_run(user: User, overrides: list[str] | None = None) -> Run:
    return services.run_start(owner=user, spec=SMALL, backend=Backend.SIM, overrides=overrides)[0]


def until(run: Run, state: State) -> Run:
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        run.refresh_from_db()
        if run.state == state:
            return run
        time.sleep(0.05)
    raise AssertionError(f"never {state}: {run.state} {run.outcome} {run.detail}")


def started_times(run: Run) -> int:
    """How often the run was begun, by its own log."""
    lines = (folder_of(run.pk) / "events" / "bench.jsonl").read_text().splitlines()
    return sum(json.loads(line)["type"] == "run.started" for line in lines)


def test_a_run_from_the_queue_to_its_verdict(start_worker: Start, user: User) -> None:
    start_worker()
    run = until(start_run(user), State.FINISHED)
    assert (run.outcome, run.attempts) == (Outcome.PASSED, 1)
    assert run.summary["systems"]["blink"]["requests"]["completed"] == 8


@both_brokers
def test_three_deliveries_are_one_run(start_worker: Start, user: User) -> None:
    run = start_run(user)
    for _ in range(2):
        services.run_send(run_id=run.pk)
    start_worker()
    until(run, State.FINISHED)
    time.sleep(1)
    run.refresh_from_db()
    assert (run.attempts, started_times(run)) == (1, 1)


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_a_message_that_comes_again_while_the_run_goes_on_and_after_it_starts_nothing(
    start_worker: Start, user: User
) -> None:
    """E9: a broker that takes a long task for lost delivers it again, and prefetched ones lie behind it."""
    worker = start_worker()
    run, behind = start_run(user, LONG), start_run(user, LONG)
    until(run, State.RUNNING)
    for _ in range(3):
        services.run_send(run_id=run.pk)
        services.run_send(run_id=behind.pk)
    start_worker()  # of the same bench: it takes what the first has prefetched
    time.sleep(2)
    run.refresh_from_db()
    behind.refresh_from_db()
    assert run.attempts == 1
    assert (behind.state, behind.attempts) == (State.QUEUED, 0), "one core for simulations on a machine of two"
    services.run_cancel(run_id=behind.pk, user=user)
    services.run_cancel(run_id=run.pk, user=user)
    until(run, State.FINISHED)
    services.run_send(run_id=run.pk)
    time.sleep(1)
    run.refresh_from_db()
    assert (run.attempts, worker.poll()) == (1, None)
    assert started_times(run) <= 1, "one that ends early may have written nothing down"


@pytest.mark.parametrize("broker", ["redis"], indirect=True)
def test_two_benches_take_what_fits_them_from_one_queue(start_worker: Start, user: User) -> None:
    start_worker(LOOPLANE_BENCH="alpha", LOOPLANE_BENCH_SIM="0")
    start_worker(LOOPLANE_BENCH="beta", LOOPLANE_BENCH_TAGS="lab-2")
    end = time.monotonic() + PATIENCE_S
    while Bench.objects.filter(health=Health.WELL).count() < 2 and time.monotonic() < end:
        time.sleep(0.1)
    wishes = Wishes(needs=("lab-2",))
    tagged = services.run_start(owner=user, spec=SMALL, backend=Backend.SIM, wishes=wishes)[0]
    plain = start_run(user)
    for run in (tagged, plain):  # alpha takes no simulations
        assert until(run, State.FINISHED).bench_id == "beta"
        assert (run.outcome, run.attempts, started_times(run)) == (Outcome.PASSED, 1, 1)


@both_brokers
def test_a_message_that_was_never_sent_is_made_up_for(
    start_worker: Start, user: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "run_send", lambda *, run_id, bench="": None)
    run = start_run(user)
    start_worker()
    assert until(run, State.FINISHED).outcome == Outcome.PASSED


def test_cancelling_a_running_and_a_queued_run(start_worker: Start, user: User) -> None:
    start_worker()
    first, second = start_run(user, LONG), start_run(user, LONG)
    until(first, State.RUNNING)
    assert services.run_cancel(run_id=second.pk, user=user)
    second.refresh_from_db()
    assert second.outcome == Outcome.CANCELLED
    assert services.run_cancel(run_id=first.pk, user=user)
    assert until(first, State.FINISHED).outcome == Outcome.CANCELLED


@both_brokers
def test_a_killed_worker_does_not_end_the_run_and_the_next_one_adopts_it(start_worker: Start, user: User) -> None:
    worker = start_worker()
    run = until(start_run(user, LONG), State.RUNNING)
    process = json.loads((settings.DATABASE_FOLDER / "launches" / run.pk / "process.json").read_text())
    worker.kill()
    worker.wait()
    os.kill(process["pid"], 0)
    start_worker()
    end = time.monotonic() + PATIENCE_S
    while run.attempts < 2 and time.monotonic() < end:
        time.sleep(0.1)
        run.refresh_from_db()
    assert run.attempts == 2
    assert run.state == State.RUNNING
    services.run_cancel(run_id=run.pk, user=user)
    assert until(run, State.FINISHED).outcome == Outcome.CANCELLED
    assert started_times(run) == 1


def test_an_ordered_stop_ends_simulations_and_says_so(start_worker: Start, user: User) -> None:
    worker = start_worker()
    run = until(start_run(user, LONG), State.RUNNING)
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(30) == 0
    run.refresh_from_db()
    assert (run.state, run.outcome) == (State.FINISHED, Outcome.CANCELLED)
    assert "console was stopped" in run.detail
