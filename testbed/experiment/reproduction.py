"""The tables of Blink's evaluation, ours beside the paper's: isolated, predicted, left out, under interference.

Ours come from the loop of `testbed.serving.iteration` under the load of `testbed.experiment.paper_load`, with the
figures of `testbed.experiment.loop_fit`. Rows are data; `testbed.command.reproduce` prints them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from testbed.experiment.loop_fit import (
    BLINK,
    NAMES,
    SHAPES,
    SYSTEMS,
    Figures,
    Fitted,
    LeftOut,
    Table,
    evaluated,
)
from testbed.experiment.paper import Paper
from testbed.experiment.paper_load import SEEDS, WORKING, law_of
from testbed.serving.host_loop import HostLoops
from testbed.serving.host_work import Contention

METRICS = ("P99 TTFT ms", "P99 TPOT ms", "saturation req/s")
"""Columns of the isolated table."""
RETAINED = ("P99 TTFT x", "P99 TPOT x", "saturation kept")
"""Columns of the interference table."""


class Line(msgspec.Struct, frozen=True):
    """One figure."""

    model: str
    system: str
    metric: str
    ours: float | None
    """None where nothing ended within the minute of any rate."""
    paper: float | None
    """None where it is not known to us."""

    @property
    def error(self) -> float | None:
        """Ours over the paper's, less 1."""
        return None if self.paper is None or self.ours is None else self.ours / self.paper - 1


class Agreement(msgspec.Struct, frozen=True):
    """How near some lines are."""

    figures: int
    within_20_percent: int
    mean_error: float
    """Of the absolute errors."""
    worst: float
    """Largest of them."""


def isolated(fitted: Fitted, loops: HostLoops, table: Table, seeds: Sequence[int] = SEEDS) -> list[Line]:
    """Every model of the evaluation; those that `table` lacks are predictions."""
    lines = []
    for model in WORKING:
        for name in SYSTEMS:
            found = evaluated(name, model, fitted, loops, seeds=seeds)
            lines += _lines(model, name, METRICS, found.figures, table.get((model, name)))
            without = found.tpot_p99_without_ttft_ms
            paper = table.get((model, name))
            lines.append(Line(model, name, "P99 TPOT ms, vLLM's", without, None if paper is None else paper[1]))
            share = max(row.host_share for row in found.rates if row.completed)
            lines.append(Line(model, name, "host's share of a step", share, None))
    return lines


def by_long_row(fitted: Fitted, loops: HostLoops, table: Table, row: int | None) -> list[Line]:
    """The published figures with the first of the longest conversations at `row`; None has none of them."""
    lines = []
    for (model, name), paper in table.items():
        law = law_of(model, None) if row is None else law_of(model, long_first=row)
        lines += _lines(model, name, METRICS, evaluated(name, model, fitted, loops, law=law).figures, paper)
    return lines


def left_out(found: Iterable[LeftOut], table: Table) -> list[Line]:
    """What fits to the other models say of each."""
    return [
        line
        for one in found
        for name, figures in one.ours.items()
        for line in _lines(one.model, name, METRICS, figures, table[one.model, name])
    ]


def interference(
    fitted: Fitted, loops: HostLoops, contention: Contention, paper: Paper, seeds: Sequence[int] = SEEDS
) -> list[Line]:
    """Each figure beside neighbours over the same figure alone: a prediction, nothing of it is fitted."""
    known = {
        (row.model, NAMES[row.system]): row.values
        for table in paper.tables
        if table.name == "under interference"
        for row in table.rows
    }
    lines = []
    for model in WORKING:
        for name in SYSTEMS:
            alone = evaluated(name, model, fitted, loops, seeds=seeds).figures
            beside = evaluated(name, model, fitted, loops, contention=contention, seeds=seeds).figures
            ratios = [one / other for one, other in zip(beside, alone, strict=True)]
            lines += _lines(model, name, RETAINED, ratios, known.get((model, name)))
    return lines


def agreement(lines: Iterable[Line], metrics: Sequence[str] = METRICS) -> Agreement:
    """Of those lines of `metrics` that the paper has. Raises ValueError where there are none."""
    errors = [abs(line.error) for line in lines if line.metric in metrics and line.error is not None]
    if not errors:
        raise ValueError("no figure stands beside the paper's")
    return Agreement(len(errors), sum(error <= 0.2 for error in errors), math.fsum(errors) / len(errors), max(errors))


def wrong_orders(lines: Iterable[Line]) -> list[str]:
    """Where two systems stand in another order than in the paper: "model, metric: one before other"."""
    figures = {(line.model, line.metric, line.system): line for line in lines if line.metric in METRICS}
    wrong = []
    for model, metric in sorted({(model, metric) for model, metric, _ in figures}):
        rows = [figures[model, metric, name] for name in SYSTEMS]
        for place, one in enumerate(rows):
            for other in rows[place + 1 :]:
                if None in (one.ours, other.ours, one.paper, other.paper):
                    continue
                if (one.ours < other.ours) != (one.paper < other.paper):  # type: ignore[operator]
                    wrong.append(f"{model}, {metric}: {one.system} and {other.system}")
    return wrong


def gains(lines: Iterable[Line]) -> dict[str, float]:
    """Blink's saturation over the best host-driven system's, by model: the MoE's should be the largest."""
    rows = {(line.model, line.system): line.ours for line in lines if line.metric == METRICS[2]}
    found = {}
    for model in WORKING:
        ours, others = rows[model, BLINK], [rows[model, shape] for shape in SHAPES]
        found[model] = (ours or 0.0) / max(value or math.inf for value in others)
    return found


def _lines(
    model: str, system: str, metrics: Sequence[str], ours: Figures | Sequence[float], paper: Sequence[float] | None
) -> list[Line]:
    return [
        Line(model, system, metric, value if math.isfinite(value) else None, None if paper is None else paper[place])
        for place, (metric, value) in enumerate(zip(metrics, ours, strict=True))
    ]
