"""When an open-loop client sends: offsets from the run's epoch, in true nanoseconds, never decreasing.

Open loop means that no answer delays a request. Poisson follows `vllm bench serve` (benchmarks/serve.py, read for
design serving §3): gamma gaps with shape `burstiness`, rescaled so that their sum is exactly requests / rate, so
that the realised rate has no sampling noise. A new kind is a struct with `moments` and one entry in `Arrivals`.

This file knows neither requests nor clocks.
"""

from __future__ import annotations

from random import Random
from typing import Annotated, TypeAlias

import msgspec

from testbed.units import SECOND, Nanoseconds, from_seconds

RatePerSecond: TypeAlias = Annotated[float, msgspec.Meta(gt=0, le=1_000_000)]


class Poisson(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="poisson"):
    """Random arrivals of a set mean rate; the first comes after one gap."""

    rate_per_s: RatePerSecond
    """Requests per true second."""
    burstiness: Annotated[float, msgspec.Meta(gt=0, le=1000)] = 1.0
    """Shape of the gamma distribution of gaps: 1 is Poisson, below 1 comes in bursts, above 1 is more even."""

    def moments(self, count: int, random: Random) -> list[Nanoseconds]:
        """`count` arrivals; the last is at count / rate exactly."""
        total = 0.0
        sums = []
        for _ in range(count):
            total += random.gammavariate(self.burstiness, 1.0)
            sums.append(total)
        span = count * SECOND / self.rate_per_s
        # A very small shape can make every gap underflow to 0; then all arrive at the end of the span.
        return [round(span * (moment / total if total > 0 else 1.0)) for moment in sums]


class Constant(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="constant"):
    """One request every 1 / rate, the first at 0."""

    rate_per_s: RatePerSecond
    """Requests per true second."""

    def moments(self, count: int, random: Random) -> list[Nanoseconds]:  # noqa: ARG002  # one shape for all kinds
        """`count` arrivals; nothing is left to chance."""
        return [round(index * SECOND / self.rate_per_s) for index in range(count)]


class Burst(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="kind", tag="burst"):
    """Groups of requests at one instant, the first at 0."""

    size: Annotated[int, msgspec.Meta(ge=1, le=1_000_000)]
    """Requests in a group."""
    every_s: Annotated[float, msgspec.Meta(gt=0, le=86_400)] = 1.0
    """True seconds from one group to the next."""

    def moments(self, count: int, random: Random) -> list[Nanoseconds]:  # noqa: ARG002  # one shape for all kinds
        """`count` arrivals; the last group may be smaller."""
        gap = from_seconds(self.every_s)
        return [index // self.size * gap for index in range(count)]


Arrivals: TypeAlias = Poisson | Constant | Burst
"""Every kind of arrivals there is."""
