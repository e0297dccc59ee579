"""The soft RNIC's side of one software: its queues, its verbs in flight, its receives.

What the software writes into shared memory is not trusted: a work request with a place outside the staging area ends
with an error completion, a counter that cannot be ends the connection (`QueueError`). The NIC's own tickets carry the
software's generation, so that what a dead software had in flight ends in silence and not at its successor.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from typing import Protocol

from emulators.verbs_ring import CompletionKind, Opcode, QueueError, Queues, QueueSizes
from testbed.machine import (
    CompareSwap,
    Completion,
    CompletionStatus,
    FetchAdd,
    Read,
    RemoteAddress,
    Send,
    Verb,
    Write,
)

_NUMBER_BITS = 48
_NUMBER_MASK = (1 << _NUMBER_BITS) - 1
_READ, _RECEIVE = int(Opcode.READ), int(Opcode.RECEIVE)
_DONE, _RECEIVED = int(CompletionKind.DONE), int(CompletionKind.RECEIVED)
_SUCCESS = CompletionStatus.SUCCESS


class TooMuchOwed(QueueError):
    """Software has posted more than it has places for completions."""

    def __init__(self, owed: int) -> None:
        self.owed = owed
        super().__init__(f"{owed} work requests are not yet complete, more than there are places for completions")


class QueuePairs(Protocol):
    """Where work requests go."""

    def post(self, queue_pair: int, verb: Verb, sink: memoryview | None) -> bool:
        """Posts to the queue pair of that number; False if there is none."""
        ...

    def post_receive(self, queue_pair: int, capacity: int, held: int) -> bool:
        """Makes room for one SEND beside `held` others; False if there is no such queue pair."""
        ...


class Software:
    """One software that is connected to the NIC."""

    def __init__(
        self,
        connection: socket.socket,
        sizes: QueueSizes,
        descriptors: tuple[int, int, int],
        *,
        generation: int,
        pid: int,
    ) -> None:
        """Takes over the descriptors of memory, doorbell and notification. Raises QueueError, SharedMemoryError."""
        memory, doorbell, notification = descriptors
        self.connection = connection
        self.pid = pid
        try:
            self._queues = Queues.attach(memory, sizes)
        except BaseException:
            os.close(doorbell)
            os.close(notification)
            raise
        self._staging = self._queues.staging
        self._staging_size = sizes.staging
        self._requests = self._queues.request_consumer()
        self._completions = self._queues.completion_producer()
        self.doorbell = self._queues.doorbell(doorbell)
        self._notification = self._queues.notification(notification)
        self.has_posted = self._requests.waiting
        self._tickets = generation << _NUMBER_BITS
        self._generation = generation
        self._owed = 0
        self._unpublished = False
        self._reads: dict[int, int] = {}
        """Number of each READ in flight and its length, for its completion."""
        self._lent: dict[int, deque[tuple[int, int, int]]] = {}
        """For each queue pair the receives that no SEND has taken: number, place in the staging area, length."""

    def take_requests(self, queue_pairs: QueuePairs, limit: int = 256) -> int:
        """Posts up to `limit` work requests. Raises QueueError if the software breaks the rules of the rings."""
        taken = 0
        while taken < limit and (entry := self._requests.take()) is not None:
            taken += 1
            self._owed += 1
            if self._owed > self._completions.capacity:
                raise TooMuchOwed(self._owed)
            opcode, _, _, pair, number, _, _, length, offset, _, _ = entry
            if offset + length > self._staging_size:
                self._fail(pair, number)
            elif opcode == _RECEIVE:
                self._lend(queue_pairs, pair, (number & _NUMBER_MASK, offset, length))
            else:
                self._post(queue_pairs, entry)
        if taken:
            self._requests.release()
        return taken

    def _post(self, queue_pairs: QueuePairs, entry: tuple[int, ...]) -> None:
        opcode, _, _, pair, number, address, key, length, offset, operand, swap = entry
        ticket = self._tickets | (number & _NUMBER_MASK)
        remote = RemoteAddress(address, key)
        place = self._staging[offset : offset + length]
        verb: Verb
        match opcode:
            case Opcode.WRITE:
                verb = Write(ticket, "", remote=remote, data=place)
            case Opcode.READ:
                verb = Read(ticket, "", remote=remote, length=length)
                self._reads[ticket] = length
            case Opcode.COMPARE_SWAP:
                verb = CompareSwap(ticket, "", remote=remote, expected=operand, desired=swap)
            case Opcode.FETCH_ADD:
                verb = FetchAdd(ticket, "", remote=remote, addend=operand)
            case Opcode.SEND:
                verb = Send(ticket, "", data=bytes(place))
            case _:
                self._fail(pair, number)
                return
        if not queue_pairs.post(pair, verb, place if opcode == _READ else None):
            self._reads.pop(ticket, None)
            self._fail(pair, number)

    def _lend(self, queue_pairs: QueuePairs, pair: int, receive: tuple[int, int, int]) -> None:
        lent = self._lent.setdefault(pair, deque())
        if queue_pairs.post_receive(pair, receive[2], len(lent)):
            lent.append(receive)
        else:
            self._fail(pair, receive[0])

    def lent(self, pair: int) -> list[int]:
        """Lengths of the places that no SEND has taken, in order."""
        return [length for _, _, length in self._lent.get(pair, ())]

    def receive(self, pair: int, data: bytes) -> None:
        """A SEND has landed; dropped if only a software before us had lent a place for it."""
        lent = self._lent.get(pair)
        if not lent or len(data) > lent[0][2]:
            return
        number, offset, _ = lent.popleft()
        self._staging[offset : offset + len(data)] = data
        self._put(_RECEIVED, 0, pair, number, 0, len(data))

    def _fail(self, pair: int, number: int) -> None:
        self._put(_DONE, CompletionStatus.LOCAL_PROTECTION_ERROR, pair, number, 0, 0)

    def complete(self, pair: int, completion: Completion) -> None:
        """Answers one verb; silently none of ours if a software before us posted it."""
        ticket = completion.ticket
        if ticket >> _NUMBER_BITS != self._generation:
            return
        length = self._reads.pop(ticket, 0)
        if completion.status is not _SUCCESS:
            length = 0
        self._put(_DONE, completion.status, pair, ticket & _NUMBER_MASK, completion.original, length)

    def _put(self, kind: int, status: int, pair: int, number: int, original: int, length: int) -> None:
        if not self._completions.room():
            raise TooMuchOwed(self._owed)
        self._owed -= 1
        self._completions.put(kind, status, 0, pair, number, original, length)
        self._unpublished = True

    def publish(self) -> None:
        """Shows the software what was completed, and wakes it if it sleeps."""
        if self._unpublished:
            self._unpublished = False
            self._completions.publish()
            self._notification.ring()

    def close(self) -> None:
        """Lets go of everything; queue pairs may still hold places in the staging area until their verbs end."""
        self.connection.close()
        self._requests.close()
        for bell in (self.doorbell, self._notification):
            os.close(bell.fd)
        self._queues.memory.close()
