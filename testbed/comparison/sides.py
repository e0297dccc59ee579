"""One side of a comparison: a run, one of its systems at one point of its sweep, with all repeats or a single one.

Read from the run's folder: spec.json, summary.json, provenance.json, and the digest of its logs where there is one
already. A folder of another version, or of a run that is still at work, gives what it has.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from testbed.comparison.digest import RunDigest, TrialDetail, TrialDigest, counts_in, figures_in
from testbed.comparison.readings import Cell, cell_of
from testbed.comparison.samples import Samples
from testbed.comparison.settings import Value, expected_of, point_words, settings_of
from testbed.experiment.complaints import SpecError
from testbed.experiment.conclusion import read_run_spec
from testbed.experiment.run_folder import RunFolder, RunFolderError
from testbed.experiment.spec import Spec
from testbed.experiment.sweep import labels, places
from testbed.metrics.latency import PERCENTILES

_NEEDED = {name: least for name, _, least in PERCENTILES}


class NoSuchPart(ValueError):
    """A part that a run has not: no system, no system at a point, no trial of that name."""

    def __init__(self, run: str, part: str, allowed: tuple[str, ...]) -> None:
        self.run = run
        self.part = part
        self.allowed = allowed
        some = "; ".join(allowed[:12]) + (" …" if len(allowed) > 12 else "")
        super().__init__(f"run {run} has no {part!r}; it has {some or 'no system yet'}")


class Variant(msgspec.Struct, frozen=True):
    """One system at one point of the sweep, as `RunSummary.systems` names it."""

    system: str
    words: str
    """The point in words; empty without a sweep."""
    point: dict[str, Any]
    trials: tuple[str, ...]
    """Labels of its repeats."""

    @property
    def name(self) -> str:
        """As the summary's key."""
        return f"{self.system} {self.words}".strip()

    @property
    def at(self) -> str:
        """The point for people, as "rate 50 Gbit/s"; empty without a sweep."""
        return point_words(self.point) if self.point else self.words


class RunRead(msgspec.Struct, frozen=True):
    """What a run's folder says."""

    run: str
    spec: Spec | None
    """None where it is of another version."""
    summary: dict[str, Any]
    """Empty until the run is concluded."""
    provenance: dict[str, Any]
    digest: RunDigest | None
    variants: tuple[Variant, ...]
    pooled: dict[str, tuple[dict[str, float], dict[str, int]]]
    """Figures and counts of the summary, by variant."""

    def variant(self, part: str) -> tuple[Variant, str]:
        """The variant that `part` means, and the trial if it means a single one. Raises NoSuchPart."""
        for variant in self.variants:
            if part == variant.name:
                return variant, ""
            if part in variant.trials:
                # A variant with one repeat is that trial.
                return variant, part if len(variant.trials) > 1 else ""
        for variant in self.variants:
            if part in ("", variant.system):
                return variant, ""
        raise NoSuchPart(self.run, part, tuple(variant.name for variant in self.variants))


class Side(msgspec.Struct, frozen=True):
    """What is compared."""

    run: RunRead
    variant: Variant
    trial: str = ""
    detail: TrialDetail | None = None
    """Of that trial, or of the first repeat."""

    @property
    def repeats(self) -> int:
        """How many were read; as many as were planned while none is."""
        return len(self.trials()) or (1 if self.trial else len(self.variant.trials))

    @property
    def part(self) -> str:
        """As an address writes it."""
        return self.trial or self.variant.name

    def settings(self) -> dict[str, Value]:
        """Every setting; empty where the spec is of another version."""
        if self.run.spec is None:
            return {}
        told = settings_of(self.run.spec, self.variant.system, self.variant.point)
        return told | expected_of(self.run.spec, self.variant.system)

    def trials(self) -> tuple[TrialDigest, ...]:
        """The repeats that were read."""
        found = self.run.digest.trials if self.run.digest else ()
        return tuple(
            one for one in found if one.variant == self.variant.name and (not self.trial or one.label == self.trial)
        )

    def figures(self) -> dict[str, Cell]:
        """Every figure, by metric path."""
        whole, counts, told = self._values()
        paths = dict.fromkeys([*whole, *(path for figures in told for path in figures)])
        return {path: _cell(path, whole, counts, told) for path in paths if ":" not in path}

    def figure(self, path: str) -> Cell:
        """One figure; one without a value where there is none."""
        return _cell(path, *self._values())

    def _values(self) -> tuple[Mapping[str, float], Mapping[str, int], Sequence[Mapping[str, float]]]:
        """Figures and counts of all repeats pooled, and each repeat's figures."""
        trials = self.trials()
        told = [one.figures for one in trials]
        if self.trial:
            return (told[0], trials[0].counts, told) if trials else ({}, {}, [])
        pooled = self.run.pooled.get(self.variant.name)
        whole, counts = pooled if pooled else ({}, {})
        return whole, counts, told or ([whole] if self.repeats == 1 else [])

    def samples(self) -> dict[str, Samples]:
        """Whole distributions, by name."""
        if self.trial:
            return self.detail.samples if self.detail else {}
        return self.run.digest.pooled.get(self.variant.name, {}) if self.run.digest else {}

    def verdict(self) -> tuple[str, tuple[str, ...]]:
        """Fidelity of its own trials and the reasons; of the whole run where that is all there is."""
        trials = self.trials()
        if not trials:
            told = self.run.summary.get("fidelity") or {}
            return str(told.get("verdict") or ""), tuple(map(str, told.get("reasons") or ()))
        order = ("faithful", "degraded", "invalid")
        worst = max((one.verdict for one in trials), key=lambda verdict: order.index(verdict))
        return worst, tuple(dict.fromkeys(reason for one in trials for reason in one.reasons))


def read_run(folder: RunFolder, digest: RunDigest | None = None, asked: Spec | None = None) -> RunRead:
    """What there is of the run in `folder`; `asked` is its experiment while the folder has none."""
    try:
        spec: Spec | None = read_run_spec(folder)
    except (RunFolderError, SpecError, TypeError, AttributeError):
        spec = asked
    summary = _table(folder, folder.summary_file)
    return RunRead(
        run=folder.name,
        spec=spec,
        summary=summary,
        provenance=_table(folder, folder.provenance_file),
        digest=digest,
        variants=variants_of(spec, summary, folder.name),
        pooled={
            name: (dict(figures_in(told)), dict(counts_in(told)))
            for name, told in _systems(summary).items()
            if isinstance(told, dict)
        },
    )


def variants_of(spec: Spec | None, summary: Mapping[str, Any], run: str) -> tuple[Variant, ...]:
    """Every system at every point, in the order in which they were planned; by the summary where there is no spec."""
    if spec is None:
        names = list(_systems(summary))
        return tuple(Variant(name.partition(" ")[0], name.partition(" ")[2], {}, (name,)) for name in names)
    every = places(list(spec.systems), spec.sweep, spec.repeats)
    named = [run] if len(every) == 1 else labels(every)
    found: dict[tuple[str, str], Variant] = {}
    for place, label in zip(every, named, strict=True):
        words = ", ".join(f"{path.rpartition('.')[2]}={value}" for path, value in place.point)
        known = found.get((place.system, words))
        trials = (*known.trials, label) if known else (label,)
        found[place.system, words] = Variant(place.system, words, dict(place.point), trials)
    return tuple(found.values())


def _cell(
    path: str, whole: Mapping[str, float], counts: Mapping[str, int], told: Sequence[Mapping[str, float]]
) -> Cell:
    head, _, last = path.rpartition(".")
    needed = _NEEDED.get(last, 1) if head in counts else 0
    return cell_of([figures.get(path) for figures in told], whole.get(path), counts.get(head), needed)


def _systems(summary: Mapping[str, Any]) -> dict[str, Any]:
    told = summary.get("systems")
    return told if isinstance(told, dict) else {}


def _table(folder: RunFolder, path: Any) -> dict[str, Any]:
    try:
        found = folder.read_json(path)
    except RunFolderError:
        return {}
    return found if isinstance(found, dict) else {}
