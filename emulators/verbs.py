"""Verbs for a node's software: posts the effects of `testbed.machine` to the soft RNIC and polls what came of them.

The counterpart of libibverbs: queues in shared memory, a doorbell, completions that are polled without a system call.
Queue pairs are those of the plan; the NIC has opened them by itself and software names the peer. A WRITE's or SEND's
data is copied into the staging area when it is posted, a READ lands there; both places are freed with the completion.

Nothing is lost and nothing hangs: where a ring or the staging area is full, verbs wait here in order, up to a bound;
when the NIC dies, every verb in flight completes as FLUSHED, and so does each later one.
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

import msgspec

from emulators import control_socket
from emulators.control_socket import Agreed, Declined, Hello, Reconnect, Register
from emulators.shared_memory import SharedMemory
from emulators.staging import StagingArea
from emulators.verbs_ring import CompletionKind, Opcode, Queues, QueueSizes, new_bell_fd
from emulators.verbs_work import WORK
from testbed.experiment.plan import NodePlan, RegionPlan
from testbed.machine import (
    Completion,
    CompletionStatus,
    Received,
    Send,
    Verb,
    Write,
)
from testbed.network.routes import Routes

DEFAULT_SIZES = QueueSizes()
_ATTEMPT_S = 0.02
_RECEIVES, _RECEIVE_BYTES = 16, 4096
_FEW_PAIRS, _RECEIVES_OF_LETTERS, _RECEIVES_OF_MANY = 32, 64, 4
_LOOK_EVERY = 256
"""Empty polls between two looks at whether the NIC still lives, for callers that never sleep."""


def room_for(node: NodePlan) -> tuple[int, QueueSizes]:
    """Receives for each queue pair that carries SENDs, and queues that hold them all beside what a node posts.

    A node of eight engines that exchange tokens has hundreds of such pairs, each with a letter or two at a time; one
    of a few pairs has letters of many turns on each.
    """
    pairs = sum(pair.messages for pair in node.queue_pairs)
    each = _RECEIVES if pairs <= 2 else _RECEIVES_OF_LETTERS if pairs <= _FEW_PAIRS else _RECEIVES_OF_MANY
    if pairs * each <= DEFAULT_SIZES.requests // 2:
        return each, DEFAULT_SIZES
    requests = 1 << (DEFAULT_SIZES.requests + pairs * each - 1).bit_length()
    staging = DEFAULT_SIZES.staging + pairs * each * _RECEIVE_BYTES
    return each, QueueSizes(requests, 2 * requests, staging)


class VerbsError(Exception):
    """Base of what software can do wrong with its verbs, or find wrong with its NIC."""


class NoNic(VerbsError):
    """The NIC's socket cannot be reached."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"no soft RNIC answers at {path}: {reason}")


class NicDeclined(VerbsError):
    """The NIC has refused."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the soft RNIC declined: {reason}")


class UnknownPeer(VerbsError):
    """The plan has no queue pair to that node."""

    def __init__(self, node: str, peer: str) -> None:
        self.node = node
        self.peer = peer
        super().__init__(f"{node} has no queue pair to {peer}")


class QueueFull(VerbsError):
    """More verbs wait than the bound allows; the verb was not taken."""

    def __init__(self, waiting: int) -> None:
        self.waiting = waiting
        super().__init__(f"{waiting} verbs wait for a place in the queues already")


class Verbs:
    """One software's connection to the NIC of its node. Not for several threads.

    `completion_fd` becomes readable when something may be polled, if `arm` was called and said True.
    """

    def __init__(self, connection: socket.socket, node: NodePlan, queues: Queues, doorbell: int, notify: int) -> None:
        self._connection = connection
        self._node = node
        self._queues = queues
        self._staging = queues.staging
        self._area = StagingArea(queues.sizes.staging)
        self._requests = queues.request_producer()
        self._completions = queues.completion_consumer()
        self._doorbell = queues.doorbell(doorbell)
        self._notification = queues.notification(notify)
        self._epoll = select.epoll()
        # Edge-triggered: a ring need not be read off the eventfd, which saves a system call a wake.
        self._epoll.register(notify, select.EPOLLIN | select.EPOLLET)
        self._epoll.register(connection, select.EPOLLIN | select.EPOLLRDHUP)
        self._routes = Routes(node.queue_pairs)
        self._peers = {pair.number: pair.peer for pair in node.queue_pairs}
        self._number = 0
        self._in_flight: dict[int, tuple[int, int, int]] = {}
        self._receives: dict[int, tuple[int, int, int]] = {}
        self._waiting: deque[Verb] = deque()
        self._ready: list[Completion | Received] = []
        self._unpublished = False
        self._armed = False
        self._empty_polls = 0
        self.waiting_limit = 4 * queues.sizes.requests
        """How many verbs may wait for a place before `post` raises `QueueFull`."""
        self.lost = False
        """True once the NIC is gone."""

    @classmethod
    def connect(
        cls,
        path: Path,
        node: NodePlan,
        *,
        sizes: QueueSizes = DEFAULT_SIZES,
        receives: int = _RECEIVES,
        receive_bytes: int = _RECEIVE_BYTES,
        timeout_s: float = 10.0,
    ) -> Verbs:
        """Opens queues at the NIC that listens at `path`, waiting for it to come up.

        Each queue pair is lent `receives` places of `receive_bytes` for SENDs of its peer, and gets them back as soon
        as a SEND was polled. Raises `NoNic` after `timeout_s`, `NicDeclined` if the NIC has software already.
        """
        connection = _reach(path, timeout_s)
        queues = Queues.create(sizes)
        doorbell, notify = new_bell_fd(), new_bell_fd()
        verbs = cls(connection, node, queues, doorbell, notify)
        try:
            hello = Hello(node=node.name, pid=os.getpid(), sizes=sizes)
            verbs._ask(hello, (queues.memory.fd, doorbell, notify))
            for pair in (each for each in node.queue_pairs if each.messages):
                for _ in range(receives):
                    verbs._lend(pair.number, receive_bytes)
        except BaseException:
            verbs.close()
            raise
        verbs.ring_doorbell()
        return verbs

    @property
    def completion_fd(self) -> int:
        """Readable when `poll` has something, after `arm`; also when the NIC is gone."""
        return self._epoll.fileno()

    @property
    def in_flight(self) -> int:
        """Verbs that were posted and are not yet polled."""
        return len(self._in_flight) + len(self._waiting)

    def register(self, region: RegionPlan, *, populate: bool = True) -> SharedMemory:
        """New memory for a region of the plan, which peers may reach from now on. Raises `NicDeclined`."""
        memory = SharedMemory.create(region.size, region.name, populate=populate)
        try:
            self._ask(Register(region=region.name, size=region.size), (memory.fd,))
        except BaseException:
            memory.close()
            raise
        return memory

    def reconnect(self, peer: str, turn: int, service_level: int | None = None) -> None:
        """Brings the queue pair to `peer` back after a failure, as its connection number `turn` (the plan's own is 0).

        The peer's software must ask for the same turn; until it has, verbs run into RETRY_EXCEEDED. What was posted
        before ends FLUSHED. Raises `UnknownPeer`, `NicDeclined` if that connection has been already.
        """
        number = self._routes.number_to(peer, service_level)
        if number is None:
            raise UnknownPeer(self._node.name, peer)
        self.ring_doorbell()
        self._ask(Reconnect(queue_pair=number, turn=turn))

    def post(self, verb: Verb, *, more: bool = False) -> None:
        """Posts one verb; with `more` the doorbell waits for a later `post` or `ring_doorbell`.

        Raises `UnknownPeer` and `QueueFull`; the verb was then not taken. All else ends in its completion.
        """
        if self._routes.number(verb) is None:
            raise UnknownPeer(self._node.name, verb.peer)
        if self.lost:
            self._ready.append(Completion(verb.ticket, CompletionStatus.FLUSHED))
        elif self._waiting or not self._place(verb):
            if len(self._waiting) >= self.waiting_limit:
                raise QueueFull(len(self._waiting))
            self._waiting.append(_snapshot(verb))
        if not more:
            self.ring_doorbell()

    def ring_doorbell(self) -> None:
        """Shows the NIC all that was posted, and wakes it if it sleeps: once for any number of verbs."""
        if self._unpublished:
            self._unpublished = False
            self._requests.publish()
            self._doorbell.ring()

    def poll(self) -> list[Completion | Received]:
        """What has completed or arrived since the last call. Never blocks."""
        if self._armed:
            self._notification.disarm()
            self._armed = False
            self._look(self._epoll.poll(0))
        found = self._ready
        self._ready = []
        if self._completions.waiting():
            while (entry := self._completions.take()) is not None:
                found.append(self._answer(*entry))
            self._completions.release()
            while self._waiting and self._place(self._waiting[0]):
                self._waiting.popleft()
            self.ring_doorbell()
        elif not found and (self._in_flight or self._receives):
            self._empty_polls += 1
            if self._empty_polls % _LOOK_EVERY == 0:
                self._look(self._epoll.poll(0))
                found, self._ready = self._ready, []
        return found

    def waiting(self) -> bool:
        """True if `poll` has something: for spinning, no system call."""
        return bool(self._ready) or self._completions.waiting()

    def arm(self) -> bool:
        """Asks to be woken through `completion_fd`. False if there is something to poll already: do not sleep."""
        if not self._armed:
            self._notification.arm()
            self._armed = True
        return not self.waiting()

    def sleep(self, timeout_s: float) -> bool:
        """Sleeps until `poll` has something or the NIC is gone; False after `timeout_s` without."""
        if not self.arm():
            return True
        events = self._epoll.poll(timeout_s)
        self._notification.disarm()
        self._armed = False
        self._look(events)
        return bool(events) or self.waiting()

    def close(self) -> None:
        """Leaves the NIC. Verbs in flight end unseen; regions stay as they were until somebody registers them anew."""
        if self._epoll.closed:
            return
        self.lost = True
        self._epoll.close()
        self._connection.close()
        os.close(self._doorbell.fd)
        os.close(self._notification.fd)
        self._completions.close()
        self._staging.release()
        self._queues.memory.close()

    def _ask(self, message: Hello | Register | Reconnect, descriptors: tuple[int, ...] = ()) -> None:
        try:
            control_socket.send(self._connection, message, descriptors)
            answer = control_socket.receive(self._connection)
        except (OSError, control_socket.BadControlMessage) as error:
            raise NicDeclined(f"it broke off ({error})") from error
        match answer:
            case (Agreed(), _):
                return
            case (Declined(reason=reason), _):
                raise NicDeclined(reason)
            case _:
                raise NicDeclined("it closed the connection")

    def _place(self, verb: Verb) -> bool:
        """Puts a verb into the ring; False if there is no room, for its entry or for its bytes."""
        if len(self._in_flight) + len(self._receives) >= self._requests.capacity or not self._requests.room():
            return False
        pair = self._routes.number(verb)
        if pair is None:
            raise UnknownPeer(self._node.name, verb.peer)
        work = WORK.get(type(verb))
        if work is None:
            raise VerbsError(f"{type(verb).__name__} is no verb that a NIC knows")
        opcode, address, key, length, operand, swap = work(verb)
        offset = 0
        if length:
            if not 0 <= length <= self._area.size:
                self._ready.append(Completion(verb.ticket, CompletionStatus.LOCAL_LENGTH_ERROR))
                return True
            place = self._area.take(length)
            if place is None:
                return False
            offset = place
            if isinstance(verb, Write | Send):
                self._staging[offset : offset + length] = verb.data
        number = self._number
        self._requests.put(opcode, verb.service_level, 0, pair, number, address, key, length, offset, operand, swap)
        self._in_flight[number] = (verb.ticket, offset, length)
        self._number = number + 1
        self._unpublished = True
        return True

    def _lend(self, pair: int, length: int) -> None:
        """Posts one RECEIVE. Raises `VerbsError` where the queues are too small for what `connect` was asked."""
        offset = self._area.take(length)
        if offset is None or not self._requests.room() or len(self._receives) + 1 >= self._requests.capacity:
            raise VerbsError(f"the queues have no place for the {length} byte receives of queue pair {pair}")
        self._requests.put(Opcode.RECEIVE, 0, 0, pair, self._number, 0, 0, length, offset, 0, 0)
        self._receives[self._number] = (pair, offset, length)
        self._number += 1
        self._unpublished = True

    def _answer(
        self, kind: int, status: int, _: int, pair: int, number: int, original: int, length: int
    ) -> Completion | Received:
        if kind == CompletionKind.RECEIVED:
            lent_pair, place, size = self._receives.pop(number)
            message = Received(self._peers[pair], bytes(self._staging[place : place + min(length, size)]))
            self._requests.put(Opcode.RECEIVE, 0, 0, lent_pair, number, 0, 0, size, place, 0, 0)
            self._receives[number] = (lent_pair, place, size)
            self._unpublished = True
            return message
        ticket, place, size = self._in_flight.pop(number)
        # Only a READ that went well reports a length; its bytes lie where its request said.
        data = bytes(self._staging[place : place + min(length, size)]) if length else b""
        if size:
            self._area.give_back(place, size)
        return Completion(ticket, CompletionStatus(status), data, original)

    def _look(self, events: Sequence[tuple[int, int]]) -> None:
        """Has the NIC gone, by what epoll told? Then all in flight has ended; what it completed before still counts."""
        if self.lost:
            return
        # The NIC speaks only when it is asked, so anything to read here is the end.
        self.lost = any(fd == self._connection.fileno() for fd, _ in events)
        if not self.lost:
            return
        # It stays readable for ever; whoever sleeps on `completion_fd` has been told now.
        self._epoll.unregister(self._connection)
        while (entry := self._completions.take()) is not None:
            self._ready.append(self._answer(*entry))
        tickets = [ticket for ticket, _, _ in self._in_flight.values()]
        tickets += [verb.ticket for verb in self._waiting]
        self._in_flight.clear()
        self._waiting.clear()
        self._receives.clear()
        self._unpublished = False
        self._ready += [Completion(ticket, CompletionStatus.FLUSHED) for ticket in tickets]


def _snapshot(verb: Verb) -> Verb:
    """The verb with its data copied: what waits must not change with the caller's buffer."""
    if isinstance(verb, Write) and not isinstance(verb.data, bytes):
        return msgspec.structs.replace(verb, data=bytes(verb.data))
    return verb


def _reach(path: Path, timeout_s: float) -> socket.socket:
    deadline = time.monotonic() + timeout_s
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC)
        connection.settimeout(timeout_s)
        try:
            connection.connect(str(path))
            return connection
        except OSError as error:
            connection.close()
            if time.monotonic() >= deadline:
                raise NoNic(path, error.strerror or str(error)) from error
        time.sleep(_ATTEMPT_S)
