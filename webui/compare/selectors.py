"""What a comparison is made of, for a caller who may read the runs. Rules are testbed.comparison's; this finds things.

A side is written RUN, RUN:SYSTEM, RUN:SYSTEM POINT or RUN:TRIAL, where RUN is an id or its last six digits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from testbed.comparison.comparison import MOST_SIDES, RunDiff, compared
from testbed.comparison.series import Sweep, sweep_of
from testbed.comparison.sides import NoSuchPart, RunRead, Side, read_run
from testbed.experiment.complaints import SpecError
from testbed.experiment.reading import spec_from_bytes
from testbed.experiment.run_folder import RunFolder
from testbed.experiment.spec import Spec
from webui.accounts.callers import Caller
from webui.compare.digests import detail_get, digest_get
from webui.runs import selectors as runs
from webui.runs.folder import folder_of
from webui.runs.models import Run

WAIT_S = 20.0
"""How long an answer that must be whole waits for a digest, in seconds."""


class NotComparable(Exception):
    """Why these runs cannot be compared, in one line."""


class NoSuchRun(NotComparable):
    """A run that is not there, or not the caller's to read: the two look the same."""


class Compared(NamedTuple):
    """A side with the run it is of."""

    run: Run
    side: Side

    @property
    def text(self) -> str:
        """As an address writes it."""
        return f"{self.run.pk}:{self.side.part}" if len(self.side.run.variants) > 1 or self.side.trial else self.run.pk


def run_diff(*, caller: Caller, a: str, b: str, wait_s: float = WAIT_S) -> RunDiff:
    """`b` held against `a`, each as a side is written. Plain data: `msgspec.to_builtins(diff)` is its JSON.

    Raises NoSuchRun (404) or NotComparable (422). `complete` is False if repeats were not read within `wait_s`.
    """
    return compare_diff(sides=compare_sides(caller=caller, told=[a, b], wait_s=wait_s))


def compare_diff(*, sides: Sequence[Compared]) -> RunDiff:
    """The comparison of sides that were found, each against the first."""
    return compared([one.side for one in sides], [_about(one.run) for one in sides])


def compare_sides(*, caller: Caller, told: Sequence[str], wait_s: float = 0.0) -> list[Compared]:
    """The sides that `told` names, each of at most `MOST_SIDES`. Raises NoSuchRun or NotComparable.

    A single run with several systems is held against itself, system by system. Where no part is named, the sides
    take the first system and point that all of them have.
    """
    if len(told) > MOST_SIDES:
        raise NotComparable(f"{len(told)} runs: at most {MOST_SIDES} can be compared at once")
    known: dict[str, RunRead] = {}
    found: list[tuple[Run, RunRead, str]] = []
    for text in told:
        name, _, part = text.partition(":")
        run = runs.run_get(run_id=name[:40], caller=caller)
        if run is None:
            raise NoSuchRun(f"there is no run {name[:40]!r}")
        if run.pk not in known:
            known[run.pk] = _read(run, wait_s)
        found.append((run, known[run.pk], part))
    if len(found) == 1 and not found[0][2]:
        run, read, _ = found[0]
        found = [(run, read, name) for name in _first_of_each(read)] or found
    common = _common([read for _, read, _ in found])
    return [_side(run, read, part or common) for run, read, part in found]


def compare_run(*, caller: Caller, run_id: str, wait_s: float = 0.0) -> tuple[Run, RunRead] | None:
    """A run and all that its folder says, or None if it is not there or not theirs to read."""
    run = runs.run_get(run_id=run_id[:40], caller=caller)
    return None if run is None else (run, _read(run, wait_s))


def compare_sweep(*, read: RunRead, x: str = "", y: str = "") -> Sweep:
    """The figure `y` against the swept setting `x`. Raises testbed.comparison.series.NoSweep."""
    return sweep_of(read, x, y)


def _side(run: Run, read: RunRead, part: str) -> Compared:
    try:
        variant, trial = read.variant(part)
    except NoSuchPart as fault:
        raise NotComparable(str(fault)) from fault
    shown = trial or variant.trials[0]
    return Compared(run, Side(read, variant, trial, detail_get(run_id=run.pk, trial=shown)))


def _first_of_each(read: RunRead) -> list[str]:
    """Each system at the first point, as many as can be compared."""
    found: dict[str, str] = {}
    for variant in read.variants:
        found.setdefault(variant.system, variant.name)
    return list(found.values())[:MOST_SIDES]


def _common(reads: Sequence[RunRead]) -> str:
    for variant in reads[0].variants if reads else ():
        if all(any(other.name == variant.name for other in read.variants) for read in reads):
            return variant.name
    return ""


def _read(run: Run, wait_s: float) -> RunRead:
    digest = digest_get(run_id=run.pk, wait_s=wait_s) if run.is_finished else None
    return read_run(RunFolder(folder_of(run.pk)), digest, _asked(run))


def _asked(run: Run) -> Spec | None:
    """The experiment by the row, for a run that has no folder yet."""
    try:
        return spec_from_bytes(run.spec.encode(), run.pk, run.overrides)
    except SpecError:  # of another version
        return None


def _about(run: Run) -> dict[str, Any]:
    return {
        "on": run.get_backend_display(),
        "bench": run.bench.name if run.bench is not None else None,
        "outcome": run.outcome,
        "detail": run.detail,
    }
