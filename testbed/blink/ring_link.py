"""The front end's way to the ring: reads, writes and compare-and-swaps at offsets, and what each of them was for."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from testbed.blink.prompt_writer import Burst
from testbed.blink.request_tracker import TrackedRequest
from testbed.blink.task_pool import TaskPool
from testbed.blink.token_reader import TokenRead
from testbed.events.schema import VerbFailed
from testbed.machine import (
    CompareSwap,
    Completion,
    CompletionStatus,
    Effect,
    Emit,
    Read,
    RemoteAddress,
    Write,
)


class Refresh(NamedTuple):
    """The slot tracker's own READ of the state plane."""

    mark: int


class Metadata(NamedTuple):
    """A poll of states and progress."""

    mark: int


class Swap(NamedTuple):
    """A compare-and-swap on the word of a request's slot."""

    tracked: TrackedRequest
    expected: int
    desired: int


class Look(NamedTuple):
    """The watchdog's READ of the control line."""


class Restart(NamedTuple):
    """A compare-and-swap that asks for a new life of the scheduler."""

    expected: int
    desired: int


Task: TypeAlias = Refresh | Metadata | Swap | Burst | TokenRead | Look | Restart
"""What an operation can be for."""


class RingLink:
    """Operations on the region at `ring` of the node `peer`."""

    def __init__(self, peer: str, ring: RemoteAddress, service_level: int, pool: TaskPool[Task]) -> None:
        self.peer = peer
        """The GPU's node, by whose name its ring is known."""
        self._ring = ring
        self._level = service_level
        self.pool = pool

    def write(self, offset: int, data: bytes, task: Task, out: list[Effect]) -> None:
        """Posts a WRITE."""
        remote = self._ring.at(offset)
        self.pool.post(lambda ticket: Write(ticket, self.peer, self._level, remote=remote, data=data), task, out)

    def read(self, offset: int, length: int, task: Task, out: list[Effect]) -> None:
        """Posts a READ."""
        remote = self._ring.at(offset)
        self.pool.post(lambda ticket: Read(ticket, self.peer, self._level, remote=remote, length=length), task, out)

    def swap(self, offset: int, task: Swap | Restart, out: list[Effect]) -> None:
        """Posts a CMP_SWAP of `task.expected` for `task.desired`."""
        remote = self._ring.at(offset)
        self.pool.post(
            lambda ticket: CompareSwap(
                ticket, self.peer, self._level, remote=remote, expected=task.expected, desired=task.desired
            ),
            task,
            out,
        )

    def complete(self, completion: Completion, out: list[Effect]) -> tuple[Task, bool]:
        """What a completed operation was for, and whether it succeeded; a failure is logged."""
        task, verb = self.pool.complete(completion.ticket, out)
        good = completion.status is CompletionStatus.SUCCESS
        if good and isinstance(verb, Read):
            good = len(completion.data) == verb.length
        if not good:
            out.append(Emit(VerbFailed(type(verb).__name__, self.peer, completion.status.name.lower())))
        return task, good
