"""A run's report as one HTML file that needs nothing beside itself: no script, no font, no request to anywhere.

Everything that comes from a run or its author is escaped by the template engine; marks are drawn as inline SVG. It
looks after the console's tokens, light and dark as the reader's system is set.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jinja2

from testbed.experiment import report
from testbed.experiment.drawing import Histogram, Picture, close_up, histogram, whole_run
from testbed.experiment.energy_figures import energy_words
from testbed.experiment.report import LATENCIES, ReportFacts
from testbed.experiment.report_agentic import LEGEND, AgenticTables, agentic_tables, decimal, percent
from testbed.experiment.summary import RunSummary, SystemSummary
from testbed.metrics.latency import DEFINITIONS, PERCENTILES, Distribution, measured, second_chunk
from testbed.metrics.requests import Exchange
from testbed.metrics.spans import RequestSpans, StepRow, request_spans, step_table
from testbed.metrics.timeline import TimelineState
from testbed.units import MILLISECOND, milliseconds

DRAWN_TRIALS = 8
"""Trials that get a timeline; the others stand in the list."""


class Figure(NamedTuple):
    """One cell of a system's figures."""

    name: str
    words: str
    distribution: Distribution
    histogram: Histogram


class SystemSection(NamedTuple):
    """One system's figures."""

    name: str
    summary: SystemSummary
    figures: tuple[Figure, ...]
    agentic: AgenticTables | None
    """Agents and KV traffic, where the system has some."""


class Story(NamedTuple):
    """One request's thirteen steps."""

    row: RequestSpans
    steps: tuple[StepRow, ...]


class TrialSection(NamedTuple):
    """One trial's pictures."""

    label: str
    whole: Picture
    close: Picture | None
    stories: tuple[tuple[str, Story], ...]
    """Why a request is shown, and its steps."""


def report_page(summary: RunSummary, facts: ReportFacts, timelines: Mapping[str, TimelineState] | None = None) -> str:
    """The HTML file. `timelines` are by label of the trial; the same arguments give the same text."""
    timelines = timelines or {}
    drawn = dict(list(timelines.items())[:DRAWN_TRIALS])
    template = _environment().get_template("report.html.j2")
    return template.render(
        summary=summary,
        facts=facts,
        systems=[_system(name, system, summary, timelines) for name, system in summary.systems.items()],
        trials=[_trial(label, timeline) for label, timeline in drawn.items()],
        undrawn=len(timelines) - len(drawn),
        definitions=DEFINITIONS,
        percentiles=PERCENTILES,
        latencies=LATENCIES,
        held=sum(row.held for row in summary.expectations),
        legend=LEGEND,
    )


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("testbed.experiment", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "number": report.number,
        "clock": report.clock_words,
        "threshold": report.threshold_words,
        "found": report.measured_words,
        "requests": report.requests_words,
        "missing": report.missing_words,
        "percent": percent,
        "decimal": decimal,
        "energy": energy_words,
        "surroundings": report.surrounding_lines,
        "ms": lambda time: report.NONE if time is None else f"{milliseconds(time):,.3f}",
        "short": lambda text: text if len(text) <= 16 else text[:15] + "…",
    }
    environment.filters.update(filters)
    return environment


def _system(
    name: str, system: SystemSummary, summary: RunSummary, timelines: Mapping[str, TimelineState]
) -> SystemSection:
    chosen = [
        exchange
        for trial in summary.trials
        if f"{trial.system} {trial.point}".strip() == name and trial.label in timelines
        for exchange in measured(timelines[trial.label].exchanges.exchanges, summary.selection)
        if exchange.completed
    ]
    row = DEFINITIONS["vllm"]
    values: dict[str, Callable[[Exchange], Sequence[tuple[float, int]]]] = {
        "ttft_ms": row.ttft,
        "ttst_ms": second_chunk,
        "itl_ms": row.itl,
        "tpot_ms": row.tpot,
    }
    figures = []
    for head, field in LATENCIES:
        distribution: Distribution = getattr(system, field)
        samples = [value / MILLISECOND for exchange in chosen for value, _ in values[field](exchange)]
        words = distribution.definition.partition(": ")[2]
        figures.append(Figure(head, words, distribution, histogram(samples, distribution.p50, distribution.p99)))
    return SystemSection(name, system, tuple(figures), agentic_tables(system))


def _trial(label: str, timeline: TimelineState) -> TrialSection:
    rows = request_spans(timeline)
    return TrialSection(label, whole_run(timeline, rows), close_up(timeline, rows), _stories(rows))


def _stories(rows: Sequence[RequestSpans]) -> tuple[tuple[str, Story], ...]:
    """The request that waited longest for its first token, and the one in the middle; none where none told a step."""
    answered = sorted(
        (row for row in rows if row.token_times and row.steps and row.state == "done"),
        key=lambda row: (row.token_times[0] - row.start, row.name),
    )
    if not answered:
        return ()
    middle, slowest = answered[len(answered) // 2], answered[-1]
    found = [("the median time to first token", Story(middle, step_table(middle)))]
    if slowest is not middle:
        found.append(("the longest time to first token", Story(slowest, step_table(slowest))))
    return tuple(found)
