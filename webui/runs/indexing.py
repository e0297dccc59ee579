"""Run folders that the console did not start (`looplane demo`, CI, a restored disk) become rows, and stay in step.

The database is an index and the run folder the truth (architecture §8): an empty database fills itself again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from django.conf import settings
from django.db import IntegrityError, transaction
from django.utils import timezone

from testbed.experiment.run_folder import RUN_ID
from webui.catalogue.selectors import experiment_list
from webui.outages import is_outage
from webui.runs import services
from webui.runs.folder import folder_of, read_json, summary_of, word_of
from webui.runs.models import Backend, Origin, Run
from webui.runs.specs import SpecFault, read_spec
from webui.runs.states import ACTIVE, Outcome, State

logger = logging.getLogger(__name__)

SILENT_S = 60.0
"""A run of the command line whose folder has not changed for so long, without an outcome, is lost."""
_complained: set[str] = set()
"""Folders of which this process has written in its log."""


def runs_index() -> int:
    """Takes up new run folders and follows those that go on; returns how many rows changed."""
    try:
        names = sorted(entry.name for entry in Path(settings.RUNS_FOLDER).iterdir() if RUN_ID.fullmatch(entry.name))
    except OSError:
        return 0
    known = set(Run.objects.values_list("pk", flat=True))
    changed = sum(_guarded(_take_up, name) for name in names if name not in known)
    active = Run.objects.filter(origin=Origin.FOLDER, state__in=ACTIVE).values_list("pk", flat=True)
    return changed + sum(_guarded(_follow, run_id) for run_id in list(active))


def _guarded(do: Callable[[str], int], run_id: str) -> int:
    """What one folder holds never keeps the others from the index. It is looked at again, but complained of once."""
    try:
        return do(run_id)
    except Exception as fault:
        if is_outage(fault):
            raise
        if run_id not in _complained:
            _complained.add(run_id)
            logger.exception("run folder %s cannot be taken up; the others are", run_id)
        return 0


def _take_up(run_id: str) -> int:
    """A row for a folder; 0 while there is no spec in it yet, or when another worker was first."""
    folder = folder_of(run_id)
    try:
        spec = (folder / "spec.toml").read_text()
    except (OSError, UnicodeDecodeError):
        return 0
    provenance = read_json(folder / "provenance.json") or {}
    try:
        told = provenance.get("overrides")
        overrides = [str(line) for line in told] if isinstance(told, list) else []
        facts = read_spec(spec, overrides=overrides, where=run_id)
        question, systems, seed = facts.question, list(facts.systems), facts.seed
    except SpecFault:  # of another version; what happened in it can still be looked at
        question, systems, seed = f"Run {run_id}", [], None
    run = Run(
        id=run_id,
        question=question,
        systems=systems,
        seed=seed,
        spec=spec,
        backend=_backend_of(folder, provenance.get("command")),
        revision=str(provenance.get("revision", ""))[:40],
        experiment=_experiment_of(str(provenance.get("experiment", ""))),
        origin=Origin.FOLDER,
        state=State.RUNNING,
    )
    made = datetime.strptime(run_id[:15], "%Y%m%d-%H%M%S").replace(tzinfo=UTC)
    try:
        with transaction.atomic():
            run.save(force_insert=True)
            Run.objects.filter(pk=run_id).update(created_at=made, started_at=made)
    except IntegrityError:
        return 0
    _follow(run_id)
    return 1


def _experiment_of(spec_name: str) -> str:
    """The shipped experiment with this name in its file, or empty."""
    named = [one.name for one in experiment_list() if one.facts is not None and one.facts.name == spec_name]
    return named[0] if len(named) == 1 else ""


def _backend_of(folder: Path, command: object) -> Backend:
    """By the plan's clock; but a server in one process keeps wall time too, for its clients have no other."""
    if isinstance(command, list) and command[1:2] == ["serve"] and "mininet" not in command:
        return Backend.SIM
    plans = [folder / "plan.json", *sorted(folder.glob("trials/*/plan.json"))]
    clocks = {str((read_json(plan) or {}).get("clock", "")) for plan in plans if plan.exists()}
    return Backend.MININET if "wall" in clocks else Backend.SIM


def _follow(run_id: str) -> int:
    """Brings a row in step with its folder."""
    word = word_of(run_id)
    if word is not None and word.state is State.FINISHED:
        outcome = word.outcome or Outcome.ERRORED
        return _end(run_id, outcome, word.detail)
    if time.time() - _last_change(run_id) > SILENT_S:
        return _end(run_id, Outcome.LOST, "its folder has no outcome and has not changed for a minute")
    if word is not None and word.state in ACTIVE:
        return Run.objects.filter(pk=run_id).exclude(state=word.state).update(state=word.state)
    return 0


def _end(run_id: str, outcome: Outcome, detail: str) -> int:
    ended = services.run_finish(run_id=run_id, outcome=outcome, detail=detail)
    if ended and summary_of(run_id):
        written = datetime.fromtimestamp((folder_of(run_id) / "summary.json").stat().st_mtime, tz=UTC)
        Run.objects.filter(pk=run_id).update(finished_at=min(written, timezone.now()))
    return int(ended)


def _last_change(run_id: str) -> float:
    folder = folder_of(run_id)
    places = [folder, folder / "control", *folder.glob("events/*"), *folder.glob("trials/*/events/*")]
    moments = [0.0]
    for place in places:
        try:
            moments.append(place.stat().st_mtime)
        except OSError:
            continue
    return max(moments)
