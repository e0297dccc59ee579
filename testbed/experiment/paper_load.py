"""Blink's evaluation as a load, and its figures: thirteen rates for a minute each, percentiles as guidellm has them.

Stated (papers/blink summary, evaluation): ShareGPT v3 by guidellm, 1 to 32 requests a second in 13 rates, 60 s each,
geometric means over the rates below saturation. Not stated, and chosen here: which 13 rates; that a run is cut off
after its 60 s, as guidellm's --max-seconds does (what has not ended then counts in nothing); which rates the
saturation throughput is of (here the mean over those beyond the working range); where in the data set its longest
conversations lie. docs/models/calibration.md has the reasons and what other choices give.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.experiment.iteration_systems import IteratedSystem, disturbance
from testbed.metrics.latency import quantile
from testbed.serving.host_work import Contention
from testbed.units import MILLISECOND, SECOND
from testbed.workload.arrivals import Poisson
from testbed.workload.lengths import ShareGpt
from testbed.workload.streams import stream

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

RATES = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
"""Requests a second. That there are 13 from 1 to 32 is stated, and that 2, 4, 7 and 12 are among them follows."""
WORKING = {"llama-3-8b": 12, "phi-4-15b": 7, "qwen-3-32b": 2, "qwen-3-30b-a3b": 4}
"""Highest rate below saturation. Summary, evaluation."""
DURATION = 60 * SECOND
SEEDS = (1, 2, 3)
LONG_PROMPT = 38_900
"""Tokens of the longest conversations: what Qwen-3's 40,960 tokens leave beside an answer of 2,048. Chosen."""
LONGEST = {"llama-3-8b": LONG_PROMPT, "phi-4-15b": 16_384 - 2_048}
"""The same where the model's context is another; for Llama that of 3.1 (131,072) is taken, not of 3.0 (8,192)."""
LONG_FIRST, LONG_EVERY = 30, 1_000
"""Places of the longest conversations in the data set. Chosen: one in the first minute at every rate."""
PROMPT_MEAN = 1_019.0
"""Tokens, of all prompts together. Summary, evaluation."""


class RateFigures(NamedTuple):
    """One rate, mean over seeds."""

    rate: int
    completed: float
    """Requests that ended in time."""
    ttft_p99_ms: float
    tpot_p99_ms: float
    """guidellm's: (last token - sending) / tokens, weighted by tokens."""
    tpot_p99_without_ttft_ms: float
    """vLLM's: (last token - first) / (tokens - 1)."""
    requests_per_s: float
    """Completed, over the time from the first sending to the last end."""
    host_share: float
    """Of the time in which the GPU had something to run, how much it waited for its driver."""


class Evaluated(NamedTuple):
    """One system with one model: the figures of the paper's isolated table."""

    rates: tuple[RateFigures, ...]
    ttft_p99_ms: float
    tpot_p99_ms: float
    tpot_p99_without_ttft_ms: float
    saturation_requests_per_s: float

    @property
    def figures(self) -> tuple[float, float, float]:
        """In the order of the table's columns."""
        return self.ttft_p99_ms, self.tpot_p99_ms, self.saturation_requests_per_s


def law_of(model: str, long_prompt: int | None = LONG_PROMPT, long_first: int = LONG_FIRST) -> ShareGpt:
    """Lengths of prompts and answers; `long_prompt` None leaves the longest conversations out.

    `long_first` is the row of the first of them.
    """
    if long_prompt is None:
        return ShareGpt()
    longest = min(long_prompt, LONGEST.get(model, long_prompt))
    return ShareGpt(
        prompt_mean=PROMPT_MEAN - longest / LONG_EVERY,
        long_prompt=longest,
        long_first=long_first,
        long_every=LONG_EVERY,
    )


def evaluate(
    system: IteratedSystem,
    model: str,
    *,
    law: ShareGpt | None = None,
    contention: Contention | None = None,
    seeds: Sequence[int] = SEEDS,
) -> Evaluated:
    """Runs every rate. `contention` is what neighbours do to the host; it does nothing to a system that uses none.

    A rate at which nothing ends within its minute is left out of the percentiles and counts as no throughput.
    """
    lengths = law_of(model) if law is None else law
    rows = tuple(_mean(rate, [_at(system, rate, seed, lengths, contention) for seed in seeds]) for rate in RATES)
    working = [row for row in rows if row.rate <= WORKING[model] and row.completed]
    beyond = [row for row in rows if row.rate > WORKING[model]]
    return Evaluated(
        rows,
        _geometric([row.ttft_p99_ms for row in working]),
        _geometric([row.tpot_p99_ms for row in working]),
        _geometric([row.tpot_p99_without_ttft_ms for row in working]),
        float(np.mean([row.requests_per_s for row in beyond])),
    )


@lru_cache(maxsize=512)
def asked(rate: int, seed: int, law: ShareGpt) -> tuple[Integers, Integers, Integers]:
    """(sent, prompt tokens, answer tokens) of a minute; the lengths are the same rows at every rate, as in a replay."""
    count = rate * DURATION // SECOND
    sent = np.array(Poisson(rate).moments(count, stream(seed, "arrivals")), np.int64)
    pairs = law.pairs(count, stream(seed, "prompt lengths"), stream(seed, "output lengths"))
    prompts, outputs = np.array(pairs, np.int64).T
    return sent, np.ascontiguousarray(prompts), np.ascontiguousarray(outputs)


def _at(
    system: IteratedSystem, rate: int, seed: int, law: ShareGpt, contention: Contention | None
) -> RateFigures | None:
    sent, prompts, outputs = asked(rate, seed, law)
    noise = disturbance(contention, stream(seed, "contention", rate))
    found = system.serve(sent, prompts, outputs, noise, until=DURATION)
    ended = (found.last >= 0) & (found.last < DURATION)
    if not ended.any():
        return None
    sent, outputs, first, last = sent[ended], outputs[ended], found.first[ended], found.last[ended]
    several = outputs > 1
    gaps = (last - first)[several] / (outputs[several] - 1) if several.any() else np.zeros(1)
    return RateFigures(
        rate,
        len(sent),
        _p99(first - sent, np.ones_like(outputs)),
        _p99((last - sent) / outputs, outputs),
        float(np.percentile(gaps, 99)) / MILLISECOND,
        len(sent) / (int(last.max()) - int(sent[0])) * SECOND,
        found.exposed / max(1, found.exposed + found.busy),
    )


def _p99(values: npt.NDArray[np.int64] | Floats, weights: Integers) -> float:
    return quantile(values.astype(np.float64), weights, 990, "observed") / MILLISECOND


def _mean(rate: int, found: Sequence[RateFigures | None]) -> RateFigures:
    rows = [row for row in found if row is not None]
    if not rows:
        return RateFigures(rate, 0.0, math.nan, math.nan, math.nan, 0.0, math.nan)
    return RateFigures(rate, *(float(np.mean(column)) for column in list(zip(*rows, strict=True))[1:]))


def _geometric(values: Sequence[float]) -> float:
    if not values:
        return math.nan
    return math.exp(math.fsum(math.log(value) for value in values) / len(values))
