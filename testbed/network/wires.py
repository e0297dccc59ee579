"""Wires: how verbs reach another node's memory. The one place that defines the protocol and names its members.

A wire takes verbs of named nodes and answers each with exactly one completion, in the order of posting for each
queue pair. Whatever goes wrong at the peer or on the way is the status of a completion, never an exception. All
wires pass one suite, tests/conformance/wire_contract.py, the soft RNIC of `emulators` too.

- `FlowWire`: fluid transfers, for many nodes and many bytes;
- `PacketWire`: every packet, port and arbiter, for lanes and loss;
- the soft RNIC, and a real one behind the same verbs, live in `emulators`, for they do I/O.
"""

from __future__ import annotations

from typing import Protocol

from testbed.machine import Message, Verb
from testbed.network.flow_wire import FlowWire
from testbed.network.link import NO_FAULTS, Faults
from testbed.network.packet_wire import PacketWire
from testbed.network.wiring import NoQueuePair, WireSettings, WiringError
from testbed.units import Nanoseconds

__all__ = ["NO_FAULTS", "Faults", "FlowWire", "NoQueuePair", "PacketWire", "Wire", "WireSettings", "WiringError"]


class Wire(Protocol):
    """A simulated wire, driven by a clock. Times never go back."""

    def post(self, now: Nanoseconds, node: str, verb: Verb) -> None:
        """`node` posts `verb` at `now`; a WRITE's data is taken at once. Raises NoQueuePair."""
        ...

    def wake(self, now: Nanoseconds) -> list[tuple[str, Message]]:
        """(node, `Completion` or `Received`) of all that has happened up to `now` and was not told yet, in order."""
        ...

    def deadline(self) -> Nanoseconds | None:
        """When something happens next; None when the wire is quiet."""
        ...
