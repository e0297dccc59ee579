"""Carrying out one run: claim it, start it, follow it until it has ended, write down how. What the Celery task calls.

It decides nothing about states (services do) and nothing about processes (the benches do). It may be killed at any
line: whoever claims the run next asks the same questions again and goes on.
"""

from __future__ import annotations

import logging
import os
import threading
import time
import uuid
from collections.abc import Callable

from django.db import close_old_connections
from django.utils import timezone

from webui.benches.identity import bench_here
from webui.outages import DATABASE_AWAY, is_outage
from webui.runs import services
from webui.runs.bench import Bench, BenchBusy, BenchError, EmulationBench
from webui.runs.folder import folder_of
from webui.runs.models import Backend, Run
from webui.runs.simulation import SimulationBench
from webui.runs.states import REACHED_BY, Outcome, State

logger = logging.getLogger(__name__)

TICK_S = 0.25
CANCEL_AGAIN_S = 5.0
BUSY_AGAIN_S = 1.0
"""A bench that still clears away what was before is asked again after so long."""
STOP_PATIENCE_S = 12.0
BENCH_SILENT = "the privileged runner does not answer; how the run stands is seen when it is back"
TIME_RAN_OUT = "its time ran out"

SIMULATIONS = SimulationBench()
EMULATIONS = EmulationBench()
BENCHES: dict[str, Bench] = {Backend.SIM.value: SIMULATIONS, Backend.MININET.value: EMULATIONS}
"""A row for each backend."""


def _unchecked() -> str:
    return ""


before_emulation: Callable[[], str] = _unchecked
"""The bench's own check (webui.benches.reporter), set by its worker: why no emulation can start now, or empty."""

started_by = os.getppid()
"""The supervisor. Once it is gone the kernel ends everything that it had started, the privileged runner too."""

stopping = threading.Event()
"""Set when the worker has been told to end: runs in flight are let go or ended, never waited for."""


def run_execute(*, run_id: str) -> None:
    """Carries the run out if it is this worker's to do; returns at once if it is not."""
    lease = uuid.uuid4().hex
    run = services.run_claim(run_id=run_id, lease_owner=lease, bench=bench_here())
    if run is None:
        return
    try:
        _carry_out(run, lease)
    except Exception as fault:
        if is_outage(fault):  # nothing is known of the run, so nothing is written: its lease runs out and it is adopted
            logger.warning("run %s is left to its next worker: the database does not answer", run_id)
            return
        logger.exception("run %s broke off in its worker", run_id)
        services.run_finish(
            run_id=run_id,
            outcome=Outcome.ERRORED,
            detail="the console's worker failed; its log has the traceback",
            lease_owner=lease,
        )


def _carry_out(run: Run, lease: str) -> None:
    bench = BENCHES[run.backend]
    begun = folder_of(run.pk).exists()
    try:
        if run.backend == Backend.MININET and not begun and (reason := before_emulation()):
            raise BenchBusy(f"bench {run.bench_id} is out of service: {reason}")
        bench.start(run)
    except BenchBusy as busy:
        if begun:  # it is this bench's for good; asked again in a second
            services.run_abandon(run_id=run.pk, lease_owner=lease)
        else:
            services.run_release(run_id=run.pk, lease_owner=lease, detail=str(busy))
            stopping.wait(BUSY_AGAIN_S)
            services.run_ring(run_id=run.pk)
        return
    except BenchError as fault:
        services.run_finish(run_id=run.pk, outcome=Outcome.ERRORED, detail=str(fault), lease_owner=lease)
        return
    _follow(run, lease, bench)


def _follow(run: Run, lease: str, bench: Bench) -> None:
    """Until the run has ended, the lease is lost, or the worker ends."""
    asked_at: float | None = None
    away = False
    while True:
        try:
            fresh = services.run_renew(run_id=run.pk, lease_owner=lease)
            if fresh is None:
                logger.warning("run %s: another worker has it now", run.pk)
                return
            if stopping.is_set():
                _let_go(fresh, lease, bench)
                return
            if _look(fresh, lease, bench):
                return
            now = time.monotonic()
            if (fresh.cancel_requested_at or is_overtime(fresh)) and (
                asked_at is None or now - asked_at > CANCEL_AGAIN_S
            ):
                asked_at = now
                _ask_to_end(fresh, bench)
            away = False
        except DATABASE_AWAY as fault:
            # The run goes on without it. Whoever holds the lease when it is back writes down how the run stands.
            if not is_outage(fault) or stopping.is_set():
                raise
            if not away:
                logger.warning("run %s: the database does not answer; the run goes on", run.pk)
            away = True
            close_old_connections()
        stopping.wait(TICK_S)


def is_overtime(run: Run) -> bool:
    """Whether its time limit has passed; then it is asked to end."""
    return run.ends_by is not None and run.ends_by <= timezone.now()


def _look(run: Run, lease: str, bench: Bench) -> bool:
    """One look; True once the run is finished and written down."""
    try:
        word = bench.look(run)
    except OSError as fault:
        # The run may well go on behind a bench that restarts; the supervisor brings it back.
        logger.warning("run %s: %s", run.pk, fault)
        if run.detail != BENCH_SILENT:
            services.run_remark(run_id=run.pk, lease_owner=lease, detail=BENCH_SILENT)
        return False
    if run.detail == BENCH_SILENT:
        services.run_remark(run_id=run.pk, lease_owner=lease, detail="")
    if word.state is State.FINISHED:
        outcome, detail = word.outcome or Outcome.ERRORED, word.detail
        if is_overtime(run) and run.cancel_requested_at is None and outcome is Outcome.CANCELLED:
            detail = TIME_RAN_OUT
        services.run_finish(run_id=run.pk, outcome=outcome, detail=detail, lease_owner=lease)
        return True
    move = REACHED_BY.get(word.state)
    if move is not None and run.state != word.state:
        services.run_advance(run_id=run.pk, lease_owner=lease, move=move)
    return False


def _ask_to_end(run: Run, bench: Bench) -> None:
    try:
        bench.cancel(run)
    except OSError as fault:
        logger.warning("run %s: cancel did not get through (%s); asked again in %.0f s", run.pk, fault, CANCEL_AGAIN_S)


def _let_go(run: Run, lease: str, bench: Bench) -> None:
    """The console stops. An emulation belongs to runnerd and is adopted later; a simulation is ours and ends."""
    if run.backend != Backend.SIM:
        if not _ends_with_its_runner(run, lease, bench):
            services.run_abandon(run_id=run.pk, lease_owner=lease)
        return
    _ask_to_end(run, bench)
    end = time.monotonic() + STOP_PATIENCE_S
    while time.monotonic() < end and bench.look(run).state is not State.FINISHED:
        services.run_renew(run_id=run.pk, lease_owner=lease)
        time.sleep(TICK_S)
    services.run_finish(
        run_id=run.pk, outcome=Outcome.CANCELLED, detail="the console was stopped while it ran", lease_owner=lease
    )


def _ends_with_its_runner(run: Run, lease: str, bench: Bench) -> bool:
    """After a supervisor that was killed: the runner is ending the run at this moment, and nobody else is left who
    could write down how. True once that is done; False where the console was stopped in order, or patience ends.
    """
    end = time.monotonic() + STOP_PATIENCE_S
    while os.getppid() != started_by and time.monotonic() < end:
        fresh = services.run_renew(run_id=run.pk, lease_owner=lease)
        if fresh is None or _look(fresh, lease, bench):
            return True
        time.sleep(TICK_S)
    return False
