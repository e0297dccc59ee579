"""The worker's own clockwork: every few seconds what was lost is sent again and new run folders are indexed.

A worker bootstep, so that no beat process is needed (design/console.md §1). Every worker may have one: all it does
is safe to do twice.
"""

# mypy: disable-error-code="no-untyped-call"
# celery has no types of its own.
from __future__ import annotations

import logging
import shutil
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

from celery import bootsteps
from celery.signals import worker_shutting_down
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone

from webui.accounts.sessions import SessionStore
from webui.runs import execution, selectors, services
from webui.runs.indexing import runs_index
from webui.runs.models import Run
from webui.runs.states import State

logger = logging.getLogger(__name__)

PERIOD_S = 5.0
TIDY_EVERY = 720
"""Sweeps: once an hour."""
KEPT = timedelta(days=2)
"""How long the output of a finished simulation is kept beside its run folder."""


def sweep() -> list[str]:
    """Sends overdue runs again and takes run folders up; returns what was sent."""
    overdue = selectors.run_overdue()
    for run_id in overdue:
        services.run_send(run_id=run_id)
    runs_index()
    return overdue


def tidy() -> None:
    """Forgets what nobody needs: sessions that ran out, and what finished simulations printed days ago."""
    SessionStore.clear_expired()
    launches = Path(settings.DATABASE_FOLDER) / "launches"
    old = Run.objects.filter(state=State.FINISHED, finished_at__lt=timezone.now() - KEPT).values_list("pk", flat=True)
    for run_id in old:
        shutil.rmtree(launches / run_id, ignore_errors=True)


class Sweeper(bootsteps.StartStopStep):
    """Sweeps in a thread of its own, so that a slow disk never delays the worker's messages."""

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self, parent: Any) -> None:
        """Begins."""
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)
        self._thread.start()

    def stop(self, parent: Any) -> None:
        """Ends after the sweep in hand."""
        self._ended.set()

    def _run(self) -> None:
        sweeps = 0
        while not self._ended.is_set():
            try:
                sweep()
                if sweeps % TIDY_EVERY == 0:
                    tidy()
                sweeps += 1
            except Exception:
                logger.exception("a sweep failed; the next one follows")
            finally:
                close_old_connections()
            self._ended.wait(PERIOD_S)


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _let_runs_go(**_: Any) -> None:
    execution.stopping.set()
