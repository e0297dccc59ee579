"""Recovery in a summary: outages of a scheduler that died, pooled over a system's repeats.

Made from the fold `testbed.metrics.recovery`. None where no scheduler died and no watchdog fired.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from testbed.metrics.latency import Distribution, distribution
from testbed.metrics.recovery import Outage, RecoveryState

_DETECT = "watchdog fired - scheduler died"
_BACK = "first token published by the next scheduler - scheduler died"
_STREAMS = "next token at the client - scheduler died, of streams that had begun"
_TIMES = {
    "detect_ms": "from a scheduler's death to the watchdog's question for a new one",
    "service_back_ms": "from a scheduler's death to the first token of the next one",
    "streams_back_ms": "from a scheduler's death to the next token of each stream that had begun",
}
_COUNTS = {
    "outages": "schedulers that died or fell silent",
    "restarts": "schedulers that took over a ring",
    "gave_up": "times that a front end gave up on restarts",
    "interrupted": "requests that a new scheduler could not go on with",
}
_STATISTICS = ("n", "mean", "p50", "p90", "p99", "worst")
RECOVERY_METRICS: dict[str, str] = {
    **{f"recovery.{name}": words for name, words in _COUNTS.items()},
    **{f"recovery.{name}.{statistic}": words for name, words in _TIMES.items() for statistic in _STATISTICS},
}
"""Metrics of recovery, with their meaning."""
ALLOWED_RECOVERY = f"recovery.{{{','.join(_COUNTS)}}}, recovery.{{{','.join(_TIMES)}}}.{{{','.join(_STATISTICS)}}}"
"""The same, folded together for people."""


class RecoveryFigures(msgspec.Struct, frozen=True):
    """Of all repeats together."""

    outages: int
    restarts: int
    gave_up: int
    resumed: int
    interrupted: int
    detect_ms: Distribution
    service_back_ms: Distribution
    streams_back_ms: Distribution


def recovery_figures(trials: Sequence[RecoveryState]) -> RecoveryFigures | None:
    """The figures of all trials."""
    outages = [outage for trial in trials for outage in trial.outages]
    if not outages:
        return None
    return RecoveryFigures(
        outages=len(outages),
        restarts=sum(trial.restarts for trial in trials),
        gave_up=sum(trial.gave_up for trial in trials),
        resumed=sum(trial.resumed for trial in trials),
        interrupted=sum(trial.interrupted for trial in trials),
        detect_ms=_times(outages, "fired", _DETECT),
        service_back_ms=_times(outages, "back", _BACK),
        streams_back_ms=distribution([(time, 1) for each in outages for time in each.streams], "linear", _STREAMS),
    )


def recovery_lines(figures: RecoveryFigures | None) -> Iterator[tuple[str, str]]:
    """Heading and words of each line for people; nothing where there is nothing to tell."""
    if figures is None:
        return
    words = f"{figures.outages} outages, {figures.restarts} new schedulers, {figures.resumed} requests went on"
    if figures.interrupted:
        words += f", {figures.interrupted} could not"
    if figures.gave_up:
        words += f"; given up {figures.gave_up} times"
    yield "recovery", words
    for head, found in (
        ("noticed", figures.detect_ms), ("serving", figures.service_back_ms), ("streaming", figures.streams_back_ms),
    ):  # fmt: skip
        if found.n:
            yield head, f"after {found.mean:,.0f} ms on average, {found.worst:,.0f} at the worst (n {found.n:,})"


def _times(outages: Sequence[Outage], end: str, words: str) -> Distribution:
    known = [(getattr(outage, end) - outage.began, 1) for outage in outages if getattr(outage, end) is not None]
    return distribution(known, "linear", words)
