"""A run's report as text, for a terminal and for logs. `testbed.experiment.report_page` is the same as one HTML file.

A figure stands with its n and its definition; one that n is too small for is a dash, never a number. State, outcome
and fidelity are three things and said apart.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from testbed.experiment.energy_figures import energy_words
from testbed.experiment.expectations import Expectation
from testbed.experiment.host_figures import host_lines
from testbed.experiment.paper import Beside
from testbed.experiment.prefix_figures import prefix_lines
from testbed.experiment.recovery_figures import recovery_lines
from testbed.experiment.report_agentic import agentic_tables, agentic_text
from testbed.experiment.summary import RunSummary, SystemSummary
from testbed.metrics.fidelity import Threshold
from testbed.metrics.latency import DEFAULT_DEFINITION, DEFINITIONS, PERCENTILES, Distribution

LATENCIES = (("TTFT", "ttft_ms"), ("TTST", "ttst_ms"), ("ITL", "itl_ms"), ("TPOT", "tpot_ms"))
"""Heading and field of each latency."""
HOPS = (("claim", "submit_to_claim_ms"), ("publish", "publish_to_client_ms"))
"""Heading and field of the two hops between DPU and GPU."""
NONE = "-"
LINE = 116
"""Columns of a wrapped line."""


class ReportFacts(NamedTuple):
    """What a report says besides the figures."""

    title: str
    question: str = ""
    notes: tuple[str, ...] = ()
    """What the planner chose and why, and what is modelled."""
    provenance: tuple[tuple[str, str], ...] = ()
    """Name and value: spec digest, seed, revision, host."""
    opening: tuple[str, ...] = ()
    """How to look at this run further, one way a line."""
    beside: Mapping[str, Sequence[Beside]] = {}
    """By system of the summary."""


def report_text(summary: RunSummary, facts: ReportFacts) -> str:
    """The report, lines of at most 120 characters where texts allow it."""
    lines = [facts.title, f"run {summary.run}"]
    if facts.question:
        lines.append(facts.question)
    lines += ["", *_verdict(summary), ""]
    for name, system in summary.systems.items():
        lines += [*_system(name, system), ""]
        tables = agentic_tables(system)
        if tables is not None:
            lines += [*agentic_text(name, tables), ""]
    lines += [*_legend(summary), ""]
    if summary.expectations:
        lines += [*_expectations(summary.expectations), ""]
    lines += [*_fidelity(summary), ""]
    for name, rows in facts.beside.items():
        if rows:
            lines += [*_beside(name, rows), ""]
    if facts.notes:
        lines += ["Notes", *(line for note in facts.notes for line in _wrapped(note, "  ")), ""]
    lines.append(f"Folder  {summary.folder}")
    lines += [f"Open    {line}" if place == 0 else f"        {line}" for place, line in enumerate(facts.opening)]
    return "\n".join(lines).rstrip() + "\n"


def number(value: float | None, digits: int = 2) -> str:
    """A figure for people, thousands set apart, or a dash."""
    return NONE if value is None else f"{value:,.{digits}f}"


def clock_words(summary: RunSummary) -> str:
    """Which clock, and how far the emulation is from the modelled hardware."""
    if summary.clock == "simulated":
        return "simulated clock: modelled time"
    systems: dict[str, list[str]] = {}
    for trial in summary.trials:
        scale = f", link rates ÷ {trial.byte_scale}" if trial.byte_scale != 1 else ""
        names = systems.setdefault(f"time × {trial.dilation:g}{scale}", [])
        if trial.system not in names:
            names.append(trial.system)
    scales = [f"{words} ({', '.join(names)})" for words, names in systems.items()] if len(systems) > 1 else [*systems]
    return f"wall clock, {', '.join(scales)}; every figure is in true units"


def threshold_words(threshold: Threshold) -> str:
    """What was measured against the limit, e.g. `0.12, limit 0.5 ms`."""
    measured = "not measured" if threshold.measured is None else f"{threshold.measured:g}"
    where = f" ({threshold.where})" if threshold.where else ""
    return f"{measured}, limit {threshold.limit:g} {threshold.unit}{where}"


def measured_words(row: Expectation) -> str:
    """The value that was found, or why there is none."""
    if row.measured is None:
        return row.reason
    return row.measured if isinstance(row.measured, str) else f"{row.measured:.6g}"


def requests_words(system: SystemSummary) -> str:
    """Counts of requests, and why some failed."""
    counts = system.requests
    words = f"{counts.sent:,} sent, {counts.completed:,} completed, {counts.failed:,} failed"
    if counts.in_flight:
        words += f", {counts.in_flight:,} still in flight"
    if counts.errors:
        words += " (" + ", ".join(f"{reason}: {count:,}" for reason, count in counts.errors.items()) + ")"
    return words


def surrounding_lines(system: SystemSummary) -> Iterator[tuple[str, str]]:
    """What is beside a system's latencies, a heading and a line each: its own verdict where that is not faithful, the
    host, its neighbours and what protects from them, deaths, the prefix cache.
    """
    if system.fidelity is not None and system.fidelity.verdict != "faithful":
        yield "fidelity", system.fidelity.verdict
    yield from host_lines(system.host, system.neighbours, system.mitigations)
    yield from recovery_lines(system.recovery)
    yield from prefix_lines(system.prefix_cache)


def missing_words(rows: Sequence[Beside]) -> str:
    """Which of the paper's percentiles this run has too few requests for, and how many they take; empty if none."""
    counts = {row.metric.rpartition(".")[2]: row.n for row in rows if row.ours is None and row.n is not None}
    takes = [
        f"a {name} takes {least:,} requests, measured are {counts[name]:,}"
        for name, _, least in PERCENTILES
        if name in counts
    ]
    if takes:
        return "; ".join(takes)
    return "no figure of ours" if any(row.ours is None for row in rows) else ""


def _verdict(summary: RunSummary) -> Iterator[str]:
    yield f"Outcome   {summary.outcome}{': ' + summary.detail if summary.detail else ''}"
    yield f"Fidelity  {summary.fidelity.verdict}"
    for reason in summary.fidelity.reasons:
        yield f"          {reason}"
    yield from textwrap.wrap(f"Clock     {clock_words(summary)}", LINE, subsequent_indent=" " * 10)


def _system(name: str, system: SystemSummary) -> Iterator[str]:
    heads = ("n", *(percentile for percentile, _, _ in PERCENTILES), "mean", "worst")
    yield f"{name:<14}" + "".join(f"{head:>11}" for head in heads)
    for words, field in LATENCIES:
        yield f"  {words + ' ms':<12}" + _figures(getattr(system, field))
    for words, field in HOPS:
        if getattr(system, field).n:
            yield f"  {words + ' ms':<12}" + _figures(getattr(system, field))
    yield f"  requests    {requests_words(system)}"
    yield (
        f"  throughput  {number(system.throughput_tokens_per_s, 1)} tokens/s, "
        f"{number(system.throughput.requests_per_s)} requests/s of true time"
    )
    if system.energy is not None:
        yield f"  energy      {energy_words(system.energy)}"
    for head, words in surrounding_lines(system):
        yield from _wrapped(f"{head:<12}{words}", "  ")
    lag = system.send_lag_ms
    if lag.n:
        at = f"p99 {number(lag.p99, 3)}" if lag.p99 is not None else f"worst {number(lag.worst, 3)}"
        yield f"  send lag    {at} ms, n {lag.n:,}"
    for fault in system.requests.faults:
        yield f"  fault       {fault}"
    yield "  the same by each tool's definition, p50 / p99 in ms"
    for tool, found in system.definitions.items():
        cells = (f"{head} {_pair(getattr(found, field))}" for head, field in LATENCIES if head != "TTST")
        yield f"    {tool:<16}" + "   ".join(f"{cell:<24}" for cell in cells).rstrip()
    if system.front_end is not None:
        found = system.front_end
        cells = (f"{head} {_pair(getattr(found, field))}" for head, field in LATENCIES if head != "TTST")
        yield f"    {'front end':<16}" + "   ".join(f"{cell:<24}" for cell in cells).rstrip()


def _figures(distribution: Distribution) -> str:
    values = [getattr(distribution, name) for name, _, _ in PERCENTILES] + [distribution.mean, distribution.worst]
    return f"{distribution.n:>11,}" + "".join(f"{number(value):>11}" for value in values)


def _pair(distribution: Distribution) -> str:
    return f"{number(distribution.p50)} / {number(distribution.p99)}"


def _legend(summary: RunSummary) -> Iterator[str]:
    takes = ", ".join(f"{name} takes {least:,}" for name, _, least in PERCENTILES if least > 1)
    yield f"{NONE} means that n is too small for that percentile ({takes} values)."
    yield "Definitions"
    for system in summary.systems.values():
        for words, field in LATENCIES + tuple(row for row in HOPS if getattr(system, row[1]).n):
            yield f"  {words + ' ':<6}{getattr(system, field).definition}"
        break
    for tool, row in DEFINITIONS.items():
        if tool != DEFAULT_DEFINITION:
            yield from _wrapped(f"{tool}: TTFT {row.words[0]}; ITL {row.words[1]}; TPOT {row.words[2]}", "  ")


def _expectations(rows: Sequence[Expectation]) -> Iterator[str]:
    yield f"Expectations: {sum(row.held for row in rows)} of {len(rows)} hold"
    for row in rows:
        point = f" [{row.point}]" if row.point else ""
        yield f"  {'held  ' if row.held else 'BROKEN'}  {row.text}{point}: {measured_words(row)}"


def _fidelity(summary: RunSummary) -> Iterator[str]:
    fidelity = summary.fidelity
    yield f"Fidelity: {fidelity.verdict}{' (' + fidelity.note + ')' if fidelity.note else ''}"
    for threshold in fidelity.thresholds:
        mark = {True: "held   ", False: "CROSSED", None: "-      "}[threshold.held]
        yield f"  {mark}  {threshold.name:<22}{threshold_words(threshold)}"


def _beside(name: str, rows: Sequence[Beside]) -> Iterator[str]:
    missing = missing_words(rows)
    rows = [row for row in rows if row.ours is not None]
    if not rows:
        yield f"{name} beside the paper: {missing}"
        return
    yield f"{name} beside the paper (another load gives other figures: compare the conditions)"
    for row in rows:
        by = f" by {row.definition}'s definition" if row.definition else ""
        count = f", n {row.n:,}" if row.n is not None else ""
        yield f"  {row.metric:<14} ours {number(row.ours)} {row.unit}{count}{by}; paper {number(row.paper)} {row.unit}"
    for condition in dict.fromkeys(f"{row.condition} ({row.source}). {row.note}".strip() for row in rows):
        yield from _wrapped(f"the paper's: {condition}", "  ")
    if missing:
        yield f"  {missing}"


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, LINE, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False)
