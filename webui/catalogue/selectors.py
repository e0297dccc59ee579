"""The experiments in fixtures/experiments, read when asked for: a file that is changed or added shows at once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import msgspec
from django.conf import settings
from django.utils import timezone

from testbed.experiment.assembly import SYSTEMS
from testbed.experiment.complaints import SpecError
from testbed.experiment.reading import spec_from_bytes
from testbed.experiment.spec import Spec
from webui.accounts.callers import Caller
from webui.benches.needs import Offer, lacking
from webui.benches.situation import bench_places, needs_of
from webui.catalogue.subjects import subjects_of
from webui.runs.access import runs_readable
from webui.runs.models import Backend, Run
from webui.runs.specs import SpecFacts, facts_of
from webui.runs.states import ACTIVE

NAME = re.compile(r"\A[a-z0-9][a-z0-9_-]{0,59}(?:/[a-z0-9][a-z0-9_-]{0,59}){0,5}\Z")


@dataclass(frozen=True)
class Experiment:
    """One shipped experiment."""

    name: str
    """Its path below fixtures/experiments, without the suffix: blink/demo."""
    text: str
    facts: SpecFacts | None
    emulation_only: bool = False
    """It holds an emulation against what it should be, so the simulated clock cannot answer it."""
    simulated_only: tuple[str, ...] = ()
    """What of it no emulation has."""
    subjects: tuple[str, ...] = ()
    """Slugs of webui.catalogue.subjects."""
    fault: str = ""
    """Why it cannot be read; then there are no facts."""

    @property
    def question(self) -> str:
        """What it asks."""
        return self.facts.question if self.facts else self.name

    @property
    def about(self) -> str:
        """What else its author says."""
        return self.facts.about if self.facts else ""

    @property
    def systems(self) -> tuple[str, ...]:
        """Names of its systems."""
        return self.facts.systems if self.facts else ()

    @property
    def backends(self) -> str:
        """Where it can be answered, in words."""
        if self.facts is None or self.facts.is_open_ended:
            return ""
        if self.emulation_only:
            return "needs an emulation"
        return "simulated only" if self.simulated_only else ""

    @property
    def needs(self) -> tuple[str, ...]:
        """What a bench must have to answer it."""
        if self.facts is None:
            return ()
        on = Backend.MININET if self.emulation_only else Backend.SIM
        return needs_of(backend=on, needs=self.facts.needs if self.emulation_only else ())

    @property
    def file(self) -> str:
        """As the command line takes it."""
        return f"fixtures/experiments/{self.name}.toml"

    def says(self, text: str) -> bool:
        """Whether every word of `text` is in what its card shows, in whatever case."""
        told = " ".join([self.name, self.question, self.about, *self.systems]).casefold()
        return all(word in told for word in text.casefold().split())

    @property
    def group(self) -> str:
        """The folder it is in."""
        return self.name.split("/")[0]


def experiment_list() -> list[Experiment]:
    """All of them: those that end by themselves first, then by name."""
    root: Path = settings.EXPERIMENTS_FOLDER
    found = []
    for path in sorted(root.rglob("*.toml")):
        name = str(path.relative_to(root).with_suffix(""))
        if NAME.match(name):
            found.append(_read(name, path, path.stat().st_mtime_ns))
    return sorted(found, key=lambda one: (one.facts is None, bool(one.facts and one.facts.is_open_ended), one.name))


def experiment_names() -> list[str]:
    """Names of all files, read or not."""
    root: Path = settings.EXPERIMENTS_FOLDER
    names = (str(path.relative_to(root).with_suffix("")) for path in root.rglob("*.toml"))
    return sorted(name for name in names if NAME.match(name))


def experiment_get(*, name: str) -> Experiment | None:
    """The experiment of this name, or None."""
    if not NAME.match(name):
        return None
    path: Path = settings.EXPERIMENTS_FOLDER / f"{name}.toml"
    if not path.is_file():
        return None
    return _read(name, path, path.stat().st_mtime_ns)


@lru_cache(maxsize=256)
def _read(name: str, path: Path, _changed: int) -> Experiment:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as fault:
        return Experiment(name, "", None, fault=f"{path.name}: {fault}")
    try:
        spec = spec_from_bytes(text.encode(), f"{name}.toml")
    except SpecError as fault:
        return Experiment(name, text, None, fault=str(fault))
    judged = any(metric.startswith("fidelity.") for metric in spec.expect) or bool(spec.hardware.interfaces())
    return Experiment(name, text, facts_of(spec), judged, _models_only(spec), subjects_of(spec))


def _models_only(spec: Spec) -> tuple[str, ...]:
    found: dict[str, None] = {}
    for system in spec.systems.values():
        row = SYSTEMS[system.kind]
        if row.simulated_only is not None:
            found |= dict.fromkeys(row.simulated_only(msgspec.convert(system.parameters, row.parameters)))
    return tuple(found)


@dataclass(frozen=True)
class BenchRow:
    """A bench as the catalogue shows it."""

    name: str
    tone: str
    icon: str
    words: str
    run: Run | None = None
    """What it carries out, if the caller may read that."""


def bench_rows(*, caller: Caller) -> list[BenchRow]:
    """Every bench, and what it does right now."""
    active: dict[str | None, list[Run]] = {}
    for run in Run.objects.filter(state__in=ACTIVE).defer("spec", "summary", "search").order_by("created_at"):
        active.setdefault(run.bench_id, []).append(run)
    mine = set(runs_readable(caller).filter(state__in=ACTIVE).values_list("pk", flat=True))
    rows = []
    for place in bench_places(now=timezone.now()):
        runs = active.get(place.name, [])
        shown = next((run for run in runs if run.pk in mine), None)
        if place.shut:
            rows.append(BenchRow(place.name, "warn", "warn", place.shut))
        elif runs:
            words = "a run of somebody else's" if len(runs) == 1 else f"{len(runs)} runs"
            rows.append(BenchRow(place.name, "run", "run", words, shown if len(runs) == 1 else None))
        elif place.elsewhere:
            rows.append(BenchRow(place.name, "run", "run", "emulates for a command or another console"))
        elif place.holder is not None:
            words = "leased to you" if place.holder == caller.user.pk else "leased"
            rows.append(BenchRow(place.name, "idle", "idle", words))
        else:
            rows.append(BenchRow(place.name, "ok", "ok", "free"))
    return rows


def offers_now() -> list[Offer]:
    """What the benches have that take runs now."""
    return [place.offer for place in bench_places(now=timezone.now()) if not place.shut]


def runs_here(experiment: Experiment, offers: list[Offer]) -> bool:
    """Whether some bench could take it now."""
    if experiment.facts is None or experiment.facts.is_open_ended:
        return False
    return any(not lacking(experiment.needs, offer) for offer in offers)
