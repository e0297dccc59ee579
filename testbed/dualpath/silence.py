"""Who has owed an answer for how long: when to knock at a node, and when to take it for lost.

A dead node is found by the network: a letter to it cannot be delivered. So whoever waits knocks from time to time. A
node that takes letters and answers none (its software hangs) is lost after a longer patience. Both times are our
choice; nothing in the paper speaks of failures.
"""

from __future__ import annotations

from testbed.units import MILLISECOND, SECOND, Nanoseconds

KNOCK_AFTER: Nanoseconds = 500 * MILLISECOND
PATIENCE: Nanoseconds = 10 * SECOND


class Silence:
    """Counts what each node owes."""

    def __init__(self, knock_after: Nanoseconds = KNOCK_AFTER, patience: Nanoseconds = PATIENCE) -> None:
        self._knock_after = knock_after
        self._patience = patience
        self._owed: dict[str, int] = {}
        self._since: dict[str, Nanoseconds] = {}
        self._knock_at: dict[str, Nanoseconds] = {}

    def asked(self, now: Nanoseconds, node: str) -> None:
        """One more answer is owed by `node`."""
        self._owed[node] = self._owed.get(node, 0) + 1
        self._since[node] = now
        self._knock_at.setdefault(node, now + self._knock_after)

    def heard(self, now: Nanoseconds, node: str, answers: int = 1) -> None:
        """`node` gave so many answers; 0: it gave a sign of life."""
        if node not in self._owed:
            return
        self._owed[node] -= answers
        self._since[node] = now
        self._knock_at[node] = now + self._knock_after
        if self._owed[node] <= 0:
            self.forget(node)

    def forget(self, node: str) -> None:
        """Nothing is expected of `node` any more."""
        for table in (self._owed, self._since, self._knock_at):
            table.pop(node, None)

    def deadline(self) -> Nanoseconds | None:
        """When somebody must be knocked at, or given up."""
        return min(self._knock_at.values(), default=None)

    def due(self, now: Nanoseconds) -> tuple[list[str], list[str]]:
        """Nodes to knock at now, and nodes that were silent for too long."""
        knock, lost = [], []
        for node, moment in self._knock_at.items():
            if moment > now:
                continue
            if now - self._since[node] >= self._patience:
                lost.append(node)
            else:
                knock.append(node)
        for node in knock:
            self._knock_at[node] = now + self._knock_after
        for node in lost:
            self.forget(node)
        return knock, lost
