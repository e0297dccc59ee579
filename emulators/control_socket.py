"""What software and its soft RNIC say to each other over the node's unix socket, and the descriptors that go along.

SOCK_SEQPACKET: a message is a datagram of JSON, at most a few hundred bytes, with up to three descriptors
(SCM_RIGHTS). Software speaks first and waits for each answer. The socket stays open as long as both live: its end
is how each learns that the other is gone.
"""

from __future__ import annotations

import os
import socket
from typing import TypeAlias

import msgspec

from emulators.verbs_ring import QueueSizes

_LIMIT = 4096
_DESCRIPTORS = 3


class Hello(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="hello"):
    """Software opens its queues. Goes with three descriptors: the queues' memory, the doorbell, the notification."""

    node: str
    pid: int
    sizes: QueueSizes


class Register(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="register"):
    """Software lends a region of the plan, by name. Goes with one descriptor: its memory."""

    region: str
    size: int


class Reconnect(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="reconnect"):
    """Software brings a queue pair that failed back: both ends' software ask their NICs for the same connection."""

    queue_pair: int
    turn: int
    """Number of the connection; the plan's own is 0."""


class Agreed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="agreed"):
    """The NIC has done it."""


class Declined(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="declined"):
    """The NIC has not done it."""

    reason: str


ControlMessage: TypeAlias = Hello | Register | Reconnect | Agreed | Declined

_decode = msgspec.json.Decoder(ControlMessage).decode


class BadControlMessage(Exception):
    """The other side said what is no message; it is closed."""


def send(connection: socket.socket, message: ControlMessage, descriptors: tuple[int, ...] = ()) -> None:
    """Sends one message with copies of `descriptors`. Raises OSError if the other side is gone."""
    socket.send_fds(connection, [msgspec.json.encode(message)], list(descriptors))


def receive(connection: socket.socket) -> tuple[ControlMessage, list[int]] | None:
    """The next message and its descriptors, which are now ours; None at the end.

    Raises `BadControlMessage` (and closes the descriptors), BlockingIOError, TimeoutError.
    """
    try:
        data, descriptors, flags, _ = socket.recv_fds(connection, _LIMIT, _DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None
    if not data and not descriptors:
        return None
    try:
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise BadControlMessage(f"a message is longer than {_LIMIT} bytes or has too many descriptors")
        return _decode(data), descriptors
    except (msgspec.DecodeError, BadControlMessage) as error:
        for descriptor in descriptors:
            os.close(descriptor)
        raise BadControlMessage(str(error)) from error
