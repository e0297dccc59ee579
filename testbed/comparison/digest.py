"""What a comparison needs of one finished run: each repeat's figures, whole distributions, the first requests' lanes.

`summary.json` pools repeats, so a spread takes the event logs once more. That is done once for a run and kept in a
folder, `digest.json` and `trials/<label>.json`; it may be deleted and made again. Figures are found under the paths
that `[expect]` uses (testbed.experiment.metric_paths), by the same folds as the summary's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from testbed.comparison.samples import Samples, thinned
from testbed.events.log import LogError
from testbed.events.ordering import merge
from testbed.experiment.complaints import SpecError
from testbed.experiment.conclusion import read_run_spec, results_of
from testbed.experiment.metric_paths import METRICS
from testbed.experiment.paper import bundled_papers
from testbed.experiment.run_folder import RunFolder, RunFolderError, write_whole
from testbed.experiment.summary import TrialResults, selection_of, summarise_system
from testbed.metrics.fold import Folding
from testbed.metrics.latency import DEFAULT_DEFINITION, DEFINITIONS, Selection, measured
from testbed.metrics.requests import Exchange
from testbed.metrics.spans import RequestSpans, request_spans
from testbed.metrics.table import FOLDS
from testbed.units import MILLISECOND, Nanoseconds

VERSION = 1
"""Raised when an older digest would mislead."""
DIGEST = "digest.json"
TRIALS = "trials"
DISTRIBUTIONS = ("ttft_ms", "tpot_ms", "itl_ms")
MOST_LANES = 40
MOST_MARKS = 12_000
"""Tokens of all lanes of a trial together: what a page can be sent at once."""


class LaneMarks(msgspec.Struct, frozen=True):
    """One request as the timeline draws it (static/run/paint.js); moments in true nanoseconds."""

    name: str
    start: Nanoseconds
    end: Nanoseconds
    state: str
    phases: tuple[tuple[str, Nanoseconds, Nanoseconds], ...]
    tokens: tuple[Nanoseconds, ...]
    pauses: tuple[tuple[Nanoseconds, Nanoseconds], ...]


class TrialDigest(msgspec.Struct, frozen=True):
    """One trial: one repeat of one system at one point of the sweep."""

    label: str
    """Name of its folder; of the run's where that is the trial itself."""
    system: str
    point: dict[str, Any]
    """Path → value."""
    point_words: str
    """As `RunSummary.systems` has it behind the system's name."""
    repeat: int
    verdict: str
    reasons: tuple[str, ...]
    figures: dict[str, float]
    """By metric path, by another tool's definition with its name in front; what has no value is missing."""
    counts: dict[str, int]
    """How many values stand behind a distribution, by its path."""

    @property
    def variant(self) -> str:
        """Its system and point, as a summary's `systems` is keyed."""
        return f"{self.system} {self.point_words}".strip()


class TrialDetail(msgspec.Struct, frozen=True):
    """What is bulky of a trial, in a file of its own."""

    samples: dict[str, Samples]
    """By name of `DISTRIBUTIONS`, in milliseconds."""
    lanes: tuple[LaneMarks, ...]
    """The first requests, in the order of sending."""
    requests: int
    """How many there are."""


class RunDigest(msgspec.Struct, frozen=True):
    """A whole run."""

    run: str
    of: str
    """What of the run folder it was made from: `stamp_of`."""
    trials: tuple[TrialDigest, ...]
    pooled: dict[str, dict[str, Samples]]
    """By variant and name: all repeats together."""
    fault: str = ""
    """Why the logs cannot be read; there are then no trials."""
    version: int = VERSION


def stamp_of(folder: RunFolder) -> str:
    """Changes when the run is concluded anew; empty while it has no summary."""
    try:
        found = folder.summary_file.stat()
    except OSError:
        return ""
    return f"{found.st_mtime_ns}-{found.st_size}"


def make_digest(folder: RunFolder, place: Path) -> RunDigest:
    """Reads every trial's log and keeps what comes of it in `place`. Raises OSError where that cannot be written.

    A run that cannot be read gets a digest that says why.
    """
    stamp = stamp_of(folder)
    try:
        digest = _digest(folder, stamp, place)
    except (RunFolderError, SpecError, LogError, ValueError, KeyError, TypeError) as reason:
        digest = RunDigest(folder.name, stamp, (), {}, f"{type(reason).__name__}: {reason}")
    # Last, since whoever waits looks for this file.
    write_whole(place / DIGEST, msgspec.json.encode(digest))
    return digest


def read_digest(place: Path) -> RunDigest | None:
    """The digest that is kept in `place`, or None: there is none, it is damaged, or of another version."""
    try:
        found = msgspec.json.decode((place / DIGEST).read_bytes(), type=RunDigest)
    except (OSError, msgspec.DecodeError):
        return None
    return found if found.version == VERSION else None


def read_detail(place: Path, trial: str) -> TrialDetail | None:
    """What is kept of one trial, or None."""
    try:
        return msgspec.json.decode((place / TRIALS / f"{trial}.json").read_bytes(), type=TrialDetail)
    except (OSError, msgspec.DecodeError):
        return None


def _digest(folder: RunFolder, stamp: str, place: Path) -> RunDigest:
    if not stamp:
        raise RunFolderError(folder.summary_file, "the run has no figures yet")
    selection = selection_of(msgspec.to_builtins(read_run_spec(folder).workload))
    trials, raw = [], dict[str, dict[str, list[float]]]()
    for trial in folder.trials():
        if not trial.plan_file.is_file():
            continue
        results = results_of(trial)
        found, values = _trial(trial, results, selection), latencies_of(results, selection)
        trials.append(found)
        for name, more in values.items():
            raw.setdefault(found.variant, {}).setdefault(name, []).extend(more)
        detail = _detail(trial, values)
        write_whole(place / TRIALS / f"{trial.name}.json", msgspec.json.encode(detail))
    pooled = {variant: {name: thinned(values) for name, values in by.items()} for variant, by in raw.items()}
    return RunDigest(folder.name, stamp, tuple(trials), pooled)


def _trial(trial: RunFolder, results: TrialResults, selection: Selection) -> TrialDigest:
    told = msgspec.to_builtins(summarise_system([results], selection))
    return TrialDigest(
        label=trial.name,
        system=results.system,
        point=dict(trial.plan().point),
        point_words=results.point,
        repeat=results.repeat,
        verdict=results.fidelity.verdict,
        reasons=results.fidelity.reasons,
        figures={**dict(figures_in(told)), **dict(_by_tool(told))},
        counts=dict(counts_in(told)),
    )


def _by_tool(system: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Those figures by other tools' definitions that stand beside a paper's, as "guidellm:ttft_ms.p99"."""
    told = {(column.definition, column.metric) for paper in bundled_papers() for table in paper.tables
            for column in table.columns if column.definition}  # fmt: skip
    for definition, metric in sorted(told):
        value = _at(system["definitions"].get(definition, {}), metric)
        if isinstance(value, int | float):
            yield f"{definition}:{metric}", float(value)


def _detail(trial: RunFolder, values: Mapping[str, Sequence[float]]) -> TrialDetail:
    timeline = Folding({"timeline": FOLDS["timeline"]}).take_all(merge(trial.events)).result("timeline")
    rows = request_spans(timeline)
    return TrialDetail({name: thinned(found) for name, found in values.items()}, tuple(_lanes(rows)), len(rows))


def figures_in(system: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Every metric that a system of a summary has a value for."""
    neighbours = system.get("neighbours") or {}
    beside = [f"neighbours.{name}.{part}" for name in neighbours for part in ("rate", "cores")]
    for path in (*METRICS, *beside):
        value = _at(system, path)
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield path, float(value)


def counts_in(system: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    """How many values each distribution of a summary's system rests on."""
    for path in METRICS:
        head, _, last = path.rpartition(".")
        if last == "n":
            value = _at(system, path)
            if isinstance(value, int):
                yield head, value


def _at(system: Mapping[str, Any], path: str) -> Any:
    place: Any = system
    for part in path.split("."):
        place = place.get(part) if isinstance(place, Mapping) else None
    return place


def latencies_of(results: TrialResults, selection: Selection) -> dict[str, list[float]]:
    """Every value of each distribution in milliseconds, by the summary's own definition and choice of requests."""
    row = DEFINITIONS[DEFAULT_DEFINITION]
    chosen: Sequence[Exchange] = measured(results.exchanges, selection) or measured(results.served, selection)
    done = [exchange for exchange in chosen if exchange.completed]
    takes = {"ttft_ms": row.ttft, "tpot_ms": row.tpot, "itl_ms": row.itl}
    return {
        name: [value / MILLISECOND for exchange in done for value, _ in takes[name](exchange)] for name in DISTRIBUTIONS
    }


def _lanes(rows: Sequence[RequestSpans]) -> Iterator[LaneMarks]:
    """The first requests, as many as a page can take; the last of them whole or not at all."""
    marks = 0
    for row in rows[:MOST_LANES]:
        marks += len(row.token_times)
        if marks > MOST_MARKS:
            return
        yield LaneMarks(
            name=row.name,
            start=row.start,
            end=row.end,
            state=row.state,
            phases=tuple((phase.what, phase.start, phase.end) for phase in row.phases),
            tokens=row.token_times,
            pauses=tuple((pause.start, pause.end) for pause in row.pauses),
        )
