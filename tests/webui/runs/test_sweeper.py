from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.sessions.models import Session
from django.utils import timezone

from webui.runs.models import Run
from webui.runs.states import Outcome, State
from webui.runs.sweeper import KEPT, sweep, tidy

pytestmark = pytest.mark.django_db


def test_a_sweep_sends_what_is_overdue_and_takes_up_folders(
    make_run: Callable[..., Run], put_run: Callable[[str], Path], sent: list[str]
) -> None:
    orphan = make_run(state=State.RUNNING, lease_until=timezone.now() - timedelta(seconds=1))
    put_run("20260103-000000-abcdef")
    assert sweep() == [orphan.pk]
    assert sent[0] == orphan.pk
    assert Run.objects.filter(pk="20260103-000000-abcdef").exists()


def test_tidying_removes_old_output_and_dead_sessions_only(make_run: Callable[..., Run]) -> None:
    now = timezone.now()
    old = make_run(state=State.FINISHED, outcome=Outcome.PASSED, finished_at=now - KEPT - timedelta(hours=1))
    fresh = make_run(state=State.FINISHED, outcome=Outcome.PASSED, finished_at=now)
    going = make_run(state=State.RUNNING)
    launches = Path(settings.DATABASE_FOLDER) / "launches"
    for run in (old, fresh, going):
        (launches / run.pk).mkdir(parents=True)
    Session.objects.create(session_key="dead", session_data="", expire_date=now - timedelta(days=1))
    Session.objects.create(session_key="alive", session_data="", expire_date=now + timedelta(days=1))
    tidy()
    assert sorted(path.name for path in launches.iterdir()) == sorted([fresh.pk, going.pk])
    assert list(Session.objects.values_list("session_key", flat=True)) == ["alive"]
    for run in (fresh, going):
        (launches / run.pk).rmdir()
