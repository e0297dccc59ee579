"""Events of the host's CPU: pieces of a server's work on it, the neighbours beside it, and what processors count.

Members of the one schema (`testbed.events.schema`), in a module of their own for length. Source: papers/blink summary,
the table of interference and the mechanism behind it.
"""

from __future__ import annotations

from typing import ClassVar

from testbed.machine import Event
from testbed.units import Nanoseconds


class HostOperation(Event, frozen=True, tag="host.operation"):
    """A piece of a server's work on the host's CPU has ended."""

    process: str
    """The server's process: api, core, worker."""
    operation: str
    """As `testbed.serving.host_work.HostWork`."""
    amount: Nanoseconds
    """True time that it takes on an idle core."""
    elapsed: Nanoseconds
    """True time that it took."""
    level: ClassVar[str] = "debug"


class LaunchGap(Event, frozen=True, tag="launch.gap"):
    """The accelerator stood idle between two graphs of a running batch."""

    launch: int
    """Of the later one."""
    gap: Nanoseconds
    """From the end of the one to the start of the other."""
    level: ClassVar[str] = "debug"


class GraphMeasured(Event, frozen=True, tag="graph.measured"):
    """How long the accelerator took for a graph, beside what its cost model asks for."""

    launch: int
    modelled: Nanoseconds
    elapsed: Nanoseconds
    """True time from its start to its end as the device's process saw them."""
    level: ClassVar[str] = "debug"


class ProcessorCalibrated(Event, frozen=True, tag="processor.calibrated"):
    """How much work the host's CPU does in a millisecond when nobody disturbs it: what amounts are made from."""

    process: str
    units_per_ms: float
    """Rounds of the churn that stands for a server's work."""
    spread: float
    """Slowest ÷ fastest of the batches that were timed."""
    working_set_bytes: int


class NeighbourStarted(Event, frozen=True, tag="neighbour.started"):
    """A neighbour has begun to use the host's CPU set."""

    name: str
    kind: str
    threads: int
    containers: int
    cpus: tuple[int, ...]
    program: str = ""
    """What does the work: pbzip2, tcc, …"""


class NeighbourMeasured(Event, frozen=True, tag="neighbour.measured"):
    """What a neighbour got done since the last such event; co-location is about both tenants."""

    name: str
    interval: Nanoseconds
    """Wall time."""
    done: float
    """Units of work."""
    unit: str
    """MB compressed, files compiled, mappings churned."""
    cpu: Nanoseconds
    """CPU time of all its containers."""
    level: ClassVar[str] = "debug"


class NeighbourEnded(Event, frozen=True, tag="neighbour.ended"):
    """A neighbour is gone."""

    name: str
    done: float
    unit: str
    detail: str = ""
    """Why, where it was not the end of the run."""


class CountersMeasured(Event, frozen=True, tag="counters.measured"):
    """Hardware counters of a server's processes on the host over an interval, as in the paper's table."""

    process: str
    interval: Nanoseconds
    counters: tuple[str, ...]
    """Names, as perf list has them: cycles, instructions, LLC-load-misses, dTLB-load-misses, …"""
    counts: tuple[int, ...]
    """One a counter."""
    absent: tuple[str, ...] = ()
    """Counters that this machine does not have."""
    level: ClassVar[str] = "debug"


class MitigationApplied(Event, frozen=True, tag="mitigation.applied"):
    """Something that is to protect the server from its neighbours is in force, or could not be."""

    name: str
    """pinning, huge_pages, cache_partition, priority."""
    applied: bool
    detail: str
    """What was done, or what the host lacks."""
    reserved_cores: float = 0.0
    """Cores that can no longer be sold."""
