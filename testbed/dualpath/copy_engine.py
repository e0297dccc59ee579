"""The GPU's copy engine: what moves host-device copies where they do not go by CNIC loop-back (DualPath A.1).

One engine a GPU does one copy after another: the time to submit each cudaMemcpyAsync, then the bytes at the rate of
the PCIe link. It passes no NIC, so no lane isolates it and no lane holds it back; that collectives suffer from it on
the PCIe link is not modelled (docs/models/traffic_manager.md). Pure; knows bytes and time.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from testbed.units import Nanoseconds, serialization_time


class CopyEngines:
    """The copy engines of a node, one for each name; `submit_time` is that of one cudaMemcpyAsync."""

    def __init__(self, submit_time: Nanoseconds, bits_per_s: int) -> None:
        self._submit_time = submit_time
        self._bits_per_s = bits_per_s
        self._free: dict[str, Nanoseconds] = {}
        self._ends: list[tuple[Nanoseconds, int, Callable[[Nanoseconds], None]]] = []
        self._number = 0

    def start(
        self, now: Nanoseconds, engine: str, copies: int, true_bytes: int, done: Callable[[Nanoseconds], None]
    ) -> Nanoseconds:
        """Queues `copies` copies of `true_bytes` together; `done` is called by `wake` once they have ended.

        Returns when they begin.
        """
        begins = max(now, self._free.get(engine, 0))
        flows = serialization_time(true_bytes, self._bits_per_s) if self._bits_per_s else 0
        ends = begins + copies * self._submit_time + flows
        self._free[engine] = ends
        self._number += 1
        heapq.heappush(self._ends, (ends, self._number, done))
        return begins

    def wake(self, now: Nanoseconds) -> None:
        """Ends what is due."""
        while self._ends and self._ends[0][0] <= now:
            _, _, done = heapq.heappop(self._ends)
            done(now)

    def deadline(self) -> Nanoseconds | None:
        """When the next copies end."""
        return self._ends[0][0] if self._ends else None
