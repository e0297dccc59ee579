"""Isolation by lanes in a summary: bursts and KV at one port, beside what the exact arbiter foretold.

None where no node has logged a forecast. Repeats: times pooled, all else the mean of the repeats'.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import fmean

import msgspec

from testbed.metrics.isolation import IsolationState, floor, kept, low_packets
from testbed.metrics.tally import Spread, pooled, spread
from testbed.units import MICROSECOND


class IsolationFigures(msgspec.Struct, frozen=True):
    """At the port into the node that logs the forecast."""

    kv: str
    """How KV and collectives are laid on lanes: none, own, same or wrong."""
    bursts_us: Spread
    """Collectives at that node, due until done."""
    forecast_p50_us: float | None
    forecast_p99_us: float | None
    p50_over_forecast: float | None
    p99_over_forecast: float | None
    kv_kept: float | None
    """KV ÷ what collectives leave of the port; None where they saturate it, or without KV."""
    floor: float | None
    """Share of the port that KV has beside saturating collectives."""
    floor_forecast: float | None
    floor_over_forecast: float | None
    low_packets: int
    """Of KV, that the figures rest on."""


NAMES: dict[str, str] = {
    **{
        f"isolation.bursts_us.{name}": f"{words}: time of a collective at the port that is foretold, due until done"
        for name, words in (("n", "how many values"), ("mean", "mean"), ("p50", "median"), ("p90", "90th percentile"),
                            ("p99", "99th percentile"), ("worst", "largest value"))
    },
    "isolation.forecast_p50_us": "the same by the exact arbiter, median",
    "isolation.forecast_p99_us": "the same by the exact arbiter, 99th percentile",
    "isolation.p50_over_forecast": "median measured ÷ foretold",
    "isolation.p99_over_forecast": "99th percentile measured ÷ foretold",
    "isolation.kv_kept": "KV ÷ what collectives leave of the port",
    "isolation.floor": "share of the port that KV has beside saturating collectives",
    "isolation.floor_forecast": "the same by the exact arbiter",
    "isolation.floor_over_forecast": "the floor measured ÷ foretold",
    "isolation.low_packets": "packets of KV that these rest on",
}  # fmt: skip
"""Metrics of isolation, with their meaning."""


def isolation_figures(trials: Sequence[IsolationState]) -> IsolationFigures | None:
    """The figures of one system's repeats."""
    found = [trial for trial in trials if trial.forecast is not None]
    if not found:
        return None
    times = pooled(trial.times for trial in found)
    foretold = [trial.forecast for trial in found if trial.forecast is not None]
    p50 = _mean(one.burst_p50 / MICROSECOND for one in foretold if one.burst_p50)
    p99 = _mean(one.burst_p99 / MICROSECOND for one in foretold if one.burst_p99)
    told_floor = _mean(one.floor_ppm / 1e6 for one in foretold if one.saturating and one.floor_ppm)
    measured_floor = _mean_of(found, floor)
    bursts = spread(times, MICROSECOND)
    return IsolationFigures(
        kv=foretold[0].kv,
        bursts_us=bursts,
        forecast_p50_us=p50,
        forecast_p99_us=p99,
        p50_over_forecast=_over(bursts.p50, p50),
        p99_over_forecast=_over(bursts.p99, p99),
        kv_kept=_mean_of(found, kept),
        floor=measured_floor,
        floor_forecast=told_floor,
        floor_over_forecast=_over(measured_floor, told_floor),
        low_packets=sum(map(low_packets, found)),
    )


def isolation_words(figures: IsolationFigures) -> Iterator[tuple[str, str]]:
    """Rows of a report."""
    if figures.forecast_p99_us is not None:
        bursts = figures.bursts_us
        measured = f"p50 {_shown(bursts.p50)}, p99 {_shown(bursts.p99)} us of {bursts.n:,}"
        told = f"p50 {_shown(figures.forecast_p50_us)}, p99 {_shown(figures.forecast_p99_us)} us"
        yield "bursts", f"{measured}; the exact arbiter foretells {told}"
    if figures.kv_kept is not None:
        yield "KV", f"{100 * figures.kv_kept:.1f} % of what collectives leave, {figures.low_packets:,} packets"
    if figures.floor is not None and figures.floor_forecast is not None:
        share = f"{100 * figures.floor:.4f} % of the port over {figures.low_packets:,} packets"
        yield "KV's floor", f"{share}; the exact arbiter foretells {100 * figures.floor_forecast:.4f} %"


def _mean_of(trials: Sequence[IsolationState], figure: Callable[[IsolationState], float | None]) -> float | None:
    return _mean(value for trial in trials if (value := figure(trial)) is not None)


def _mean(values: Iterable[float]) -> float | None:
    known = list(values)
    return fmean(known) if known else None


def _over(measured: float | None, foretold: float | None) -> float | None:
    return measured / foretold if measured is not None and foretold else None


def _shown(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
