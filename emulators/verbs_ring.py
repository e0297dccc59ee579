"""The queues between a node's software and its soft RNIC: their layout in shared memory, and both ends of a ring.

One memfd holds a header, a ring of work requests (software → NIC), a ring of completions (NIC → software) and a
staging area for the bytes of WRITE, READ and SEND. Each ring has one producer and one consumer. Head and tail are
64-bit counters that never wrap, each on a cache line of its own; an entry is 64 bytes. A producer fills entries,
then stores the tail; a consumer takes entries, then stores the head.

A sleeper is woken by a `Bell`: an eventfd and a word. The sleeper arms the word, looks at its ring once more and only
then sleeps; the other side stores its tail first and looks at the word after. One of the two always sees the other
(store, then load, both sequentially consistent), so no wake is lost and none is paid for while both are awake. A bell
rings once for each arming, as `ibv_req_notify_cq` does.

This file knows neither sockets nor verbs' meaning. Whoever maps the memory of somebody else must treat every field
as hostile: `Consumer` checks the counters, its user the fields.
"""

from __future__ import annotations

import os
from enum import IntEnum
from struct import Struct
from typing import Any

import msgspec

from emulators.shared_memory import SharedMemory
from testbed.units import KIB, MIB

MAGIC = 0x4C50_5652_4E47_0000
VERSION = 1
"""Raised with every change of the layout below; both sides refuse another one."""
ENTRY = 64
_PAGE = 4 * KIB
_HEADER = Struct("<QQQQ")
"""Magic with version, requests, completions, bytes of staging."""
_REQUEST_TAIL, _REQUEST_HEAD = 64, 128
_COMPLETION_TAIL, _COMPLETION_HEAD = 192, 256
_DOORBELL, _NOTIFY = 320, 384


class Opcode(IntEnum):
    """What a work request asks for."""

    WRITE = 1
    READ = 2
    COMPARE_SWAP = 3
    FETCH_ADD = 4
    SEND = 5
    RECEIVE = 6
    """Lends `length` bytes of staging to the queue pair for one SEND of the peer."""


class CompletionKind(IntEnum):
    """What a completion is about."""

    DONE = 1
    """The work request of that number has ended."""
    RECEIVED = 2
    """The RECEIVE of that number has taken a SEND."""


WORK_REQUEST = Struct("<BBHIQQIIQQQ8x")
"""opcode, service level, 0, queue pair, number, remote address, remote key, length, staging offset, operand, swap.

`operand` is the addend of FETCH_ADD and what CMP_SWAP compares with."""
COMPLETION = Struct("<BBHIQQQ32x")
"""kind, status, 0, queue pair, number, original word, length."""
assert WORK_REQUEST.size == COMPLETION.size == ENTRY


class QueueError(Exception):
    """Base of what can be wrong with the queues."""


class BadLayout(QueueError):
    """The other side's queues are not laid out as this version does."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the verbs' queues do not fit: {reason}")


class BadCounter(QueueError):
    """The other side's counter says what cannot be; it is broken or hostile."""

    def __init__(self, produced: int, consumed: int, capacity: int) -> None:
        self.produced = produced
        self.consumed = consumed
        super().__init__(f"tail {produced} and head {consumed} do not fit a ring of {capacity}")


class QueueSizes(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How large the queues of one software are."""

    requests: int = 1024
    """Work requests that may be posted and not yet complete; a power of two."""
    completions: int = 2048
    """Places for completions, at least as many as `requests`; a power of two."""
    staging: int = 16 * MIB
    """Bytes for the data of verbs in flight; only touched pages cost memory."""

    def check(self) -> None:
        """Raises `BadLayout` where a number is out of bounds."""
        for name, value in (("requests", self.requests), ("completions", self.completions)):
            if value < 2 or value > 1 << 16 or value & (value - 1):
                raise BadLayout(f"{name} is {value}, allowed are powers of two from 2 to 65536")
        if self.completions < self.requests:
            raise BadLayout(f"{self.completions} completions cannot answer {self.requests} requests")
        if not 0 < self.staging <= 1 << 32:
            raise BadLayout(f"staging is {self.staging} bytes, allowed are 1 to 2**32")

    @property
    def size(self) -> int:
        """Bytes of the whole memory."""
        return _PAGE + (self.requests + self.completions) * ENTRY + self.staging


class Producer:
    """The filling end of one ring. `put` any number of entries, then `publish` once."""

    __slots__ = ("_base", "_head", "_mask", "_memory", "_pack", "_seen_head", "_tail", "_view", "capacity", "tail")

    def __init__(self, memory: SharedMemory, entry: Struct, base: int, capacity: int, tail: int, head: int) -> None:
        self._memory = memory
        self._view = memory.view
        self._pack = entry.pack_into
        self._base = base
        self._mask = capacity - 1
        self._tail = tail
        self._head = head
        self.capacity = capacity
        self.tail = memory.load(tail)
        self._seen_head = memory.load(head)

    def room(self) -> int:
        """Entries that may be put now. Raises `BadCounter`."""
        room = self.capacity - (self.tail - self._seen_head)
        if room > 0:
            return room
        self._seen_head = head = self._memory.load(self._head)
        if not 0 <= self.tail - head <= self.capacity:
            raise BadCounter(self.tail, head, self.capacity)
        return self.capacity - (self.tail - head)

    def put(self, *fields: int) -> None:
        """Fills the next entry; the caller has asked for `room`."""
        self._pack(self._view, self._base + (self.tail & self._mask) * ENTRY, *fields)
        self.tail += 1

    def publish(self) -> None:
        """Shows the consumer all that was put."""
        self._memory.store(self._tail, self.tail)


class Consumer:
    """The emptying end of one ring. `take` entries, then `release` once."""

    __slots__ = ("_base", "_glance", "_head", "_mask", "_memory", "_seen_tail", "_tail", "_unpack", "_view", "capacity",
                 "head")  # fmt: skip

    def __init__(self, memory: SharedMemory, entry: Struct, base: int, capacity: int, tail: int, head: int) -> None:
        self._memory = memory
        self._view = memory.view
        self._glance = memory.view[tail : tail + 8].cast("Q")
        self._unpack = entry.unpack_from
        self._base = base
        self._mask = capacity - 1
        self._tail = tail
        self._head = head
        self.capacity = capacity
        self.head = memory.load(head)
        self._seen_tail = self.head

    def waiting(self) -> bool:
        """True if there is an entry to take: one plain load, for spinning."""
        return self._seen_tail != self.head or self._glance[0] != self.head

    def take(self) -> tuple[Any, ...] | None:
        """The next entry's fields, or None. Raises `BadCounter`."""
        head = self.head
        if head == self._seen_tail:
            tail = self._memory.load(self._tail)
            if not 0 <= tail - head <= self.capacity:
                raise BadCounter(tail, head, self.capacity)
            self._seen_tail = tail
            if tail == head:
                return None
        self.head = head + 1
        return self._unpack(self._view, self._base + (head & self._mask) * ENTRY)

    def release(self) -> None:
        """Gives the places of all taken entries back to the producer."""
        self._memory.store(self._head, self.head)

    def close(self) -> None:
        """Drops the views into the memory."""
        self._glance.release()


class Bell:
    """Wakes one side when the other has work for it; see the head of this file for why none is lost."""

    __slots__ = ("_armed", "_memory", "fd")

    def __init__(self, memory: SharedMemory, armed: int, fd: int) -> None:
        self._memory = memory
        self._armed = armed
        self.fd = fd

    def arm(self) -> None:
        """The sleeper: ring once from now on. It must look at its ring again before it sleeps."""
        self._memory.store(self._armed, 1)

    def disarm(self) -> None:
        """The sleeper is awake: do not ring."""
        self._memory.store(self._armed, 0)

    def ring(self) -> None:
        """The other side, after publishing: wakes the sleeper if it has armed the bell."""
        if self._memory.load(self._armed):
            self._memory.store(self._armed, 0)
            os.eventfd_write(self.fd, 1)


def new_bell_fd() -> int:
    """A fresh eventfd for a bell."""
    return os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)


class Queues:
    """Both rings and the staging area over one memory. Software `create`s them, the NIC `attach`es."""

    def __init__(self, memory: SharedMemory, sizes: QueueSizes) -> None:
        self.memory = memory
        self.sizes = sizes
        completions = _PAGE + sizes.requests * ENTRY
        staging = completions + sizes.completions * ENTRY
        self.staging = memory.view[staging : staging + sizes.staging]
        self._requests = (memory, WORK_REQUEST, _PAGE, sizes.requests, _REQUEST_TAIL, _REQUEST_HEAD)
        self._completions = (memory, COMPLETION, completions, sizes.completions, _COMPLETION_TAIL, _COMPLETION_HEAD)

    @classmethod
    def create(cls, sizes: QueueSizes) -> Queues:
        """New, empty queues. Raises `BadLayout` if the sizes are out of bounds."""
        sizes.check()
        memory = SharedMemory.create(sizes.size, "queues")
        _HEADER.pack_into(memory.view, 0, MAGIC | VERSION, sizes.requests, sizes.completions, sizes.staging)
        return cls(memory, sizes)

    @classmethod
    def attach(cls, fd: int, sizes: QueueSizes) -> Queues:
        """Maps queues that software made; takes over `fd`. Raises `BadLayout` or `NotSealed`."""
        try:
            sizes.check()
        except BadLayout:
            os.close(fd)
            raise
        memory = SharedMemory.attach(fd, sizes.size)
        header = _HEADER.unpack_from(memory.view, 0)
        expected = (MAGIC | VERSION, sizes.requests, sizes.completions, sizes.staging)
        if header != expected:
            memory.close()
            raise BadLayout(f"header is {header}, expected {expected}")
        return cls(memory, sizes)

    def request_producer(self) -> Producer:
        """Software's end of the work requests."""
        return Producer(*self._requests)

    def request_consumer(self) -> Consumer:
        """The NIC's end of the work requests."""
        return Consumer(*self._requests)

    def completion_producer(self) -> Producer:
        """The NIC's end of the completions."""
        return Producer(*self._completions)

    def completion_consumer(self) -> Consumer:
        """Software's end of the completions."""
        return Consumer(*self._completions)

    def doorbell(self, fd: int) -> Bell:
        """Wakes the NIC."""
        return Bell(self.memory, _DOORBELL, fd)

    def notification(self, fd: int) -> Bell:
        """Wakes the software."""
        return Bell(self.memory, _NOTIFY, fd)
