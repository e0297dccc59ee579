"""The host's CPU and its neighbours in a summary: the mechanism of interference, and what the other tenants got.

Made from the folds `testbed.metrics.host_path` and `testbed.metrics.neighbours`; repeats are pooled. The figures of a
system whose host has no part in serving are None.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType

import msgspec

from testbed.baselines.mitigations import MITIGATIONS
from testbed.metrics.host_path import PER_MILLE, PER_MILLION, HostPathState
from testbed.metrics.neighbours import NeighbourState
from testbed.metrics.tally import Spread, Tally, pooled, quantile, spread
from testbed.units import MICROSECOND, SECOND

_SPREADS = {
    "step_us": "host work of core and worker between two launches, true microseconds",
    "inflation": "time of that work ÷ what it takes on an idle core",
    "launch_gap_us": "time in which the accelerator stood idle between two graphs of a running batch, microseconds",
}
_SPREAD_FIELDS = {"n": "how many", "mean": "mean", "p50": "median", "p90": "90th percentile", "p99": "99th percentile",
                  "worst": "largest"}  # fmt: skip
_SINGLE = {
    "graph_ratio": "time that the accelerator took for graphs ÷ what its cost model asks for",
    "graph_ratio_p99": "the same of one graph: 99th percentile",
    "wait_percent": "share of wall time in which the host's processes were ready and had no CPU, percent; added up",
    "cpu_percent": "share of wall time in which they had one, percent; added up",
    "ipc": "instructions per cycle of the server's processes, where the machine counts them",
}
COUNTERS = (
    "context-switches", "preemptions", "cpu-migrations", "page-faults", "cycles", "instructions", "LLC-loads",
    "LLC-load-misses", "dTLB-loads", "dTLB-load-misses", "stalled-cycles-backend", "L3-stall-cycles",
    "page-walk-cycles",
)  # fmt: skip
"""What is counted of the server's processes, as perf list names it; `preemptions` are the involuntary switches. The
last two have names of ours, since perf has none for all machines."""

HOST_METRICS: dict[str, str] = {
    **{
        f"host.{name}.{field}": f"{meaning}: {words}"
        for name, words in _SPREADS.items()
        for field, meaning in _SPREAD_FIELDS.items()
    },
    **{f"host.{name}": words for name, words in _SINGLE.items()},
    **{f"host.per_s.{name}": f"{name} of the server's processes a second" for name in COUNTERS},
}
"""Metrics of the host's part, with their meaning."""
NEIGHBOUR_METRICS = {"rate": "units of its work a second", "cores": "cores that it had, on average"}
"""Metrics of `neighbours.NAME`."""
ALLOWED_HOST = (
    f"host.{{{','.join(_SPREADS)}}}.{{{','.join(_SPREAD_FIELDS)}}}, host.{{{','.join(_SINGLE)}}}, "
    f"host.per_s.COUNTER, neighbours.NAME.{{{','.join(NEIGHBOUR_METRICS)}}}"
)
"""Both, folded together for people."""


class HostFigures(msgspec.Struct, frozen=True):
    """The mechanism."""

    step_us: Spread
    inflation: Spread
    launch_gap_us: Spread
    graph_ratio: float | None
    graph_ratio_p99: float | None
    wait_percent: float | None
    cpu_percent: float | None
    ipc: float | None
    per_s: dict[str, float]
    """By counter."""
    absent: tuple[str, ...]
    """Counters that this machine does not have."""


class NeighbourFigures(msgspec.Struct, frozen=True):
    """One neighbour."""

    kind: str
    threads: int
    containers: int
    program: str
    unit: str
    rate: float | None
    """Units a second of wall time."""
    cores: float | None
    """CPU time ÷ wall time."""


class MitigationFigures(msgspec.Struct, frozen=True):
    """One mitigation, beside what the paper found of it."""

    applied: bool
    detail: str
    reserved_cores: float
    paper: str
    price: str


def host_figures(trials: Sequence[HostPathState]) -> HostFigures | None:
    """The figures of all trials together; None where no trial has a host that works."""
    trials = [trial for trial in trials if trial.step.n or trial.gap.n]
    if not trials:
        return None
    counts: dict[str, int] = {}
    for trial in trials:
        for name, count in trial.counts.items():
            counts[name] = counts.get(name, 0) + count
    seconds = sum(trial.counted for trial in trials) / SECOND
    modelled, watched = sum(trial.modelled for trial in trials), sum(trial.watched for trial in trials)
    cycles = counts.get("cycles")
    return HostFigures(
        step_us=spread(_pooled(trials, "step"), MICROSECOND),
        inflation=spread(_pooled(trials, "inflation"), PER_MILLE),
        launch_gap_us=spread(_pooled(trials, "gap"), MICROSECOND),
        graph_ratio=round(sum(trial.measured for trial in trials) / modelled, 6) if modelled else None,
        graph_ratio_p99=_above_one(quantile(_pooled(trials, "excess"), 990)),
        wait_percent=_percent(sum(trial.waited for trial in trials), watched),
        cpu_percent=_percent(sum(trial.ran for trial in trials), watched),
        ipc=round(counts["instructions"] / cycles, 3) if cycles and "instructions" in counts else None,
        per_s={name: round(count / seconds, 3) for name, count in sorted(counts.items())} if seconds else {},
        absent=next((trial.absent for trial in trials if trial.absent), ()),
    )


def mitigation_figures(trials: Sequence[NeighbourState]) -> dict[str, MitigationFigures]:
    """Each mitigation; one that could not be put in force in some repeat was not in force."""
    found: dict[str, MitigationFigures] = {}
    for name, row in ((name, row) for trial in trials for name, row in trial.protections.items()):
        if name not in found or not row.applied:
            told = MITIGATIONS.get(name)
            found[name] = MitigationFigures(
                row.applied, row.detail, row.reserved_cores, told.paper if told else "", told.price if told else ""
            )
    return found


def neighbour_figures(trials: Sequence[NeighbourState]) -> dict[str, NeighbourFigures]:
    """Each neighbour over all trials together."""
    found: dict[str, NeighbourFigures] = {}
    for name in dict.fromkeys(name for trial in trials for name in trial.found):
        rows = [trial.found[name] for trial in trials if name in trial.found]
        wall = sum(row.interval for row in rows)
        found[name] = NeighbourFigures(
            kind=rows[0].kind,
            threads=rows[0].threads,
            containers=rows[0].containers,
            program=rows[0].program,
            unit=rows[0].unit,
            rate=round(sum(row.done for row in rows) * SECOND / wall, 4) if wall else None,
            cores=round(sum(row.cpu for row in rows) / wall, 4) if wall else None,
        )
    return found


def host_lines(
    host: HostFigures | None,
    neighbours: Mapping[str, NeighbourFigures],
    mitigations: Mapping[str, MitigationFigures] = MappingProxyType({}),
) -> Iterator[tuple[str, str]]:
    """All in words, a heading and a line each."""
    if host is not None:
        step, inflation, gap = host.step_us, host.inflation, host.launch_gap_us
        yield "host step", (
            f"p50 {_number(step.p50)} p99 {_number(step.p99)} us, n {step.n:,}; ÷ idle p50 {_number(inflation.p50, 2)} "
            f"p99 {_number(inflation.p99, 2)}; launch gap p50 {_number(gap.p50)} p99 {_number(gap.p99)} us"
        )
        # A simulation has no CPU time to count.
        had = f"had {_number(host.cpu_percent, 1)} %, waited for {_number(host.wait_percent, 1)} % of the time; "
        ratio = f"graphs took {_number(host.graph_ratio, 4)} of the modelled time"
        yield "host CPU", ratio if host.cpu_percent is None else had + ratio
        counted = ", ".join(f"{name} {_number(rate)}" for name, rate in host.per_s.items())
        if host.ipc is not None:
            counted += f", IPC {host.ipc:.2f}"
        if counted or host.absent:
            missing = f"; this machine does not count {', '.join(host.absent)}" if host.absent else ""
            yield "counters/s", f"{counted or '-'}{missing}"
    for name, row in neighbours.items():
        yield "beside", (
            f"{name}: {row.program} in {row.threads} threads, {row.containers} containers: {_number(row.rate, 2)} "
            f"{row.unit}/s on {_number(row.cores, 2)} cores"
        )


    for name, means in mitigations.items():
        state = "in force" if means.applied else "NOT in force"
        cores = f", {means.reserved_cores:g} cores reserved" if means.reserved_cores else ""
        paper = f"; the paper: {means.paper}" if means.paper else ""
        yield "protected", f"{name} {state}{cores}: {means.detail}{paper}; price: {means.price}"


def _pooled(trials: Sequence[HostPathState], name: str) -> Tally:
    return pooled(getattr(trial, name) for trial in trials)


def _above_one(excess: int | None) -> float | None:
    return None if excess is None else round(1 + excess / PER_MILLION, 6)


def _percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 3) if whole else None


def _number(value: float | None, digits: int = 0) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"
