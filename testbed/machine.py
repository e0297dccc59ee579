"""The contract between a pure machine and the world that drives it (architecture §3).

A machine is told what happened and when; it answers with effects and a deadline. It never calls back and never
looks at a clock, a socket, a file, the environment or global randomness: `now` is an argument and a seeded
`random.Random` is handed to its constructor. The same machine therefore runs under the manual clock of the
tests, the simulated clock and the wall clock of an emulated node.

This file does not know any system, wire or clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any, ClassVar, Protocol, TypeAlias

import msgspec

from testbed.units import Nanoseconds


class Message(msgspec.Struct, frozen=True):
    """Something that happened, told to a machine. Each machine's module defines its own subclasses."""


class Effect(msgspec.Struct, frozen=True):
    """Something a machine asks of its surroundings."""


class RemoteAddress(msgspec.Struct, frozen=True):
    """A place in another node's memory region, as RETH and AtomicETH carry it (IBA 9.3, 9.5)."""

    address: int
    """Virtual address, 64 bits."""
    key: int
    """Remote key of the region, 32 bits."""

    def at(self, offset: int) -> RemoteAddress:
        """The same region, `offset` bytes on."""
        return RemoteAddress(self.address + offset, self.key)


class Verb(Effect, frozen=True):
    """A work request posted to the wire; answered once by a `Completion` with the same ticket."""

    ticket: int
    """Chosen by the machine, unique among its verbs in flight (the `wr_id` of libibverbs)."""
    peer: str
    """Name of the node at the other end of the queue pair, as in the plan; `de0.cnic3` for one port of it."""
    service_level: int = 0
    """InfiniBand service level 0-15; the port maps it to a virtual lane."""
    interface: str = ""
    """Own port by which it leaves; empty: that of the first queue pair that fits (`testbed.network.routes`)."""


class Write(Verb, frozen=True, kw_only=True):
    """One-sided RDMA WRITE of `data` to `remote`."""

    remote: RemoteAddress
    data: bytes | bytearray | memoryview
    source: str = ""
    """Name of the own region that the data were gathered from (the local key of libibverbs); empty for inline data."""


class Read(Verb, frozen=True, kw_only=True):
    """One-sided RDMA READ of `length` bytes at `remote`; the completion's `data` has them."""

    remote: RemoteAddress
    length: int


class CompareSwap(Verb, frozen=True, kw_only=True):
    """Atomic CMP_SWAP on the 64-bit word at `remote`; the completion's `original` is the word before it."""

    remote: RemoteAddress
    expected: int
    desired: int


class FetchAdd(Verb, frozen=True, kw_only=True):
    """Atomic FETCH_ADD (modulo 2**64) on the 64-bit word at `remote`; `original` is the word before it."""

    remote: RemoteAddress
    addend: int


class Send(Verb, frozen=True, kw_only=True):
    """Two-sided SEND; the peer's software gets a `Received` message, if it has posted a receive."""

    data: bytes


class CompletionStatus(IntEnum):
    """How a work request ended; names follow libibverbs' `ibv_wc_status`."""

    SUCCESS = 0
    LOCAL_LENGTH_ERROR = 1
    LOCAL_PROTECTION_ERROR = 2
    REMOTE_INVALID_REQUEST = 3
    REMOTE_ACCESS_ERROR = 4
    REMOTE_OPERATION_ERROR = 5
    RETRY_EXCEEDED = 6
    RNR_RETRY_EXCEEDED = 7
    FLUSHED = 8
    """The queue pair was in the error state, so the request was never tried."""


class Completion(Message, frozen=True):
    """The one answer to a posted verb."""

    ticket: int
    status: CompletionStatus = CompletionStatus.SUCCESS
    data: bytes = b""
    """What a READ brought; empty for the others."""
    original: int = 0
    """The word before an atomic; 0 for the others."""


class Received(Message, frozen=True):
    """A SEND of the node `peer` has landed in a posted receive."""

    peer: str
    data: bytes


class Compute(Effect, frozen=True):
    """Work for the node's accelerator; the work's own type says what (e.g. a graph launch)."""

    work: Any


class Deliver(Effect, frozen=True):
    """A message for another machine, or a shell's port, on the same node, by name."""

    to: str
    message: Message


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="type"):
    """Something that has happened, for the log. `testbed.events.schema` lists them all."""

    level: ClassVar[str] = "info"


class Emit(Effect, frozen=True):
    """An event for the node's log; the driver adds `t`, `node` and `seq`."""

    event: Event


Effects: TypeAlias = Sequence[Effect]

NOTHING: Effects = ()


class Machine(Protocol):
    """A pure state machine. `wake` is due once `now >= deadline()`; drivers may be early, never late on purpose."""

    name: str

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes one message that arrived at `now`. Raises `UnexpectedMessage` and changes nothing if it cannot."""
        ...

    def wake(self, now: Nanoseconds) -> Effects:
        """Does what is due at `now`."""
        ...

    def deadline(self) -> Nanoseconds | None:
        """The moment of the next `wake`, or None when only a message can move the machine."""
        ...


class MachineError(Exception):
    """A machine was driven against its contract; our fault, never the peer's."""


class UnexpectedMessage(MachineError):
    """A message that `machine` has no use for in its present state."""

    def __init__(self, machine: str, message: Message, state: str = "") -> None:
        self.machine = machine
        self.message = message
        self.state = state
        where = f" in state {state}" if state else ""
        super().__init__(f"{machine} cannot take {type(message).__name__}{where}")
