"""Device-side graph launch as messages: what a resident kernel asks of the device, and what it hears back.

After the CUDA Programming Guide, "Device Graph Launch". There is no completion call-back: whoever launches a graph
watches the graph's output (summary, "completion detection"). A launch's return code is a message only when it is
not success.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from testbed.machine import Message
from testbed.serving.engine import Lane
from testbed.serving.graph_cache import Graph

LAUNCH_MASK = (1 << 32) - 1
TOKEN_MASK = (1 << 32) - 1


LaunchMode: TypeAlias = Literal["fire_and_forget", "tail", "host"]
"""How a step's graph is launched: `cudaStreamGraphFireAndForget`, `cudaStreamGraphTailLaunch`, or by the host."""


class LaunchGraph(msgspec.Struct, frozen=True):
    """Launch of a captured graph with these input tensors."""

    launch: int
    """Number of the launch, not 0; the graph's sampling stamps its outputs with it."""
    graph: Graph
    lanes: tuple[Lane, ...]
    mode: LaunchMode = "fire_and_forget"


class TailLaunch(msgspec.Struct, frozen=True):
    """Self-relaunch: enqueues the running graph again, to start once it and all its children are complete.

    `cudaGraphLaunch(cudaGetCurrentGraphExec(), cudaStreamGraphTailLaunch)`.
    """


class SchedulerReturned(msgspec.Struct, frozen=True):
    """The scheduler kernel has returned: its graph is complete once its children are."""


class SchedulerStarted(Message, frozen=True):
    """To the scheduler: its kernel has begun, by the host's launch or by its own tail launch."""

    execution: int
    """Which execution of the scheduler graph this is, from 0."""


class LaunchRefused(Message, frozen=True):
    """To the scheduler: a launch returned an error."""

    launch: int
    """Number of the launch; 0 for a tail launch."""
    code: str
    detail: str


def pack_extraction(launch: int, token: int) -> int:
    """A word of the extraction buffer: the token, and the launch that drew it, in one store."""
    return (launch & LAUNCH_MASK) << 32 | (token & TOKEN_MASK)
