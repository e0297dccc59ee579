"""Holds an emulation's figures against those of its simulated twin: which metrics, which bounds, what holds.

`compare` is given the folds of both; it starts nothing and reads no folder. Only faithful emulations are pooled, with
the simulations of the same repeats, whose seeds are the same. The bounds are those of issues "Ground" and, for systems
that serve agents, "DualPath": they allow for the lateness and jitter of a two-core host, not for another model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from testbed.experiment.report import number
from testbed.experiment.summary import SystemSummary, TrialResults, summarise_system
from testbed.metrics.latency import Selection


class Compared(NamedTuple):
    """A metric and how far the clocks may be apart in it."""

    title: str
    path: str
    """In a `SystemSummary`."""
    bound: float | None
    """In percent of the simulated figure; None: shown, not judged."""
    scale: float = 1.0
    """What the figure is multiplied by to be in the unit of the title."""


COMPARED: tuple[Compared, ...] = (
    Compared("TTFT p50", "ttft_ms.p50", 10),
    Compared("TTFT p99", "ttft_ms.p99", 20),
    Compared("TPOT p50", "tpot_ms.p50", 10),
    Compared("TPOT p99", "tpot_ms.p99", 20),
    Compared("ITL p50", "itl_ms.p50", 10),
    Compared("ITL p99", "itl_ms.p99", None),
    Compared("submit to claim p50", "submit_to_claim_ms.p50", 25),
    Compared("submit to claim p99", "submit_to_claim_ms.p99", None),
    Compared("publish to client p50", "publish_to_client_ms.p50", 25),
    Compared("publish to client p99", "publish_to_client_ms.p99", None),
    Compared("tokens a second", "throughput_tokens_per_s", 10),
)
"""What is compared. A p99 of gaps or hops is shown without a bound: issue Ground gives it none."""


AGENTS_COMPARED: tuple[Compared, ...] = (
    Compared("JCT, s", "jct.total_s", 10),
    Compared("JCT of an agent p50, s", "jct.agent_s.p50", 10),
    Compared("read by prefill side, GB", "paths.read_bytes.prefill", 10, 1e-9),
    Compared("read by decode side, GB", "paths.read_bytes.decode", 10, 1e-9),
    Compared("hit rate", "paths.hit_rate", None),
    Compared("TTFT p50", "ttft_ms.p50", None),
    Compared("TTST p50", "ttst_ms.p50", None),
    Compared("TPOT p50", "tpot_ms.p50", None),
    Compared("tokens a second", "throughput_tokens_per_s", 10),
)
"""What is compared of a system that serves agents: issue DualPath bounds JCT and bytes per path."""


class Row(msgspec.Struct, frozen=True):
    """One metric under both clocks. Times are true milliseconds."""

    metric: str
    simulated: float | None
    emulated: float | None
    """Of all faithful repeats, pooled; None where n is too small for the percentile."""
    least: float | None
    """The smallest figure of a single repeat, where one repeat has enough values."""
    most: float | None
    difference_percent: float | None
    bound_percent: float | None
    held: bool | None
    """None: not judged, since there is no bound or a figure is missing."""


class Emulated(msgspec.Struct, frozen=True):
    """One repeat on the emulated network."""

    trial: str
    outcome: str
    verdict: str
    reasons: tuple[str, ...]
    pooled: bool


class Parity(msgspec.Struct, frozen=True):
    """One system at one point, under both clocks."""

    system: str
    dilation: float
    byte_scale: int
    requests: int
    """Completed requests that are pooled."""
    rows: tuple[Row, ...]
    runs: tuple[Emulated, ...]
    same_tokens: bool | None
    """Whether every request got as many tokens under both clocks; None without a pooled repeat."""

    @property
    def comparable(self) -> bool:
        """True if there is a faithful emulation."""
        return any(run.pooled for run in self.runs)

    @property
    def held(self) -> bool:
        """Nothing that was judged is beyond its bound, and the answers are as long."""
        return bool(self.same_tokens) and all(row.held is not False for row in self.rows)


def compare(
    emulated: Sequence[TrialResults], simulated: Sequence[TrialResults], selection: Selection
) -> tuple[Parity, ...]:
    """The comparison of each system at each point. Trials of the two stand in the same order."""
    groups: dict[str, list[tuple[TrialResults, TrialResults]]] = {}
    for real, twin in zip(emulated, simulated, strict=True):
        groups.setdefault(f"{real.system} {real.point}".strip(), []).append((real, twin))
    return tuple(_of_group(name, pairs, selection) for name, pairs in groups.items())


def _of_group(name: str, pairs: Sequence[tuple[TrialResults, TrialResults]], selection: Selection) -> Parity:
    runs = [
        Emulated(
            real.label, real.story.outcome or "lost", real.fidelity.verdict, real.fidelity.reasons,
            pooled=real.story.outcome == "passed" and real.fidelity.verdict == "faithful",
        )
        for real, _ in pairs
    ]  # fmt: skip
    chosen = [pair for pair, run in zip(pairs, runs, strict=True) if run.pooled]
    story = pairs[0][0].story
    if not chosen:
        return Parity(name, story.dilation, story.byte_scale, 0, (), tuple(runs), None)
    real = summarise_system([pair[0] for pair in chosen], selection)
    twin = summarise_system([pair[1] for pair in chosen], selection)
    singles = [summarise_system([pair[0]], selection) for pair in chosen]
    table = COMPARED if twin.jct is None else AGENTS_COMPARED
    rows = tuple(_row(compared, twin, real, singles) for compared in table)
    same = all(_answers(one) == _answers(other) for one, other in chosen)
    return Parity(name, story.dilation, story.byte_scale, real.measured_requests, rows, tuple(runs), same)


def _row(compared: Compared, twin: SystemSummary, real: SystemSummary, singles: Sequence[SystemSummary]) -> Row:
    expected, found = _figure(twin, compared), _figure(real, compared)
    spread = [value for value in (_figure(single, compared) for single in singles) if value is not None]
    difference = None if not expected or found is None else (found - expected) / expected * 100
    judged = compared.bound is not None and difference is not None
    return Row(
        metric=compared.title,
        simulated=expected,
        emulated=found,
        least=min(spread, default=None),
        most=max(spread, default=None),
        difference_percent=difference,
        bound_percent=compared.bound,
        held=abs(difference or 0.0) <= (compared.bound or 0.0) if judged else None,
    )


def _figure(summary: SystemSummary, compared: Compared) -> float | None:
    value: Any = summary
    for part in compared.path.split("."):
        value = getattr(value, part, None)
    return None if value is None else float(value) * compared.scale


def _answers(trial: TrialResults) -> dict[str, int]:
    """Tokens of each request, by name."""
    return {exchange.name: exchange.received for exchange in trial.exchanges}


def parity_text(parity: Parity) -> Iterator[str]:
    """The comparison as lines for a terminal."""
    pooled = sum(run.pooled for run in parity.runs)
    yield (
        f"{parity.system}: dilation {parity.dilation:g}, byte_scale {parity.byte_scale}; {pooled} of "
        f"{len(parity.runs)} emulations are faithful and pooled, {parity.requests:,} requests"
    )
    for run in parity.runs:
        if not run.pooled:
            why = "; ".join(run.reasons) or "no reason given"
            yield f"  left out: {run.trial}, {run.outcome}, {run.verdict}: {why}"
    if not parity.comparable:
        yield "  nothing to compare: no emulation is faithful"
        return
    heads = ("simulated", "emulated", "least", "most", "apart", "bound")
    yield f"  {'ms of true time':<25}" + "".join(f"{head:>11}" for head in heads)
    for row in parity.rows:
        cells = "".join(f"{number(value, 3):>11}" for value in (row.simulated, row.emulated, row.least, row.most))
        apart = "-" if row.difference_percent is None else f"{row.difference_percent:+.1f} %"
        bound = "-" if row.bound_percent is None else f"{row.bound_percent:g} %"
        mark = {True: "held", False: "BROKEN", None: "not judged"}[row.held]
        yield f"  {row.metric:<25}{cells}{apart:>11}{bound:>11}  {mark}"
    yield f"  every request got as many tokens under both clocks: {'yes' if parity.same_tokens else 'NO'}"
