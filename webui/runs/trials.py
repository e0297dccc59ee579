"""The trials of a finished run, and its systems with their repeats pooled, as rows for its page."""

from __future__ import annotations

from typing import Any, NamedTuple

from webui.runs.evidence import Summary, systems_in

_FIGURES = ("ttft_ms", "tpot_ms", "itl_ms")


class TrialRow(NamedTuple):
    """One trial."""

    label: str
    system: str
    point: str
    outcome: str
    detail: str
    verdict: str
    """Of its fidelity."""
    sent: int
    completed: int
    failed: int


class SystemRow(NamedTuple):
    """One system at one point of the sweep, its repeats together."""

    name: str
    values: tuple[float | None, ...]
    """Median and p99 of TTFT, TPOT and ITL in ms, then output tokens a second."""


def trial_rows(summary: Summary, labels: list[str]) -> list[TrialRow]:
    """A row for each of `labels` that the summary knows, in their order."""
    told = summary.get("trials")
    known = {str(row.get("label")): row for row in told if isinstance(row, dict)} if isinstance(told, list) else {}
    return [_trial(label, known[label]) for label in labels if label in known]


def _trial(label: str, row: dict[str, Any]) -> TrialRow:
    system, point, outcome, detail, verdict = (
        str(row.get(name, "")) for name in ("system", "point", "outcome", "detail", "verdict")
    )
    sent, completed, failed = (
        value if isinstance(value := row.get(name), int) else 0 for name in ("sent", "completed", "failed")
    )
    return TrialRow(label, system, point, outcome, detail, verdict, sent, completed, failed)


def system_rows(summary: Summary) -> list[SystemRow]:
    """A row for each system of the summary; none where no system has a figure."""
    rows = []
    for name, figures in systems_in(summary):
        told = figures if isinstance(figures, dict) else {}
        values = [_percentile(told.get(metric), which) for metric in _FIGURES for which in ("p50", "p99")]
        rows.append(SystemRow(name, (*values, _figure(told.get("throughput_tokens_per_s")))))
    return rows if any(value is not None for row in rows for value in row.values) else []


def _percentile(distribution: Any, which: str) -> float | None:
    return _figure(distribution.get(which)) if isinstance(distribution, dict) else None


def _figure(value: Any) -> float | None:
    return value if isinstance(value, int | float) else None
