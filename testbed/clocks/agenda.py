"""Who is due next: a heap of (t, ticket). One definition of order for the clocks that jump from moment to moment.

Every source has at most one appointment. A source that keeps its appointment keeps its ticket; one that makes a new
one gets a later ticket, so at equal times the older appointment comes first. This file knows no machine.
"""

from __future__ import annotations

from heapq import heappop, heappush

from testbed.units import Nanoseconds


class Agenda:
    """Appointments of sources, which are numbers from 0."""

    def __init__(self) -> None:
        self._heap: list[tuple[Nanoseconds, int, int]] = []
        self._appointments: list[tuple[Nanoseconds, int] | None] = []
        self._tickets = 0

    def add_source(self) -> int:
        """The number of a new source, without an appointment."""
        self._appointments.append(None)
        return len(self._appointments) - 1

    def appoint(self, source: int, t: Nanoseconds | None) -> None:
        """`source` is due at `t`, or not at all; its earlier appointment is void."""
        present = self._appointments[source]
        if t is None:
            self._appointments[source] = None
        elif present is None or present[0] != t:
            ticket = self._tickets
            self._tickets += 1
            self._appointments[source] = (t, ticket)
            heappush(self._heap, (t, ticket, source))

    def next(self) -> tuple[Nanoseconds, int] | None:
        """When the next appointment is and whose, or None."""
        while self._heap:
            t, ticket, source = self._heap[0]
            if self._appointments[source] == (t, ticket):
                return t, source
            heappop(self._heap)
        return None

    def take(self) -> tuple[Nanoseconds, int]:
        """As `next`, and the appointment is over. Raises IndexError if there is none."""
        found = self.next()
        if found is None:
            raise IndexError("nobody is due")
        heappop(self._heap)
        self._appointments[found[1]] = None
        return found
