"""The end of a run: fold its events, judge it, and write summary, verdict events and report into its folder.

May be called again at any time: everything it writes follows from the events, `control/bench.json` and the spec.
A run that failed, was cancelled or lost is concluded like any other and keeps what it has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from testbed.events.fidelity_events import FidelityJudged
from testbed.events.log import EventWriter, Record
from testbed.events.ordering import merge
from testbed.events.run_events import RunFinished
from testbed.experiment.paper import Beside, Ours, beside, beside_ratios, bundled_papers
from testbed.experiment.plan import Plan
from testbed.experiment.provenance import read_provenance
from testbed.experiment.reading import spec_from_tables
from testbed.experiment.report import ReportFacts
from testbed.experiment.run_facts import facts_of
from testbed.experiment.run_folder import Outcome, RunFolder, RunFolderError, write_whole
from testbed.experiment.spec import Spec
from testbed.experiment.summary import (
    RunSummary,
    TrialResults,
    fold_trial,
    selection_of,
    summarise,
    write_summary,
)
from testbed.metrics.fold import Folding
from testbed.metrics.table import FOLDS
from testbed.metrics.timeline import TimelineState
from testbed.metrics.traffic_timeline import TrafficState
from testbed.units import Nanoseconds

JUDGE = "judge"
"""Name under which the verdict stands in the event log."""


class BenchWord(msgspec.Struct, frozen=True):
    """`control/bench.json`: what the bench says of an emulation (topologies.bench_run)."""

    outcome: str
    detail: str = ""
    teardown: str = ""


def conclude(folder: RunFolder, *, ended: Outcome | None = None, detail: str = "") -> RunSummary:
    """Folds and judges the run, writes summary.json and the verdict events.

    `ended` is how the launch itself ended where nobody else has said so (a simulation that returned: passed; one that
    raised: errored). Raises `RunFolderError` if the folder has no readable spec or plan.
    """
    spec = read_run_spec(folder)
    results = {trial: results_of(trial, ended, detail) for trial in folder.trials() if trial.plan_file.is_file()}
    warm_up = selection_of(msgspec.to_builtins(spec.workload))
    summary = summarise(folder.name, str(folder.path), list(results.values()), spec.expect, warm_up)
    write_whole(folder.summary_file, write_summary(summary))
    for trial, result in results.items():
        _write_verdict(trial, result, summary)
    return summary


def results_of(trial: RunFolder, ended: Outcome | None = None, detail: str = "") -> TrialResults:
    """One trial's folds."""
    plan = trial.plan()
    records = _with_end(trial, ended, detail)
    return fold_trial(plan.trial or trial.name, plan.system, _point(plan), records, facts_of(plan), plan.repeat)


def _point(plan: Plan) -> str:
    """The trial's point of the sweep in words."""
    return ", ".join(f"{path.rpartition('.')[2]}={value}" for path, value in plan.point.items())


def timelines_of(folder: RunFolder) -> dict[str, TimelineState]:
    """The token timeline of each trial, for exports and the report."""
    found = {}
    for trial in folder.trials():
        folding = Folding({"timeline": FOLDS["timeline"]}).take_all(merge(trial.events))
        found[trial.name] = folding.result("timeline")
    return found


def traffic_of(folder: RunFolder) -> dict[str, TrafficState]:
    """The KV traffic of each trial that has some, for exports."""
    found = {}
    for trial in folder.trials():
        traffic = Folding({"traffic": FOLDS["traffic"]}).take_all(merge(trial.events)).result("traffic")
        if traffic.stages or traffic.transfers:
            found[trial.name] = traffic
    return found


def report_facts(folder: RunFolder, summary: RunSummary) -> ReportFacts:
    """What a report says besides the figures: the question, the planner's notes, provenance, the paper's values."""
    spec = read_run_spec(folder)
    plans = [trial.plan() for trial in folder.trials() if trial.plan_file.is_file()]
    captures = sorted(path for trial in folder.trials() for path in trial.captures.glob("*.pcap*"))
    return ReportFacts(
        title=spec.title,
        question=spec.question,
        notes=tuple(dict.fromkeys(note for plan in plans for note in plan.notes)),
        provenance=_provenance(folder),
        opening=(
            f"{folder.report / 'index.html'} in a browser",
            f"looplane export {folder.name} --format perfetto --out trace.json, then ui.perfetto.dev",
            *(f"{path} in Wireshark" for path in captures),
        ),
        beside=_beside(summary, spec, plans),
    )


def _beside(summary: RunSummary, spec: Spec, plans: Sequence[Plan]) -> dict[str, list[Beside]]:
    """The papers' values beside ours, by system, and by pair of systems for ratios."""
    planned = {f"{plan.system} {_point(plan)}".strip(): plan for plan in plans}
    points: dict[str, dict[str, Ours]] = {}
    for name, system in summary.systems.items():
        short, _, point = name.partition(" ")
        told = spec.systems[short]
        plan = planned.get(name)
        parameters = told.parameters if plan is None else plan.parameters
        neighbours = () if plan is None else plan.neighbours
        ours = Ours(
            told.kind, str(parameters.get("model", "")), parameters, system,
            threads=sum(neighbour.threads for neighbour in neighbours),
            displaced=bool(set(told.cores) - {"client"} or told.mitigations),
            neighbours=tuple(neighbour.kind for neighbour in neighbours),
        )  # fmt: skip
        points.setdefault(point, {})[name] = ours
    found: dict[str, list[Beside]] = {}
    for systems in points.values():
        for paper in bundled_papers():
            for name, ours in systems.items():
                found.setdefault(name, []).extend(beside(paper, ours, spec.name))
            for pair, rows in beside_ratios(paper, systems, spec.name).items():
                found.setdefault(pair, []).extend(rows)
    return found


def _provenance(folder: RunFolder) -> tuple[tuple[str, str], ...]:
    """Where the run comes from, in names and values; a run without that is still worth reading."""
    try:
        told = read_provenance(folder.provenance_file.read_bytes())
    except (OSError, msgspec.DecodeError):
        return (("provenance", "missing or damaged"),)
    return (
        ("spec", told.spec_digest[:16]),
        ("seed", str(told.seed)),
        ("revision", told.revision or "no repository"),
        ("host", f"{told.host.get('machine', '?')}, {told.host.get('kernel', '?')}"),
        ("started", told.started),
    )


def read_run_spec(folder: RunFolder) -> Spec:
    """The experiment as it was run. Raises `RunFolderError`."""
    return spec_from_tables(folder.read_json(folder.spec_json), str(folder.spec_json))


def _with_end(trial: RunFolder, ended: Outcome | None, detail: str) -> Iterator[Record]:
    """The trial's records; if none of them says how the run ended, what the bench or the launcher said of it."""
    latest: Nanoseconds = 0
    said = False
    for record in _own_records(merge(trial.events)):
        latest = record.t
        said = said or isinstance(record.event, RunFinished)
        yield record
    outcome, words = _ending(trial, ended, detail)
    if not said and outcome:
        yield Record(latest, JUDGE, 0, RunFinished(outcome, words))


def _own_records(records: Iterable[Record]) -> Iterator[Record]:
    """Without an earlier verdict, which is judged anew."""
    return (record for record in records if record.node != JUDGE)


def _ending(trial: RunFolder, ended: Outcome | None, detail: str) -> tuple[str, str]:
    path = trial.control / "bench.json"
    if not path.is_file():
        return ended or "", detail
    try:
        word = msgspec.json.decode(path.read_bytes(), type=BenchWord)
    except msgspec.DecodeError as fault:
        raise RunFolderError(path, str(fault)) from fault
    return ("passed" if word.outcome == "completed" else word.outcome), word.detail


def _write_verdict(trial: RunFolder, result: TrialResults, summary: RunSummary) -> None:
    """fidelity.judged and run.finished, in place of an earlier verdict."""
    path = trial.events / f"{JUDGE}.jsonl"
    path.unlink(missing_ok=True)
    last = result.story.finished or 0
    with EventWriter(path, JUDGE) as log:
        log.write(last, FidelityJudged(result.fidelity.verdict, result.fidelity.reasons))
        log.write(last, RunFinished(summary.outcome, summary.detail))
