"""The worker's own clockwork: its bench reports, what was lost is sent again, what ran out ends, folders are indexed.

A worker bootstep, so that no beat process is needed (design/console.md §1). Every worker has one: all it does is safe
to do twice. `CHORES` is the table of what is done and how often.
"""

# mypy: disable-error-code="no-untyped-call"
# celery has no types of its own.
from __future__ import annotations

import logging
import shutil
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from celery import bootsteps
from celery.signals import worker_shutting_down
from django.conf import settings
from django.db import close_old_connections
from django.utils import timezone

from webui.accounts.limits import limits_forget
from webui.accounts.sessions import SessionStore
from webui.benches.identity import bench_here, queues_here
from webui.benches.leases import leases_expire
from webui.benches.reporter import Reporter
from webui.benches.services import benches_mark_away
from webui.outages import is_outage
from webui.runs import execution, orphans, selectors, services
from webui.runs.folder import trials_of
from webui.runs.indexing import runs_index
from webui.runs.models import Run
from webui.runs.packs import pack_ahead
from webui.runs.states import ACTIVE, State

logger = logging.getLogger(__name__)

TICK_S = 1.0
PACKED_AHEAD = timedelta(hours=1)
"""A run that ended longer ago is packed when somebody opens it."""
PACKS_LOOKED_AT = 5
KEPT = timedelta(days=2)
"""How long the output of a finished simulation, and a pack, is kept beside the run folder."""


class Chore(NamedTuple):
    """Something that is done again and again."""

    every_s: float
    do: Callable[[], object]


def adopt() -> list[str]:
    """Tells this bench's workers about its runs whose worker is gone; returns their ids."""
    here = bench_here()
    found = [run for run, bench in selectors.run_orphans(now=timezone.now()) if bench in ("", here)]
    for run_id in found:
        services.run_send(run_id=run_id, bench=here)
    return found


def sweep() -> list[str]:
    """Sends again what may start and was not heard; returns the ids."""
    unheard = selectors.run_unheard(now=timezone.now())
    for run_id, bench in unheard:
        services.run_send(run_id=run_id, bench=bench)
    return [run_id for run_id, _ in unheard]


def clear_away() -> list[str]:
    """Ends what still runs here though it was given up."""
    return orphans.strays_end(bench=bench_here(), simulations=execution.SIMULATIONS, emulations=execution.EMULATIONS)


def pack() -> str:
    """Begins the pack of the newest long run, so that it opens at once; only while nothing is under way here. Its id.

    Of several trials the first, which is what the page opens with.
    """
    if Run.objects.filter(state__in=ACTIVE, bench=bench_here()).exists():
        return ""
    ended = Run.objects.filter(state=State.FINISHED, finished_at__gt=timezone.now() - PACKED_AHEAD)
    for run_id in ended.order_by("-finished_at").values_list("pk", flat=True)[:PACKS_LOOKED_AT]:
        if pack_ahead(run_id, next(iter(trials_of(run_id)), "")):
            return run_id
    return ""


def tidy() -> None:
    """Forgets what nobody needs: sessions that ran out, counts of limits, what simulations printed days ago."""
    SessionStore.clear_expired()
    limits_forget()
    old = Run.objects.filter(state=State.FINISHED, finished_at__lt=timezone.now() - KEPT)
    # From the folders that are there: the index may hold a hundred thousand runs, and this thread reports the bench.
    for kind in ("launches", "packs"):
        for folder in (Path(settings.DATABASE_FOLDER) / kind).glob("*"):
            if old.filter(pk=folder.name).exists():
                shutil.rmtree(folder, ignore_errors=True)


CHORES: tuple[Chore, ...] = (
    Chore(1.0, adopt),
    Chore(5.0, sweep),
    Chore(5.0, benches_mark_away),
    Chore(5.0, leases_expire),
    Chore(5.0, orphans.orphans_settle),
    Chore(5.0, clear_away),
    Chore(5.0, runs_index),
    Chore(5.0, pack),
    Chore(3600.0, tidy),
)


class Sweeper(bootsteps.StartStopStep):
    """Sweeps in a thread of its own, so that a slow disk never delays the worker's messages."""

    def __init__(self, parent: Any, **kwargs: Any) -> None:
        super().__init__(parent, **kwargs)
        # Selected, not only made: a queue that this worker merely sends to would otherwise be listened to as well
        # after the broker's next restart.
        parent.app.amqp.queues.select(queues_here())
        self._reporter = Reporter(threads=parent.concurrency)
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None
        self._due = dict.fromkeys(CHORES, 0.0)
        self._away = False

    def start(self, parent: Any) -> None:
        """Begins."""
        execution.before_emulation = self._reporter.check_before_emulation
        self._thread = threading.Thread(target=self._run, name="sweeper", daemon=True)
        self._thread.start()

    def stop(self, parent: Any) -> None:
        """Ends after the sweep in hand, and says that its bench is away."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join(TICK_S * 3)
        self._try(self._reporter.leave)

    def _run(self) -> None:
        while not self._ended.is_set():
            self._try(self._reporter.beat)
            now = time.monotonic()
            for chore in CHORES:
                if now >= self._due[chore] and not self._ended.is_set():
                    self._due[chore] = now + chore.every_s
                    self._try(chore.do)
            close_old_connections()
            self._ended.wait(TICK_S)

    def _try(self, do: Callable[[], object]) -> None:
        try:
            do()
        except Exception as fault:
            close_old_connections()
            if not is_outage(fault):
                logger.exception("a sweep failed; the next one follows")
            elif not self._away:
                logger.warning("the database does not answer; sweeps go on when it does")
            self._away = is_outage(fault)
        else:
            self._away = False


@worker_shutting_down.connect  # type: ignore[untyped-decorator]
def _let_runs_go(**_: Any) -> None:
    execution.stopping.set()
