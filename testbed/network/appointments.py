"""What a simulated wire has still to do: actions on a heap of (time, ticket), kept in that order.

Knows no wire. Equal times are kept in the order of making, so that the same run is the same run.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count
from typing import TypeAlias

from testbed.units import Nanoseconds

Action: TypeAlias = Callable[[Nanoseconds], None]
"""Something to do; it is told its moment."""


class Appointments:
    """Actions and their moments."""

    def __init__(self) -> None:
        self._heap: list[tuple[Nanoseconds, int, Action]] = []
        self._tickets = count()

    def at(self, moment: Nanoseconds, action: Action) -> None:
        """Appoints `action`."""
        heapq.heappush(self._heap, (moment, next(self._tickets), action))

    def advance(self, now: Nanoseconds) -> None:
        """Carries out all that is due by `now`, also what is appointed meanwhile."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            moment, _, action = heapq.heappop(heap)
            action(moment)

    def deadline(self) -> Nanoseconds | None:
        """The moment of the next action, or None."""
        return self._heap[0][0] if self._heap else None
