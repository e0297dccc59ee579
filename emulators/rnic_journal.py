"""The soft RNIC's own log: events/<node>-nic.jsonl, in true time from the barrier on, at 0 before.

A heartbeat each 100 ms of wall time tells readers up to when the file is whole; counters follow each second.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from emulators.barrier import Barrier
from emulators.rnic_ports import Endpoint
from testbed.clocks.wall import Beat, WallTime
from testbed.events.fidelity_events import RnicMeasured
from testbed.events.log import EventWriter
from testbed.events.run_events import LineLogged, NodeHeartbeat, NodeStopped
from testbed.units import MILLISECOND, SECOND

HEARTBEAT = 100 * MILLISECOND


class Measured(Protocol):
    """What the journal counts."""

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """All queue pairs."""
        ...


class Journal:
    """Writes what the NIC has to say."""

    def __init__(self, folder: Path, node: str) -> None:
        self.folder = folder
        """The run's."""
        self._node = node
        self._barrier = Barrier(folder, f"{node}-nic")
        self._writer = EventWriter(folder / "events" / f"{node}-nic.jsonl", f"{node}-nic")
        self._wall: WallTime | None = None
        self._look_for_epoch()
        now = time.monotonic_ns()
        self._heartbeat, self._measure = Beat(HEARTBEAT, now), Beat(SECOND, now)
        self._told = (0, 0, 0, 0, 0, 0)

    @property
    def next_beat(self) -> int:
        """Monotonic reading of the next heartbeat."""
        return self._heartbeat.next

    def due(self, now: int) -> bool:
        """True if `beat` has something to do."""
        return now >= self._heartbeat.next

    def beat(self, now: int, rnic: Measured) -> None:
        """Heartbeat, and the counters once a second, at the monotonic reading `now`."""
        if not self._heartbeat.due(now):
            return
        if self._wall is None:
            self._look_for_epoch()
        if self._wall is not None:
            if self._measure.due(now):
                self.measure(rnic)
            self._writer.write(self._true(), NodeHeartbeat())
        self._writer.flush()

    def measure(self, rnic: Measured) -> None:
        """Writes what was counted since the last time."""
        counters = [endpoint.pair.counters for endpoint in rnic.endpoints]
        totals = (
            sum(each.sent for each in counters),
            sum(each.received for each in counters),
            sum(each.resent for each in counters),
            sum(each.naks_sent for each in counters),
            sum(each.icrc_errors for each in counters),
            sum(each.sequence_errors for each in counters),
        )
        since = [total - told for total, told in zip(totals, self._told, strict=True)]
        self._told = totals
        self._writer.write(self._true(), RnicMeasured(self._node, *since))

    def say(self, text: str, severity: str = "info") -> None:
        """One line of the NIC's own log."""
        self._writer.write(self._true(), LineLogged(text=text, severity=severity))
        self._writer.flush()

    def close(self, code: int, detail: str = "") -> None:
        """Says how the NIC ended, and closes the file."""
        self._writer.write(self._true(), NodeStopped(code=code, detail=detail))
        self._writer.close()

    def _look_for_epoch(self) -> None:
        epoch = self._barrier.epoch()
        self._wall = None if epoch is None else WallTime(epoch)

    def _true(self) -> int:
        return 0 if self._wall is None else max(0, self._wall.true(time.monotonic_ns()))
