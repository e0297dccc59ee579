"""The mail machine: the one machine of a DualPath node that posts and takes SENDs, for all others of the node.

It is the node's first machine, so whatever a peer SENDs comes here. Letters keep the order in which they were posted
to a peer. A letter that could not be delivered is told to its writer, once (`PeerLost`); nothing waits for ever.
"""

from __future__ import annotations

import msgspec

from testbed.dualpath.letters import AnyLetter, Envelope
from testbed.dualpath.service_levels import CONTROL
from testbed.events.schema import VerbFailed
from testbed.machine import (
    NOTHING,
    Completion,
    CompletionStatus,
    Deliver,
    Effects,
    Emit,
    Message,
    Received,
    Send,
    UnexpectedMessage,
)
from testbed.units import Nanoseconds

MAIL = "mail"
"""Name of the machine, the same on every node."""
_TICKETS = 1 << 40
"""First ticket of the mail's own; other machines that post verbs have ranges of their own."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Envelope).decode


def sealed(to: str, letter: AnyLetter) -> bytes:
    """What a SEND of `letter` to the peer's machine `to` carries."""
    return _encode(Envelope(to, letter))


class Post(Message, frozen=True):
    """To the mail of the same node: send `letter` to the machine `to` of the node `peer`."""

    peer: str
    to: str
    letter: AnyLetter
    writer: str = ""
    """Machine that is told if the peer cannot be reached; empty: nobody."""


class PeerLost(Message, frozen=True):
    """From the mail to a letter's writer: the peer takes no letters."""

    peer: str
    letter: AnyLetter


class Mail:
    """See the head of this file."""

    name = MAIL

    def __init__(self) -> None:
        self._ticket = _TICKETS
        self._out: dict[int, Post] = {}

    def receive(self, now: Nanoseconds, message: Message) -> Effects:  # noqa: ARG002  # the contract's shape
        """Takes a `Post`, a `Received` or the completion of a SEND. Raises `UnexpectedMessage`, msgspec.DecodeError."""
        match message:
            case Post():
                self._ticket += 1
                self._out[self._ticket] = message
                return (Send(self._ticket, message.peer, CONTROL, data=sealed(message.to, message.letter)),)
            case Received():
                envelope = _decode(message.data)
                return (Deliver(envelope.to, envelope.letter),)
            case Completion() if message.ticket in self._out:
                return self._sent(self._out.pop(message.ticket), message.status)
            case _:
                raise UnexpectedMessage(self.name, message)

    def wake(self, now: Nanoseconds) -> Effects:  # noqa: ARG002
        """Nothing is ever due."""
        return NOTHING

    def deadline(self) -> Nanoseconds | None:
        """None."""
        return None

    def _sent(self, post: Post, status: CompletionStatus) -> Effects:
        if status is CompletionStatus.SUCCESS:
            return NOTHING
        failed = Emit(VerbFailed("send", post.peer, status.name.lower()))
        return (failed, Deliver(post.writer, PeerLost(post.peer, post.letter))) if post.writer else (failed,)
