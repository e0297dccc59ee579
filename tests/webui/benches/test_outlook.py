"""What a person is told of the queue: places, reasons, starts; never another's run; a constant number of queries."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from webui.accounts.callers import by_session
from webui.benches.outlook import NOTHING, run_outlook
from webui.benches.selectors import bench_list, queue_list
from webui.runs.models import Run
from webui.runs.states import Outcome, State

pytestmark = pytest.mark.django_db

Make = Callable[..., Any]


def test_place_reason_and_expected_start(make_bench: Make, make_run: Make, user: Any) -> None:
    bench = make_bench("alpha", facts={"slots": 1})
    now = timezone.now()
    busy = make_run(state=State.RUNNING, backend="mininet", bench=bench, expected_s=600)
    Run.objects.filter(pk=busy.pk).update(created_at=now - timedelta(seconds=100))
    first, second = make_run(expected_s=60), make_run(backend="mininet")
    caller = by_session(user)
    found = {run.pk: run_outlook(run, caller) for run in (first, second)}
    assert (found[first.pk].position, found[first.pk].reason) == (1, f"run {busy.label} has bench alpha")
    assert found[second.pk].reason == f"run {busy.label} has bench alpha; 1 run ahead in the queue"
    for run, seconds in ((first, 500), (second, 560)):
        at = found[run.pk].starts_at
        assert at is not None
        assert (at - now).total_seconds() == pytest.approx(seconds, abs=5)
    assert run_outlook(busy, caller) == NOTHING
    ended = make_run(state=State.FINISHED, outcome=Outcome.PASSED)
    assert run_outlook(ended, caller) == NOTHING


def test_the_queue_costs_the_same_number_of_queries_however_long_it_is(
    make_bench: Make, make_run: Make, make_user: Make, user: Any
) -> None:
    make_bench("alpha")
    caller = by_session(user)
    counts = []
    for people in (1, 12):
        for number in range(people):
            owner = make_user(f"p{people}-{number}")
            for backend in ("sim", "mininet"):
                make_run(owner=owner, backend=backend)
        mine = make_run()
        with CaptureQueriesContext(
            connection,
        ) as asked:
            queue_list(caller=caller)
            run_outlook(mine, caller)
            bench_list(caller=caller)
        counts.append(len(asked))
    assert counts[0] == counts[1]
