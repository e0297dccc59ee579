"""The pool of RDMA tasks: how many operations are in flight, what each was for, and who waits for a place.

Blink keeps completions apart from polling, with a large task pool and a progress thread, so that a burst cannot
saturate the completion queue (summary, "token reader"). Here the pool is the progress side: it numbers operations,
holds back what exceeds its size, in order, and lets the next go when one completes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from testbed.blink.share import WHOLE, Share
from testbed.machine import Effect, MachineError, Verb

C = TypeVar("C")


class TaskPool(Generic[C]):
    """At most `size` operations in flight; `C` is what the owner remembers of each."""

    def __init__(self, size: int, share: Share = WHOLE) -> None:
        """`share` keeps the tickets of several pools on one node apart."""
        self.size = size
        self._share = share
        self._posted = 0
        self._tasks: dict[int, tuple[C, Verb]] = {}
        self._in_flight = 0
        self._waiting: deque[Verb] = deque()

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def waiting(self) -> int:
        """Operations that wait for a place."""
        return len(self._waiting)

    def post(self, build: Callable[[int], Verb], task: C, out: list[Effect]) -> None:
        """Posts the operation that `build(ticket)` makes, or queues it behind those that wait."""
        self._posted += 1
        ticket = self._share.number(self._posted)
        verb = build(ticket)
        self._tasks[ticket] = (task, verb)
        if self._in_flight < self.size:
            self._in_flight += 1
            out.append(verb)
        else:
            self._waiting.append(verb)

    def complete(self, ticket: int, out: list[Effect]) -> tuple[C, Verb]:
        """What the completed operation was; the next that waits goes out. Raises MachineError if it is unknown."""
        found = self._tasks.pop(ticket, None)
        if found is None:
            raise MachineError(f"no RDMA task has ticket {ticket}")
        if self._waiting:
            out.append(self._waiting.popleft())
        else:
            self._in_flight -= 1
        return found
