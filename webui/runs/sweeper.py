"""The worker's own clockwork: every few seconds what was lost is sent again and new run folders are indexed.

A worker bootstep, so that no beat process is needed (design/console.md §1). Every worker may have one: all it does
is safe to do twice.
"""

# mypy: disable-error-code="no-untyped-call"
# celery has no types of its own.
from __future__ import annotations

import logging
import threading
from typing import Any

from celery import bootsteps
from celery.signals import worker_shutting_down
from django.db import close_old_connections

from webui.runs import execution, selectors, services
from webui.runs.indexing import runs_index

logger = logging.getLogger(__name__)

PERIOD_S = 5.0


def sweep() -> list[str]:
    """Sends overdue runs again and takes run folders up; returns what was sent."""
    overdue = selectors.run_overdue()
    for run_id in overdue:
        services.run_send(run_id=run_id)
    runs_index()
    return overdue


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
        while not self._ended.is_set():
            try:
                sweep()
            except Exception:
                logger.exception("a sweep failed; the next one follows")
            finally:
                close_old_connections()
            self._ended.wait(PERIOD_S)


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _let_runs_go(**_: Any) -> None:
    execution.stopping.set()
