"""TTFT, TTST, ITL and TPOT by the definitions of the tools one compares with; percentiles; goodput.

Two tools that print "P99 ITL" may mean figures that differ fivefold (design serving §3): vLLM pools the gaps of
all requests, guidellm takes one mean a request, and guidellm's TPOT has the TTFT in it. So a figure without its
definition is no figure: `DEFINITIONS` has a row for each tool, and every distribution carries its row's name.

Formulae over one exchange, with s = sent, t_1 … t_c = arrivals of its chunks, n = tokens by the server's usage
(received tokens where it gave none). Failed requests count in no latency. docs/models/metrics.md has them all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from testbed.events.log import Record
from testbed.machine import Event
from testbed.metrics.requests import Exchange, ExchangeFold, ExchangeState
from testbed.units import MILLISECOND, Nanoseconds

Rule = Literal["linear", "observed"]
Sample = tuple[float, int]
"""A value in nanoseconds and its weight."""

PERCENTILES: tuple[tuple[str, int, int], ...] = (
    ("p50", 500, 1),
    ("p90", 900, 10),
    ("p99", 990, 100),
    ("p999", 999, 1000),
)
"""Name, thousandths, and how many values it takes: with fewer than 1 / (1 - q) no value is expected beyond the
quantile q, and the figure would be the largest value under another name. A median is one from the first value on."""


class Distribution(msgspec.Struct, frozen=True):
    """A latency over many requests, in milliseconds. A percentile that `n` is too small for is None."""

    n: int
    """How many values: gaps where they are pooled, requests elsewhere."""
    mean: float | None
    p50: float | None
    p90: float | None
    p99: float | None
    p999: float | None
    worst: float | None
    percentile: Rule
    """`linear` between neighbours (numpy's default) or an `observed` value (inverse CDF)."""
    definition: str
    """Row of `DEFINITIONS` and what it means."""


class Selection(msgspec.Struct, frozen=True):
    """Which requests count: the warm-up is left out by rule, not by eye."""

    warm_up_requests: int = 0
    """The first so many requests by scheduled time are left out."""
    warm_up: Nanoseconds = 0
    """Requests scheduled less than this after the first one are left out."""


EVERYTHING = Selection()


class Objectives(msgspec.Struct, frozen=True):
    """Service level objectives of goodput, in true milliseconds; a request that is at a bound is good."""

    ttft_ms: float | None = None
    tpot_ms: float | None = None
    latency_ms: float | None = None


class Goodput(msgspec.Struct, frozen=True):
    """Requests that met every objective; failed ones have not."""

    good: int
    judged: int
    objectives: Objectives

    @property
    def share(self) -> float | None:
        """Good ones among the judged."""
        return self.good / self.judged if self.judged else None


@dataclass(frozen=True)
class Definition:
    """How one tool reckons. Each function gives weighted values of one completed exchange, or none."""

    name: str
    ttft: Callable[[Exchange], Sequence[Sample]]
    itl: Callable[[Exchange], Sequence[Sample]]
    tpot: Callable[[Exchange], Sequence[Sample]]
    rule: Rule
    words: tuple[str, str, str]
    """What its TTFT, ITL and TPOT mean, for reports."""


def tokens_of(exchange: Exchange) -> int:
    """Output tokens: the server's usage figure, or what was counted where it gave none."""
    return exchange.tokens or exchange.received


def first_chunk(exchange: Exchange) -> list[Sample]:
    """t_1 - s."""
    return [(exchange.times[0] - exchange.sent, 1)] if exchange.times else []


def first_chunk_of_several(exchange: Exchange) -> list[Sample]:
    """t_1 - s, of requests with more than one token."""
    return first_chunk(exchange) if tokens_of(exchange) > 1 else []


def second_chunk(exchange: Exchange) -> list[Sample]:
    """t_2 - t_1 (genai-perf's time to second token). What shares a chunk with the first token is not a second."""
    return [(exchange.times[1] - exchange.times[0], 1)] if len(exchange.times) > 1 else []


def chunk_gaps(exchange: Exchange) -> list[Sample]:
    """t_(i+1) - t_i for every pair of neighbours."""
    return [(later - earlier, 1) for earlier, later in pairwise(exchange.times)]


def token_gaps(exchange: Exchange) -> list[Sample]:
    """As `chunk_gaps`, with each token at its chunk's time: gaps inside a chunk are 0."""
    moments = [t for t, count in zip(exchange.times, exchange.counts, strict=True) for _ in range(count)]
    return [(later - earlier, 1) for earlier, later in pairwise(moments)]


def mean_gap(exchange: Exchange) -> list[Sample]:
    """(t_c - t_1) / (n - 1); a request of one token has none."""
    tokens = tokens_of(exchange)
    return [((exchange.times[-1] - exchange.times[0]) / (tokens - 1), 1)] if tokens > 1 and exchange.times else []


def rounded_mean_gap(exchange: Exchange) -> list[Sample]:
    """As `mean_gap`, in whole nanoseconds."""
    return [(float(round(value)), weight) for value, weight in mean_gap(exchange)]


def weighted_mean_gap(exchange: Exchange) -> list[Sample]:
    """As `mean_gap`, weighted by n - 1."""
    return [(value, tokens_of(exchange) - 1) for value, _ in mean_gap(exchange)]


def per_token_with_first(exchange: Exchange) -> list[Sample]:
    """(t_c - s) / n, weighted by n: the TTFT is in it."""
    tokens = tokens_of(exchange)
    return [((exchange.times[-1] - exchange.sent) / tokens, tokens)] if tokens and exchange.times else []


_FIRST = "first chunk - sent"
_PER_TOKEN = "per request (last - first) / (tokens - 1)"

DEFINITIONS: dict[str, Definition] = {
    row.name: row
    for row in (
        Definition(
            "vllm", first_chunk, chunk_gaps, mean_gap, "linear",
            (_FIRST, "gaps between chunks, pooled over all requests", _PER_TOKEN),
        ),
        Definition(
            "guidellm", first_chunk, weighted_mean_gap, per_token_with_first, "observed",
            (_FIRST, f"{_PER_TOKEN}, weighted by tokens - 1",
             "per request (last - sent) / tokens, weighted by tokens: has the TTFT in it"),
        ),
        Definition(
            "inference-perf", first_chunk_of_several, token_gaps, mean_gap, "linear",
            (f"{_FIRST}, of requests with more than one token",
             "gaps between tokens, pooled; 0 inside a chunk", _PER_TOKEN),
        ),
        Definition(
            "genai-perf", first_chunk, rounded_mean_gap, rounded_mean_gap, "linear",
            (_FIRST, f"{_PER_TOKEN}, whole nanoseconds", "the same as its ITL"),
        ),
        Definition(
            "aiperf", first_chunk, mean_gap, mean_gap, "linear",
            (_FIRST, _PER_TOKEN, "the same as its ITL"),
        ),
    )
}  # fmt: skip
"""One row a tool, after design serving §3."""

DEFAULT_DEFINITION = "vllm"


class Latencies(msgspec.Struct, frozen=True):
    """The four latencies by one definition."""

    definition: str
    ttft_ms: Distribution
    ttst_ms: Distribution
    itl_ms: Distribution
    tpot_ms: Distribution


def measured(exchanges: Sequence[Exchange], selection: Selection = EVERYTHING) -> list[Exchange]:
    """The exchanges that `selection` leaves in, ordered by scheduled time and name."""
    ordered = sorted(exchanges, key=lambda exchange: (exchange.scheduled, exchange.name))
    if not ordered:
        return []
    begin = ordered[0].scheduled + selection.warm_up
    return [exchange for exchange in ordered[selection.warm_up_requests :] if exchange.scheduled >= begin]


def latencies(exchanges: Sequence[Exchange], definition: str = DEFAULT_DEFINITION) -> Latencies:
    """The latencies of the completed among `exchanges`. Raises KeyError for a name that has no row."""
    row = DEFINITIONS[definition]
    done = [exchange for exchange in exchanges if exchange.completed]

    def over(values: Callable[[Exchange], Sequence[Sample]], words: str) -> Distribution:
        samples = [sample for exchange in done for sample in values(exchange)]
        return distribution(samples, row.rule, f"{row.name}: {words}")

    return Latencies(
        definition=row.name,
        ttft_ms=over(row.ttft, row.words[0]),
        ttst_ms=over(second_chunk, "second chunk - first chunk"),
        itl_ms=over(row.itl, row.words[1]),
        tpot_ms=over(row.tpot, row.words[2]),
    )


def distribution(samples: Sequence[Sample], rule: Rule, definition: str) -> Distribution:
    """The distribution of weighted values in nanoseconds; `n` counts values, not weights."""
    counted = [(value, weight) for value, weight in samples if weight > 0]
    values = np.array([value for value, _ in counted], dtype=np.float64)
    weights = np.array([weight for _, weight in counted], dtype=np.int64)
    found = {
        name: quantile(values, weights, thousandths, rule) if len(values) >= least else None
        for name, thousandths, least in PERCENTILES
    }
    # fsum is exact, so the mean does not depend on how a machine orders a vector sum.
    mean = math.fsum(value * weight for value, weight in counted) / int(weights.sum()) if counted else None
    return Distribution(
        n=len(values),
        mean=_milliseconds(mean),
        p50=_milliseconds(found["p50"]),
        p90=_milliseconds(found["p90"]),
        p99=_milliseconds(found["p99"]),
        p999=_milliseconds(found["p999"]),
        worst=_milliseconds(float(values.max())) if len(values) else None,
        percentile=rule,
        definition=definition,
    )


def quantile(values: NDArray[np.float64], weights: NDArray[np.int64], thousandths: int, rule: Rule) -> float:
    """The quantile `thousandths` / 1000 of at least one value.

    `linear` is `numpy.percentile` and takes no weights; `observed` is the least value at which the cumulated weight
    reaches that share, in whole numbers.
    """
    if rule == "linear":
        return float(np.percentile(values, thousandths / 10))
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) * 1000
    return float(values[order][np.searchsorted(reached, thousandths * int(weights.sum()), side="left")])


def goodput(exchanges: Sequence[Exchange], objectives: Objectives) -> Goodput:
    """How many of the ended exchanges met `objectives`: all those given, inclusive; a one-token answer has TPOT 0."""
    judged = [exchange for exchange in exchanges if exchange.completed or exchange.failed]
    good = sum(_is_good(exchange, objectives) for exchange in judged)
    return Goodput(good=good, judged=len(judged), objectives=objectives)


def _is_good(exchange: Exchange, objectives: Objectives) -> bool:
    if not exchange.completed or not exchange.times:
        return False
    gap = mean_gap(exchange)
    measures = (
        (objectives.ttft_ms, exchange.times[0] - exchange.sent),
        (objectives.tpot_ms, gap[0][0] if gap else 0),
        (objectives.latency_ms, exchange.times[-1] - exchange.sent),
    )
    return all(bound is None or value <= bound * MILLISECOND for bound, value in measures)


def _milliseconds(value: float | None) -> float | None:
    """Rounded to the nanosecond that it stands for, so that text and JSON show no noise of the division."""
    return None if value is None else round(value / MILLISECOND, 6)


class LatencyFold:
    """The latencies so far, for a page that follows a run."""

    state = ExchangeState
    takes: frozenset[type[Event]] = ExchangeFold.takes

    def __init__(self, definition: str = DEFAULT_DEFINITION, selection: Selection = EVERYTHING) -> None:
        self._definition = definition
        self._selection = selection

    def start(self) -> ExchangeState:
        """No request yet."""
        return ExchangeState()

    def step(self, state: ExchangeState, record: Record) -> ExchangeState:
        """Takes one event of a client."""
        return ExchangeFold().step(state, record)

    def result(self, state: ExchangeState) -> Latencies:
        """Of the requests that have completed."""
        return latencies(measured(state.exchanges, self._selection), self._definition)
