"""Messages on their way to machines of other nodes, by the moment at which they arrive; of equals the older first."""

from __future__ import annotations

from heapq import heappop, heappush

from testbed.machine import Message
from testbed.units import Nanoseconds


class Arrivals:
    """What a network of the simulated clock still has to hand over."""

    def __init__(self) -> None:
        self._travelling: list[tuple[Nanoseconds, int, str, str, Message]] = []
        self._number = 0

    def expect(self, t: Nanoseconds, node: str, machine: str, message: Message) -> None:
        """`message` is at `machine` of `node` at `t`."""
        heappush(self._travelling, (t, self._number, node, machine, message))
        self._number += 1

    def wake(self, now: Nanoseconds) -> list[tuple[str, str, Message]]:
        """(node, machine, message) of all that has arrived by `now`."""
        arrived = []
        while self._travelling and self._travelling[0][0] <= now:
            _, _, node, machine, message = heappop(self._travelling)
            arrived.append((node, machine, message))
        return arrived

    def deadline(self) -> Nanoseconds | None:
        """When the next message arrives."""
        return self._travelling[0][0] if self._travelling else None
