"""The figures of a run in one object: `summary.json`, and what `looplane run --json` prints.

Made from the run's events by the folds of `testbed.metrics` and nothing else, so it may be deleted and made again.
`systems` in it is keyed NAME, in a sweep "NAME POINT".
Trials of one system at one point of the sweep (its repeats) are pooled; different points never are. This file knows
events, folds and bounds; it reads no folder (whoever does hands the records in).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from testbed.events.log import Record
from testbed.experiment.agentic_figures import AgenticFigures
from testbed.experiment.agentic_results import NEEDED as AGENTIC
from testbed.experiment.agentic_results import AgenticResults, agentic_results
from testbed.experiment.agentic_summary import agentic_figures
from testbed.experiment.energy_figures import EnergyFigures, EnergyResults, energy_figures
from testbed.experiment.expectations import Expectation, evaluate, split_bounds
from testbed.experiment.fidelity_figures import SystemFidelity, merge_fidelity, system_fidelity
from testbed.experiment.front_end_view import of_front_end, seen_by_front_end
from testbed.experiment.host_figures import (
    HostFigures,
    MitigationFigures,
    NeighbourFigures,
    host_figures,
    mitigation_figures,
    neighbour_figures,
)
from testbed.experiment.prefix_figures import PrefixFigures, prefix_figures
from testbed.experiment.recovery_figures import RecoveryFigures, recovery_figures
from testbed.experiment.request_totals import RequestTotals, request_totals
from testbed.experiment.run_facts import NO_FACTS, RunFacts
from testbed.experiment.run_folder import Outcome
from testbed.experiment.spec import Bound
from testbed.metrics.energy import EnergyState
from testbed.metrics.fidelity import Fidelity, Verdict
from testbed.metrics.fold import Folding
from testbed.metrics.hops import Hops
from testbed.metrics.host_path import HostPathState
from testbed.metrics.latency import (
    DEFAULT_DEFINITION,
    DEFINITIONS,
    EVERYTHING,
    Distribution,
    Latencies,
    Selection,
    distribution,
    latencies,
    measured,
)
from testbed.metrics.neighbours import NeighbourState
from testbed.metrics.outcome import StoryState
from testbed.metrics.prefix_cache import PrefixState
from testbed.metrics.recovery import RecoveryState
from testbed.metrics.requests import Exchange, count_requests
from testbed.metrics.shares import LaneShare
from testbed.metrics.table import FOLDS
from testbed.metrics.throughput import Served, Throughput, served
from testbed.units import Nanoseconds, from_seconds

NEEDED = ("story", "exchanges", "served", "throughput", "shares", "ring", "fidelity", "hops", "energy", "host_path",
          "neighbours", "recovery", "prefixes", *AGENTIC)  # fmt: skip
"""The folds that a summary is made of."""
SUBMIT_TO_CLAIM = "slot claimed - prompt written (its swap is posted), pooled over submissions"
PUBLISH_TO_CLIENT = "token received (streamed, where no client logs) - token published, pooled over tokens"
"""What the two hops between DPU and GPU mean, for reports."""


class TrialResults(NamedTuple):
    """What the folds say of one trial."""

    label: str
    system: str
    """Name in the experiment."""
    point: str
    """Point of the sweep in words, as `rate_per_s=8`; empty without a sweep."""
    story: StoryState
    exchanges: tuple[Exchange, ...]
    """As the client saw them."""
    served: tuple[Exchange, ...]
    """As the front end saw them."""
    throughput: Throughput
    shares: tuple[LaneShare, ...]
    fidelity: Fidelity
    hops: Hops
    agentic: AgenticResults
    repeat: int
    """Which repeat of the experiment, from 0."""
    energy: EnergyState
    host_path: HostPathState
    neighbours: NeighbourState
    recovery: RecoveryState
    prefixes: PrefixState
    beside: bool
    """Whether neighbours were beside it."""


def fold_trial(
    label: str, system: str, point: str, records: Iterable[Record], facts: RunFacts = NO_FACTS, repeat: int = 0
) -> TrialResults:
    """Folds a trial's records, which come in the one order; `facts` are those of its plan."""
    folding = Folding({name: FOLDS[name] for name in NEEDED}).take_all(records)
    story, exchanges = folding.result("story"), folding.result("exchanges")
    return TrialResults(
        label=label,
        system=system,
        point=point,
        story=story,
        exchanges=exchanges,
        served=folding.result("served"),
        throughput=folding.result("throughput"),
        shares=folding.result("shares"),
        fidelity=folding.result("fidelity"),
        hops=folding.result("hops"),
        agentic=agentic_results(folding, story, exchanges, facts),
        repeat=repeat,
        energy=folding.result("energy"),
        host_path=folding.result("host_path"),
        neighbours=folding.result("neighbours"),
        recovery=folding.result("recovery"),
        prefixes=folding.result("prefixes"),
        beside=facts.neighbour_threads > 0,
    )


class SystemSummary(AgenticFigures, frozen=True, kw_only=True):
    """One system at one point of the sweep. Latencies are of completed requests after the warm-up; what the parts of
    `AgenticFigures` measure is of the whole run.
    """

    trials: int
    measured_requests: int
    """Completed requests that count after the warm-up."""
    ttft_ms: Distribution
    ttst_ms: Distribution
    itl_ms: Distribution
    tpot_ms: Distribution
    requests: RequestTotals
    throughput_tokens_per_s: float | None
    """Output tokens of completed requests over the time from first sending to last end, of all trials together."""
    throughput: Served
    windows: tuple[Throughput, ...]
    """Rates on fixed windows, one for each trial."""
    send_lag_ms: Distribution
    definitions: dict[str, Latencies]
    """The same requests by the definitions of each tool; as the front end saw them where no client logged."""
    front_end: Latencies | None
    """As the front end saw them, arrival to streaming; None where it logged nothing."""
    submit_to_claim_ms: Distribution
    """Prompt in GPU memory to the scheduler's claim, of all submissions, warm-up included."""
    publish_to_client_ms: Distribution
    """Token in the ring to the client (to its streaming where no client logs), of all tokens, warm-up included."""
    recovery: RecoveryFigures | None
    """None where no scheduler died."""
    energy: EnergyFigures | None
    """Modelled, of the whole run; None where no GPU ran a graph."""
    host: HostFigures | None
    """The host's part in serving; None where it has none."""
    neighbours: dict[str, NeighbourFigures]
    """What the tenants beside it got done."""
    mitigations: dict[str, MitigationFigures]
    """What was to protect it from them."""
    prefix_cache: PrefixFigures | None = None
    """None where no scheduler has one."""
    fidelity: SystemFidelity | None = None
    """The verdict on its trials; None in a summary of before there was one."""


class TrialSummary(msgspec.Struct, frozen=True):
    """One trial in a list."""

    label: str
    system: str
    point: str
    outcome: str
    detail: str
    verdict: Verdict
    sent: int
    completed: int
    failed: int
    dilation: float = 1.0
    byte_scale: int = 1


class RunSummary(msgspec.Struct, frozen=True):
    """A whole run."""

    run: str
    folder: str
    outcome: Outcome
    """passed, failed, errored, cancelled or lost."""
    detail: str
    clock: str
    dilation: float
    """Of the first trial; systems may have their own, see `trials`."""
    byte_scale: int
    fidelity: Fidelity
    """The worst of all trials."""
    systems: dict[str, SystemSummary]
    """By the system's name; in a sweep by "NAME POINT", as `large rate_per_s=8, max_batch=4` (see
    `TrialResults.point`)."""
    expectations: tuple[Expectation, ...]
    trials: tuple[TrialSummary, ...]
    shares: dict[str, tuple[LaneShare, ...]]
    """What ports and lanes carried, by trial, where it was measured."""
    selection: Selection
    """The warm-up rule by which requests were left out of the latencies."""
    format: int = 1
    """Raised when a reader of an older summary would be misled."""


def summarise(
    run: str,
    folder: str,
    trials: Sequence[TrialResults],
    expect: Mapping[str, Bound] | None = None,
    selection: Selection = EVERYTHING,
) -> RunSummary:
    """The summary of `trials`. Raises `metric_paths.UnknownMetric` for an expectation of a metric there is not."""
    fidelity = merge_fidelity([(trial.label, trial.fidelity) for trial in trials])
    groups: dict[str, dict[str, list[TrialResults]]] = {}
    for trial in trials:
        groups.setdefault(trial.point, {}).setdefault(trial.system, []).append(trial)
    systems: dict[str, SystemSummary] = {}
    expectations: list[Expectation] = []
    for point, by_system in groups.items():
        found = {name: summarise_system(members, selection) for name, members in by_system.items()}
        systems.update({f"{name} {point}".strip(): summary for name, summary in found.items()})
        pooled, each = split_bounds(expect or {})
        if pooled:
            expectations.extend(evaluate(pooled, _figures(found, fidelity), point))
        for repeat in sorted({trial.repeat for members in by_system.values() for trial in members}) if each else ():
            alone = {
                name: summarise_system([trial for trial in members if trial.repeat == repeat], selection)
                for name, members in by_system.items()
            }
            place = f"{point}, repeat {repeat + 1}" if point else f"repeat {repeat + 1}"
            expectations.extend(evaluate(each, _figures(alone, fidelity), place))
    outcome, detail = judge(trials, fidelity, expectations)
    story = trials[0].story if trials else StoryState()
    return RunSummary(
        run=run,
        folder=folder,
        outcome=outcome,
        detail=detail,
        clock=story.clock,
        dilation=story.dilation,
        byte_scale=story.byte_scale,
        fidelity=fidelity,
        systems=systems,
        expectations=tuple(expectations),
        trials=tuple(_trial_row(trial) for trial in trials),
        shares={trial.label: trial.shares for trial in trials if trial.shares},
        selection=selection,
    )


def _figures(systems: Mapping[str, SystemSummary], fidelity: Fidelity) -> dict[str, Any]:
    return {"systems": msgspec.to_builtins(systems), "fidelity": {"verdict": fidelity.verdict}}


def summarise_system(trials: Sequence[TrialResults], selection: Selection) -> SystemSummary:
    """The figures of one system's repeats at one point, pooled."""
    chosen = [exchange for trial in trials for exchange in measured(trial.exchanges, selection)]
    front = [exchange for trial in trials for exchange in measured(trial.served, selection)]
    everything = [exchange for trial in trials for exchange in trial.exchanges or trial.served]
    # Without a client that logs (`looplane serve`), what the front end saw is all there is; it is labelled so.
    served_only = bool(front) and not chosen
    by_tool = {
        name: seen_by_front_end(latencies(front, name)) if served_only else latencies(chosen, name)
        for name in DEFINITIONS
    }
    main = of_front_end(front) if served_only else by_tool[DEFAULT_DEFINITION]
    overall = _pooled([served(trial.exchanges or trial.served) for trial in trials])
    return SystemSummary(
        trials=len(trials),
        measured_requests=sum(exchange.completed for exchange in chosen or front),
        ttft_ms=main.ttft_ms,
        ttst_ms=main.ttst_ms,
        itl_ms=main.itl_ms,
        tpot_ms=main.tpot_ms,
        requests=request_totals(everything),
        throughput_tokens_per_s=overall.tokens_per_s,
        throughput=overall,
        windows=tuple(trial.throughput for trial in trials if trial.throughput.windows),
        send_lag_ms=distribution([(exchange.lag, 1) for exchange in chosen], "linear", "sent - scheduled"),
        definitions=by_tool,
        front_end=of_front_end(front) if front else None,
        submit_to_claim_ms=_pooled_hops([trial.hops.submit_to_claim for trial in trials], SUBMIT_TO_CLAIM),
        publish_to_client_ms=_pooled_hops([trial.hops.publish_to_client for trial in trials], PUBLISH_TO_CLIENT),
        host=host_figures([trial.host_path for trial in trials]),
        neighbours=neighbour_figures([trial.neighbours for trial in trials]),
        mitigations=mitigation_figures([trial.neighbours for trial in trials]),
        recovery=recovery_figures([trial.recovery for trial in trials]),
        prefix_cache=prefix_figures([trial.prefixes for trial in trials]),
        fidelity=system_fidelity([(trial.label, trial.fidelity) for trial in trials]),
        energy=energy_figures([EnergyResults(one.energy, one.exchanges or one.served, one.beside) for one in trials]),
        **msgspec.structs.asdict(agentic_figures([trial.agentic for trial in trials])),
    )


def _pooled_hops(parts: Sequence[Sequence[Nanoseconds]], words: str) -> Distribution:
    return distribution([(value, 1) for part in parts for value in part], "linear", words)


def judge(
    trials: Sequence[TrialResults], fidelity: Fidelity, expectations: Sequence[Expectation]
) -> tuple[Outcome, str]:
    """Outcome and why.

    What stopped a trial comes first (lost, errored, cancelled). Then the fidelity: an invalid run says nothing about
    the system, so its expectations are not held against it and it is errored. Then the expectations.
    """
    if not trials:
        return "lost", "no trial has an event log"
    stopped: tuple[Outcome, ...] = ("lost", "errored", "cancelled")
    for outcome in stopped:
        for trial in trials:
            if _own_outcome(trial.story) == outcome:
                return outcome, _named(trial, trials, _own_detail(trial.story))
    if fidelity.verdict == "invalid":
        return "errored", f"fidelity invalid: {'; '.join(fidelity.reasons)}"
    broken = [row for row in expectations if not row.held]
    if broken:
        return "failed", f"{len(broken)} of {len(expectations)} expectations did not hold"
    for trial in trials:
        if trial.story.outcome == "failed":
            return "failed", _named(trial, trials, trial.story.detail)
    return "passed", ""


def write_summary(summary: RunSummary) -> bytes:
    """`summary.json`, indented for people."""
    return msgspec.json.format(msgspec.json.encode(summary), indent=1) + b"\n"


def read_summary(data: bytes) -> RunSummary:
    """A summary from its file. Raises msgspec.ValidationError if it is of another version: then make it again."""
    return msgspec.json.decode(data, type=RunSummary)


def selection_of(workload: Mapping[str, Any]) -> Selection:
    """The warm-up rule of a plan's workload."""
    rule = workload.get("warm_up") or {}
    return Selection(
        warm_up_requests=int(rule.get("requests", 0)), warm_up=from_seconds(float(rule.get("seconds", 0.0)))
    )


def _pooled(parts: Sequence[Served]) -> Served:
    """Throughput of repeats: their amounts added, over their times added."""
    timed = [part for part in parts if part.span_s]
    span = sum(part.span_s or 0.0 for part in timed)
    if not span:
        return Served(None, None, None, None)

    def mean(name: str) -> float:
        return round(sum((getattr(part, name) or 0.0) * (part.span_s or 0.0) for part in timed) / span, 6)

    return Served(span, mean("requests_per_s"), mean("tokens_per_s"), mean("total_tokens_per_s"))


def _own_outcome(story: StoryState) -> str:
    """What the run said of its end. Without such a word it is lost, or errored where a node's last words are known."""
    return story.outcome or ("errored" if story.died else "lost")


def _own_detail(story: StoryState) -> str:
    if story.detail:
        return story.detail
    if story.died and story.outcome != "passed":
        return "; ".join(f"{node} ended: {words}" for node, words in sorted(story.died.items()))
    if not story.outcome:
        return f"the log ends without run.finished{', in stage ' + story.stage if story.stage else ''}"
    return ""


def _named(trial: TrialResults, trials: Sequence[TrialResults], detail: str) -> str:
    return f"{trial.label}: {detail}" if len(trials) > 1 else detail


def _trial_row(trial: TrialResults) -> TrialSummary:
    counts = count_requests(trial.exchanges or trial.served)
    return TrialSummary(
        trial.label, trial.system, trial.point, _own_outcome(trial.story), _own_detail(trial.story),
        trial.fidelity.verdict, counts.sent, counts.completed, counts.failed, trial.story.dilation,
        trial.story.byte_scale,
    )  # fmt: skip
