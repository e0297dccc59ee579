"""Runs whose worker or bench is gone: adopted on their own machine, ended with their own word, or lost and cleared."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from webui.audit.models import Entry
from webui.benches.models import Bench
from webui.benches.services import bench_leaves
from webui.benches.situation import AWAY_AFTER
from webui.runs import orphans, services
from webui.runs.bench import EmulationBench
from webui.runs.models import Run
from webui.runs.orphans import LOST_AFTER, orphans_settle, strays_end
from webui.runs.simulation import SimulationBench, process_start
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db

Make = Callable[..., Any]


@pytest.fixture
def orphan(make_run: Make, make_bench: Make, sent: list[str]) -> Run:
    """Under way on a bench that has just fallen silent, with a lease that ran out."""
    now = timezone.now()
    bench = make_bench("alpha", seen_at=now - AWAY_AFTER - timedelta(seconds=1))
    run: Run = make_run(state=State.RUNNING, backend="mininet", bench=bench, lease_until=now - timedelta(seconds=9))
    return run


def test_a_run_is_adopted_by_its_own_bench_alone(orphan: Run, make_bench: Make) -> None:
    make_bench("beta")
    assert services.run_claim(run_id=orphan.pk, lease_owner="b", bench="beta") is None
    taken = services.run_claim(run_id=orphan.pk, lease_owner="a", bench="alpha")
    assert taken
    assert (taken.state, taken.bench_id) == (State.RUNNING, "alpha")


def test_what_ended_by_itself_while_its_bench_was_silent_keeps_its_own_word(
    orphan: Run, put_run: Callable[[str], Path]
) -> None:
    word = put_run(orphan.pk) / "control" / "outcome.json"
    word.write_text(json.dumps({"state": "finished", "outcome": "passed", "detail": ""}))
    assert orphans_settle() == [orphan.pk]
    orphan.refresh_from_db()
    assert orphan.outcome == Outcome.PASSED
    assert orphan.summary["systems"]["blink"]["requests"]["completed"] == 24


def test_what_ended_on_a_bench_that_said_good_bye_is_not_waited_for(
    orphan: Run, put_run: Callable[[str], Path]
) -> None:
    word = put_run(orphan.pk) / "control" / "outcome.json"
    word.write_text(json.dumps({"state": "finished", "outcome": "passed", "detail": ""}))
    Bench.objects.update(seen_at=timezone.now())
    assert orphans_settle() == [], "its worker is there and takes it up"
    bench_leaves(name="alpha")
    assert orphans_settle() == [orphan.pk]


def test_a_run_on_a_bench_that_stays_silent_is_lost_once_and_says_so(orphan: Run) -> None:
    assert orphans_settle() == [], "its machine may be restarting"
    later = timezone.now() + LOST_AFTER
    assert orphans_settle(now=later) == [orphan.pk]
    assert orphans_settle(now=later) == []
    orphan.refresh_from_db()
    assert (orphan.state, orphan.outcome) == (State.FINISHED, Outcome.LOST)
    assert orphan.detail.startswith("bench alpha has been silent for ")
    assert Entry.objects.filter(deed="run.lost", thing=orphan.pk).count() == 1
    # Its old worker comes back: it has lost the lease, and nothing of what it writes counts.
    assert services.run_renew(run_id=orphan.pk, lease_owner="") is None
    assert not services.run_finish(run_id=orphan.pk, outcome=Outcome.PASSED, detail="", lease_owner="old")


def test_a_bench_that_reports_keeps_its_runs(orphan: Run) -> None:
    orphan.bench.seen_at = timezone.now() + LOST_AFTER  # type: ignore[union-attr]
    orphan.bench.save()  # type: ignore[union-attr]
    assert orphans_settle(now=timezone.now() + LOST_AFTER) == []


def test_a_bench_that_is_back_ends_what_was_given_up(orphan: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "20260101-000000-abcdef"
    asked: list[tuple[str, Any]] = []

    def runnerd(op: str, **fields: Any) -> dict[str, Any]:
        asked.append((op, fields.get("run")))
        return {"running": [orphan.pk, other]}

    monkeypatch.setattr(orphans, "ask_runnerd", runnerd)
    monkeypatch.setattr("webui.runs.bench.ask_runnerd", runnerd)
    ends = {"bench": "alpha", "simulations": SimulationBench(), "emulations": EmulationBench()}
    assert strays_end(**ends) == []
    assert asked == [], "nobody is asked while nothing is lost"
    orphans_settle(now=timezone.now() + LOST_AFTER)
    assert strays_end(**ends) == [orphan.pk]
    assert asked == [("status", None), ("cancel", orphan.pk)]
    assert strays_end(**(ends | {"bench": "beta"})) == []


def test_a_simulation_that_was_given_up_is_ended_on_its_own_machine(make_run: Make, make_bench: Make) -> None:
    bench = make_bench("alpha")
    run = make_run(state=State.FINISHED, outcome=Outcome.LOST, bench=bench, finished_at=timezone.now(), backend="sim")
    words = [sys.executable, "-c", "import time; time.sleep(60)"]
    with subprocess.Popen(words, start_new_session=True) as child:
        folder = Path(settings.DATABASE_FOLDER) / "launches" / run.pk
        folder.mkdir(parents=True)
        try:
            (folder / "process.json").write_text(json.dumps({"pid": child.pid, "started": process_start(child.pid)}))
            ends = {"bench": "alpha", "simulations": SimulationBench(), "emulations": EmulationBench()}
            assert strays_end(**ends) == [run.pk]
            assert child.wait(10) < 0
            assert strays_end(**ends) == []
        finally:
            if child.poll() is None:
                os.kill(child.pid, 9)
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()
