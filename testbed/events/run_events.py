"""Events of a run and of its nodes: the barrier, the stages, signs of life, the end.

Members of the one schema (`testbed.events.schema`). They know no system; times are an event's own `t`.
"""

from __future__ import annotations

from typing import ClassVar

from testbed.machine import Event


class RunStarted(Event, frozen=True, tag="run.started"):
    """The barrier has opened: every node is ready and the epoch is set."""

    system: str
    clock: str
    """`simulated` or `wall`."""
    dilation: float
    byte_scale: int
    seed: int
    requests: int
    """How many requests the workload will send; 0 when it is open-ended (`looplane serve`)."""
    nodes: tuple[str, ...] = ()
    """Names of the planned nodes, each of which logs node.ready and node.stopped; empty where the log does not say."""
    displaced: tuple[str, ...] = ()
    """Of these, the ones that stand for silicon and that the experiment has put on cores of the host: how late they
    are is what the run measures, and no fault of it."""


class RunFinished(Event, frozen=True, tag="run.finished"):
    """Nothing more will happen in this run."""

    outcome: str
    """passed, failed, errored, cancelled or lost."""
    detail: str = ""


class StageEntered(Event, frozen=True, tag="stage.entered"):
    """The bench moved on: preparing, network, nodes, running, finalising, cleaned."""

    stage: str
    detail: str = ""


class NodeReady(Event, frozen=True, tag="node.ready"):
    """The node's software waits at the barrier."""

    role: str
    pid: int


class NodeHeartbeat(Event, frozen=True, tag="node.heartbeat"):
    """Written every 100 ms of wall time: the log of this node is complete up to this `t`."""

    level: ClassVar[str] = "debug"


class NodeStopped(Event, frozen=True, tag="node.stopped"):
    """The node's software has ended. `code` is its exit code, `detail` its last words if it died."""

    code: int
    detail: str = ""


class HostProvisioned(Event, frozen=True, tag="host.provisioned"):
    """The host has loaded the model and captured the graphs, and leaves the path (Blink, initialisation phase)."""

    model: str
    weights_bytes: int
    graphs: int
    kv_blocks: int


class LineLogged(Event, frozen=True, tag="line.logged"):
    """One line of a node's own log."""

    text: str
    severity: str = "info"
