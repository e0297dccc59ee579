"""Runs whose worker, or whole bench, is gone; and what of them is still alive on a bench that came back.

A run belongs to its machine, so only a worker of the same bench adopts it. While that bench is silent anybody may look
into the shared folder of runs: what ended there by itself is written down as it ended. What stays without a word is
lost after `LOST_AFTER`, and its bench ends what is left of it as soon as it reports again: nothing runs twice, and
nothing runs on unseen.
"""

from __future__ import annotations

import logging
from datetime import datetime, timedelta

from django.utils import timezone

from webui.benches.models import Bench, Health
from webui.benches.situation import AWAY_AFTER
from webui.runs import services
from webui.runs.bench import EmulationBench, ask_runnerd
from webui.runs.folder import word_of
from webui.runs.models import Backend, Run
from webui.runs.selectors import run_orphans
from webui.runs.simulation import SimulationBench
from webui.runs.states import Outcome, State

logger = logging.getLogger(__name__)

LOST_AFTER = timedelta(seconds=90)
"""Silence of a bench after which its runs are given up; a machine that restarts is back by then, or is not."""
REMEMBERED = timedelta(days=2)


def orphans_settle(*, now: datetime | None = None) -> list[str]:
    """Ends the runs of benches that are silent: with their own word, or as lost. Returns their ids."""
    now = now or timezone.now()
    orphans = run_orphans(now=now)
    if not orphans:
        return []
    heard = dict(Bench.objects.values_list("pk", "seen_at"))
    has_left = set(Bench.objects.filter(health=Health.AWAY).values_list("pk", flat=True))
    ended = []
    for run_id, bench in orphans:
        seen_at = heard.get(bench)
        if seen_at is not None and now - seen_at <= AWAY_AFTER and bench not in has_left:
            continue  # its own worker takes it up
        word = word_of(run_id)
        if word is not None and word.state is State.FINISHED:
            done = services.run_finish(run_id=run_id, outcome=word.outcome or Outcome.ERRORED, detail=word.detail)
        elif bench and (seen_at is None or now - seen_at > LOST_AFTER):
            done = services.run_finish(run_id=run_id, outcome=Outcome.LOST, detail=lost_words(bench, seen_at, now))
        else:
            continue
        if done:
            ended.append(run_id)
    return ended


def lost_words(bench: str, seen_at: datetime | None, now: datetime) -> str:
    """What the run's page says."""
    silent = (
        "is no longer known" if seen_at is None else f"has been silent for {int((now - seen_at).total_seconds())} s"
    )
    return f"bench {bench} {silent}; what the run left there is removed when it reports again"


def strays_end(*, bench: str, simulations: SimulationBench, emulations: EmulationBench) -> list[str]:
    """Ends what runs on this machine though its row is finished; returns the runs' ids."""
    given_up = Run.objects.filter(
        bench=bench, state=State.FINISHED, outcome=Outcome.LOST, finished_at__gt=timezone.now() - REMEMBERED
    ).only("pk", "backend", "cancel_requested_at")
    lost = list(given_up)
    if not lost:
        return []
    running: set[str] = set()
    if any(run.backend == Backend.MININET for run in lost):
        try:
            running = set(ask_runnerd("status").get("running", []))
        except OSError as fault:
            logger.info("what is left of lost runs is looked at later: %s", fault)
    ended = []
    for run in lost:
        if run.backend == Backend.MININET and run.pk in running:
            emulations.cancel(run)
        elif run.backend == Backend.SIM and simulations.is_alive(run):
            simulations.cancel(run)
        else:
            continue
        logger.warning("run %s was given up as lost and still ran here; it is ended", run.pk)
        ended.append(run.pk)
    return ended
