"""What a GPU answers to launches that it cannot run, whoever launches: CUDA's codes, lanes outside a graph's shape."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.serving.engine import Lane
from testbed.serving.graph_cache import Graph

INVALID_VALUE = "cudaErrorInvalidValue"
ILLEGAL_ADDRESS = "cudaErrorIllegalAddress"
LAUNCH_FAILURE = "cudaErrorLaunchFailure"
DEVICE_LOST = "cudaErrorDevicesUnavailable"
"""An executor could not end a graph that it had begun."""


def misfit(graph: Graph, lanes: Sequence[Lane]) -> str | None:
    """What of the lanes lies outside the graph's captured shape, or None."""
    if not 0 < len(lanes) <= graph.lanes:
        return f"{len(lanes)} lanes in {graph.name}"
    if any(lane.fresh > graph.chunk for lane in lanes):
        return f"a chunk of {max(lane.fresh for lane in lanes)} tokens in {graph.name}"
    longest = max(lane.context for lane in lanes)
    return f"{longest} tokens in {graph.name}" if longest > graph.sequence else None
