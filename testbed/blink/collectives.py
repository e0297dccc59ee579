"""Tensor parallelism as a model: kernels split evenly over several GPUs, and two all-reduces a layer.

Who starts a collective decides what it costs beside its bytes: a resident kernel can start it from the device, or a
proxy thread on a CPU must post it (NVSHMEM has both ways: "IBGDA" and its proxy). A ring's bytes follow the usual
2 (n - 1) / n. Latencies are our estimates, not measurements. Simulated only; the GPUs appear as one node.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from testbed.serving.architectures import BYTES_A_NUMBER, Architecture
from testbed.serving.cost_model import StepTime
from testbed.serving.graph_cache import MIXED, PREFILL, Graph
from testbed.units import MICROSECOND, SECOND, Nanoseconds

ALL_REDUCES_A_LAYER = 2
"""One behind attention, one behind the feed-forward part (Megatron-LM, arXiv 1909.08053)."""


class TensorParallel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One model over several GPUs."""

    gpus: Annotated[int, msgspec.Meta(ge=2, le=8)] = 2
    """GPUs that share each layer."""
    started_by: Literal["device", "proxy"] = "device"
    """Who starts a collective: the GPU itself, or a thread of the host."""
    latency: Nanoseconds = 8 * MICROSECOND
    """An all-reduce of no bytes, started from the device. Our estimate for NVLink."""
    proxy_latency: Nanoseconds = 6 * MICROSECOND
    """What a proxy adds to each collective: it sees a flag in host memory and posts the work. Our estimate."""
    link_bytes_per_s: Annotated[int, msgspec.Meta(ge=1)] = 450_000_000_000
    """One way between two GPUs. NVIDIA H100 data sheet: NVLink 900 GB/s, both ways together."""

    def __post_init__(self) -> None:
        """Refuses negative times."""
        for name in ("latency", "proxy_latency"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, not {getattr(self, name)}")

    def time(self, architecture: Architecture, graph: Graph, step: StepTime) -> StepTime:
        """A step that lasts `step` on one GPU."""
        one = self.all_reduce(tokens_of(graph) * architecture.hidden * BYTES_A_NUMBER)
        together = architecture.layers * ALL_REDUCES_A_LAYER * one
        return StepTime(-(-step.duration // self.gpus) + together, step.extrapolated)

    def all_reduce(self, size: int) -> Nanoseconds:
        """One all-reduce of `size` bytes."""
        start = self.latency + (self.proxy_latency if self.started_by == "proxy" else 0)
        return start + -(-2 * (self.gpus - 1) * size * SECOND // (self.gpus * self.link_bytes_per_s))


def tokens_of(graph: Graph) -> int:
    """Tokens that a graph computes: its captured shape, used or not."""
    if graph.kind == PREFILL:
        return graph.batch * graph.sequence
    if graph.chunk:
        return graph.chunk + (graph.batch if graph.kind == MIXED else 0)
    return graph.batch
