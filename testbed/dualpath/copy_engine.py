"""The GPU's copy engine: what moves host-device copies where they do not go by CNIC loop-back (DualPath A.1).

One engine a GPU does one copy after another: the time to submit each cudaMemcpyAsync, then the bytes. Who carries the
bytes is the surroundings': a wire that has PCIe links shares them out and says when they are there; without one
they take as long as the link alone would. Pure; knows bytes and time, no memory.
"""

from __future__ import annotations

import heapq
from collections import deque

from testbed.dualpath.local_messages import Move
from testbed.units import Nanoseconds, serialization_time


class Copy:
    """One queued move."""

    __slots__ = ("began", "copies", "engine", "move", "true_bytes")

    def __init__(self, engine: str, move: Move, copies: int, true_bytes: int) -> None:
        self.engine = engine
        self.move = move
        self.copies = copies
        """How many cudaMemcpyAsync it takes."""
        self.true_bytes = true_bytes
        self.began: Nanoseconds = 0


class CopyEngines:
    """The copy engines of a node, one for each name; `submit_time` is that of one cudaMemcpyAsync.

    `bits_per_s` is the rate of the bytes; None where a wire carries them.
    """

    def __init__(self, submit_time: Nanoseconds, bits_per_s: int | None) -> None:
        self._submit_time = submit_time
        self._bits_per_s = bits_per_s
        self._lines: dict[str, deque[Copy]] = {}
        self._due: list[tuple[Nanoseconds, int, Copy]] = []
        self._number = 0

    def start(self, now: Nanoseconds, copy: Copy) -> None:
        """Queues a copy behind those of its engine."""
        line = self._lines.setdefault(copy.engine, deque())
        line.append(copy)
        if len(line) == 1:
            self._begin(now, copy)

    def due(self, now: Nanoseconds) -> tuple[Nanoseconds, Copy] | None:
        """The next copy whose time has come, with its moment: it has ended, or its bytes are to be carried now."""
        if self._due and self._due[0][0] <= now:
            moment, _, copy = heapq.heappop(self._due)
            return moment, copy
        return None

    def ended(self, now: Nanoseconds, copy: Copy) -> None:
        """The bytes of a copy are there: its engine begins the next one."""
        line = self._lines[copy.engine]
        line.popleft()
        if line:
            self._begin(now, line[0])

    def deadline(self) -> Nanoseconds | None:
        """When the next copy is due."""
        return self._due[0][0] if self._due else None

    def _begin(self, now: Nanoseconds, copy: Copy) -> None:
        copy.began = now
        due = now + copy.copies * self._submit_time
        if self._bits_per_s is not None:
            due += serialization_time(copy.true_bytes, self._bits_per_s)
        self._number += 1
        heapq.heappush(self._due, (due, self._number, copy))
