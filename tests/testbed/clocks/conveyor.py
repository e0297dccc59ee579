"""Two small machines and a small wire, for the clocks' own tests: a feeder writes a rising counter into the memory
of a watcher's node and reads it back; the watcher polls its memory and tells when it saw what.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush

from testbed.events.run_events import LineLogged
from testbed.machine import (
    CompareSwap,
    Completion,
    Effects,
    Emit,
    Message,
    Read,
    RemoteAddress,
    UnexpectedMessage,
    Verb,
    Write,
)
from testbed.network.memory_region import LocalMemory
from testbed.units import Nanoseconds


class Feeder:
    name = "feeder"

    def __init__(self, peer: str, period: Nanoseconds, rounds: int) -> None:
        self._peer, self._period, self._rounds = peer, period, rounds
        self._round = self._read_back = 0
        self._next: Nanoseconds | None = period

    @property
    def done(self) -> bool:
        return self._read_back >= self._rounds

    def deadline(self) -> Nanoseconds | None:
        return self._next

    def wake(self, now: Nanoseconds) -> Effects:
        self._round += 1
        self._next = None
        word = self._round.to_bytes(8, "little")
        return [Write(2 * self._round, self._peer, remote=RemoteAddress(0, 1), data=word)]

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        if not isinstance(message, Completion):
            raise UnexpectedMessage(self.name, message)
        if message.ticket % 2 == 0:
            return [Read(message.ticket + 1, self._peer, remote=RemoteAddress(0, 1), length=8)]
        self._read_back += 1
        self._next = now + self._period if self._round < self._rounds else None
        return [Emit(LineLogged(f"read back {int.from_bytes(message.data, 'little')}"))]


class Watcher:
    name = "watcher"

    def __init__(self, memory: LocalMemory, interval: Nanoseconds) -> None:
        self._memory, self._interval = memory, interval
        self._next: Nanoseconds = interval
        self._seen = 0

    def deadline(self) -> Nanoseconds | None:
        return self._next

    def wake(self, now: Nanoseconds) -> Effects:
        self._next = now + self._interval
        word = self._memory.load(0)
        if word == self._seen:
            return ()
        self._seen = word
        return [Emit(LineLogged(f"saw {word}"))]

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        raise UnexpectedMessage(self.name, message)


class Circler:
    """Wants to be woken at the moment at which it was woken."""

    name = "circler"

    def __init__(self) -> None:
        self._now = 0

    def deadline(self) -> Nanoseconds | None:
        return self._now

    def wake(self, now: Nanoseconds) -> Effects:
        self._now = now
        return ()

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        raise UnexpectedMessage(self.name, message)


class FixedDelayWire:
    """Carries out every verb on the peer's memory after `delay`."""

    def __init__(self, memories: Mapping[str, LocalMemory], delay: Nanoseconds) -> None:
        self._memories, self._delay = memories, delay
        self._posted: list[tuple[Nanoseconds, int, str, Verb]] = []
        self._tickets = 0

    def post(self, now: Nanoseconds, node: str, verb: Verb) -> None:
        heappush(self._posted, (now + self._delay, self._tickets, node, verb))
        self._tickets += 1

    def wake(self, now: Nanoseconds) -> list[tuple[str, Message]]:
        done: list[tuple[str, Message]] = []
        while self._posted and self._posted[0][0] <= now:
            _, _, node, verb = heappop(self._posted)
            done.append((node, self._carry_out(verb)))
        return done

    def deadline(self) -> Nanoseconds | None:
        return self._posted[0][0] if self._posted else None

    def _carry_out(self, verb: Verb) -> Completion:
        memory = self._memories[verb.peer]
        match verb:
            case Write(remote=remote, data=data):
                memory.view[remote.address : remote.address + len(data)] = data
                return Completion(verb.ticket)
            case Read(remote=remote, length=length):
                return Completion(verb.ticket, data=bytes(memory.view[remote.address : remote.address + length]))
            case CompareSwap(remote=remote, expected=expected, desired=desired):
                return Completion(verb.ticket, original=memory.compare_swap(remote.address, expected, desired))
        raise AssertionError(verb)
