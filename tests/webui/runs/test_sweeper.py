from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.utils import timezone

from webui.accounts.models import Session
from webui.benches.models import Bench
from webui.celery import app
from webui.runs.models import Run
from webui.runs.packs import packs_folder
from webui.runs.states import Outcome, State
from webui.runs.sweeper import KEPT, adopt, sweep, tidy

pytestmark = pytest.mark.django_db


def test_a_sweep_sends_what_was_not_heard_and_this_benchs_orphans_to_their_queues(
    make_run: Callable[..., Run], make_bench: Callable[..., Bench], monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[tuple[str, str]] = []
    monkeypatch.setattr(app, "send_task", lambda _name, args, queue, **_: told.append((args[0], queue)))
    here, there = make_bench(), make_bench("elsewhere")
    ago = timezone.now() - timedelta(seconds=9)
    mine = make_run(state=State.RUNNING, bench=here, lease_until=ago)
    make_run(state=State.RUNNING, bench=there, lease_until=ago)
    unheard, emulation = make_run(), make_run(backend="mininet", needs=["lab-2"])
    make_run(needs=["no-bench-has-it"])
    make_bench("lab", tags=["lab-2"])
    Run.objects.filter(state=State.QUEUED).update(created_at=ago)
    assert adopt() == [mine.pk]
    assert told == [(mine.pk, f"bench-{here.pk}")]
    told.clear()
    assert sorted(sweep()) == sorted([unheard.pk, emulation.pk])
    assert (emulation.pk, "bench-lab") in told


def test_tidying_removes_old_output_and_dead_sessions_only(make_run: Callable[..., Run]) -> None:
    now = timezone.now()
    old = make_run(state=State.FINISHED, outcome=Outcome.PASSED, finished_at=now - KEPT - timedelta(hours=1))
    fresh = make_run(state=State.FINISHED, outcome=Outcome.PASSED, finished_at=now)
    going = make_run(state=State.RUNNING)
    launches = Path(settings.DATABASE_FOLDER) / "launches"
    packs = [packs_folder(run.pk) for run in (old, fresh)]
    for folder in [*(launches / run.pk for run in (old, fresh, going)), *packs]:
        folder.mkdir(parents=True)
    Session.objects.create(session_key="dead", expire_date=now - timedelta(days=1), opened_at=now, seen_at=now)
    Session.objects.create(session_key="alive", expire_date=now + timedelta(days=1), opened_at=now, seen_at=now)
    tidy()
    assert sorted(path.name for path in launches.iterdir()) == sorted([fresh.pk, going.pk])
    assert [folder.exists() for folder in packs] == [False, True]
    assert list(Session.objects.values_list("session_key", flat=True)) == ["alive"]
    for folder in (launches / fresh.pk, launches / going.pk, packs[1]):
        folder.rmdir()
