"""Did the run do what its author expects: the [expect] table against the figures of a summary.

A bound holds or it does not; a metric without a value (no request, or too few for that percentile) does not hold,
and the row says why. Every bound must hold at every point of a sweep, so there is one row for each point; a bound
that says `each_repeat` has one for each repeat too.
The names are those of `testbed.experiment.metric_paths`; this file finds their values and knows no other figure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from testbed.experiment.metric_paths import Metric, Ratio, parse_metric_path
from testbed.experiment.spec import Bound
from testbed.metrics.latency import PERCENTILES

Value = float | str | None


class Expectation(msgspec.Struct, frozen=True):
    """One bound against one measured value."""

    text: str
    """The metric and the bound in words, as "systems.blink.ttft_ms.p99 at most 50"."""
    metric: str
    bound: str
    """The bound in words."""
    measured: float | str | None
    held: bool
    point: str = ""
    """Of the sweep; empty without one."""
    reason: str = ""
    """Why there is no measured value."""


def evaluate(expect: Mapping[str, Bound], figures: Mapping[str, Any], point: str = "") -> tuple[Expectation, ...]:
    """One row for each bound, in the order of the file.

    `figures` is a summary as plain data: `systems` by name, and `fidelity`. Raises `metric_paths.UnknownMetric` for
    a name that no summary has; reading an experiment checks that before any run.
    """
    systems = list(figures.get("systems", {}))
    rows = []
    for text, bound in expect.items():
        value, reason = _value(parse_metric_path(text, systems), figures)
        words = bound_words(bound)
        rows.append(
            Expectation(
                text=f"{text} {words}",
                metric=text,
                bound=words,
                measured=value,
                held=value is not None and holds(bound, value),
                point=point,
                reason=reason,
            )
        )
    return tuple(rows)


def holds(bound: Bound, value: float | str) -> bool:
    """Does `value` keep `bound`: ends are inside, and a word keeps none but `equals`."""
    if bound.equals is not None:
        return value == bound.equals
    if isinstance(value, str):
        return False
    low, high = bound.between if bound.between is not None else (bound.at_least, bound.at_most)
    return (low is None or value >= low) and (high is None or value <= high)


def bound_words(bound: Bound) -> str:
    """A bound as a person says it."""
    if bound.equals is not None:
        return f"equal to {_number(bound.equals)}"
    if bound.between is not None:
        return f"between {_number(bound.between[0])} and {_number(bound.between[1])}"
    parts = []
    if bound.at_least is not None:
        parts.append(f"at least {_number(bound.at_least)}")
    if bound.at_most is not None:
        parts.append(f"at most {_number(bound.at_most)}")
    return " and ".join(parts)


def split_bounds(expect: Mapping[str, Bound]) -> tuple[dict[str, Bound], dict[str, Bound]]:
    """Those on the figures of all repeats together, and those on each repeat by itself."""
    pooled = {text: bound for text, bound in expect.items() if not bound.each_repeat}
    return pooled, {text: bound for text, bound in expect.items() if bound.each_repeat}


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.12g}"


def _value(path: Metric | Ratio, figures: Mapping[str, Any]) -> tuple[Value, str]:
    if isinstance(path, Metric):
        return _of_metric(path, figures)
    over, reason_over = _of_metric(path.over, figures)
    under, reason_under = _of_metric(path.under, figures)
    if not isinstance(over, int | float) or not isinstance(under, int | float):
        return None, reason_over or reason_under
    if under == 0:
        return None, f"{path.under} is 0"
    return over / under, ""


def _of_metric(metric: Metric, figures: Mapping[str, Any]) -> tuple[Value, str]:
    place: Any = figures["systems"][metric.system] if metric.system else figures
    holder: Any = {}
    for part in metric.name.split("."):
        # A part of a summary is None, and a row of a table is missing, where nothing of its kind was logged.
        holder, place = place, place.get(part) if isinstance(place, Mapping) else None
    if place is None:
        return None, _why_none(metric, holder)
    return place, ""


def _why_none(metric: Metric, holder: Mapping[str, Any]) -> str:
    statistic = metric.name.rpartition(".")[2]
    for name, _, least in PERCENTILES:
        if name == statistic and holder:
            return f"{metric.name} takes at least {least} values, there are {holder['n']}"
    return f"{metric.name} has no value: nothing was measured"
