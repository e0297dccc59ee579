"""Runs of a host-driven server beside a neighbour, told event by event."""

from __future__ import annotations

from testbed.events import schema
from testbed.events.fidelity_events import WaitMeasured
from testbed.events.host_events import (
    CountersMeasured,
    GraphMeasured,
    HostOperation,
    LaunchGap,
    NeighbourEnded,
    NeighbourMeasured,
    NeighbourStarted,
)
from tests.testbed.metrics.stories import MS, Story

US = 1_000
WORK = (("core", "update", 1500), ("worker", "prepare", 3000), ("worker", "launch", 10))
COUNTERS = ("context-switches", "preemptions", "cpu-migrations", "page-faults", "cycles", "instructions", "LLC-loads",
            "LLC-load-misses", "dTLB-loads", "dTLB-load-misses", "stalled-cycles-backend", "L3-stall-cycles",
            "page-walk-cycles")  # fmt: skip


def host_story(slowdown: float = 1.0, steps: int = 200) -> Story:
    """Steps of 1.5 ms of the core, 3 ms and 10 us of the worker; the last two in a hundred take ten times as long."""
    told = Story().at(-1, "host0", schema.NodeReady("host", 1)).at(-1, "gpu0", schema.NodeReady("gpu", 2))
    told.at(0, "bench", NeighbourStarted("zip", "pbzip2", 4, 2, (0,), "pbzip2"))
    for number in range(steps):
        slow = slowdown * (10 if number % 100 >= 98 else 1)
        for process, operation, amount in WORK:
            elapsed = round(amount * US * slow)
            told.at(number, f"host0-{process}", HostOperation(process, operation, amount * US, elapsed))
        told.at(number, "host0", HostOperation("api", "detokenise", 5 * US, 500 * US))
        told.at(number, "gpu0", GraphMeasured(number, 6 * MS, 6 * MS + 30 * US))
        told.at(number, "gpu0", LaunchGap(number, round(20 * US * slow)))
    told.at(steps, "bench", WaitMeasured("node host0", 100 * MS, 25 * MS, 50 * MS, 5, 0))
    told.at(steps, "bench", WaitMeasured("node gpu0", 100 * MS, 90 * MS, 1 * MS, 5, 0))
    told.at(steps, "bench", NeighbourMeasured("zip", 500 * MS, 3.0, "MB", 200 * MS), NeighbourEnded("zip", 3.0, "MB"))
    counts = (50, 5, 0, 10, 200, 300, 90, 40, 80, 20, 30, 12, 7)
    return told.at(steps, "bench", CountersMeasured("host0", 500 * MS, COUNTERS, counts, ("iTLB-loads",)))
