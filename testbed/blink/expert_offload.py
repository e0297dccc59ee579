"""Experts that do not fit into HBM, as a model: those that a step needs and that are not there are loaded by RDMA.

The DPU's RDMA engine reads them from memory on its side over the compute fabric, started by the resident scheduler;
no host takes part. Which experts tokens choose follows a power law (the profile of Qwen-3 30B-A3B was composed with
exponent 1.2), the most chosen are the ones in HBM, and what a step misses is an expectation: the sum over the absent
experts of a layer of the probability that any of the step's tokens chooses it. A layer's loads come one behind the
other, since its router speaks only when the layer before it is done, and nothing hides them. Simulated only.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Annotated

import msgspec

from testbed.blink.collectives import tokens_of
from testbed.serving.architectures import Architecture
from testbed.serving.cost_model import StepTime
from testbed.serving.graph_cache import Graph
from testbed.units import MICROSECOND, SECOND, Nanoseconds


class ExpertOffload(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Part of a mixture's experts lies on the DPU's side."""

    share_in_hbm: Annotated[float, msgspec.Meta(ge=0, le=1)] = 0.5
    """Share of each layer's experts that lie in HBM, the most chosen first."""
    skew: Annotated[float, msgspec.Meta(ge=0, le=4)] = 1.2
    """Exponent of the power law by which tokens choose experts; 0: all alike. The profile's routing is 1.2."""
    rate_bits_per_s: Annotated[int, msgspec.Meta(ge=1)] = 200_000_000_000
    """Of the compute fabric between DPU and GPU. The BlueField-3 of Blink's evaluation."""
    latency: Nanoseconds = 3 * MICROSECOND
    """From the router's choice to the first byte, once a layer that misses. Our estimate: an RDMA round trip."""

    def __post_init__(self) -> None:
        """Refuses a negative time."""
        if self.latency < 0:
            raise ValueError(f"latency must not be negative, not {self.latency}")

    def absent_bytes(self, architecture: Architecture) -> int:
        """Weights that do not lie in HBM."""
        absent = architecture.experts - self.resident(architecture)
        return absent * architecture.layers * architecture.expert_bytes

    def resident(self, architecture: Architecture) -> int:
        """Experts of a layer in HBM."""
        return round(self.share_in_hbm * architecture.experts)

    def time(self, architecture: Architecture, graph: Graph, step: StepTime) -> StepTime:
        """A step that lasts `step` with all experts in HBM."""
        missed = self.missed(architecture, tokens_of(graph))
        transfer = missed * architecture.expert_bytes * 8 * SECOND / self.rate_bits_per_s
        waiting = min(1.0, missed) * self.latency
        return StepTime(step.duration + round(architecture.layers * (transfer + waiting)), step.extrapolated)

    def missed(self, architecture: Architecture, tokens: int) -> float:
        """Experts of one layer that a step of `tokens` tokens must load, in the mean."""
        return _missed(architecture, self.resident(architecture), self.skew, tokens)


@cache
def _missed(architecture: Architecture, resident: int, skew: float, tokens: int) -> float:
    popular = [math.pow(rank + 1, -skew) for rank in range(architecture.experts)]
    total = sum(popular)
    choices = tokens * architecture.chosen
    return sum(1 - math.pow(1 - each / total, choices) for each in popular[resident:])
