"""What the parts of a storage server share: its chunks' versions, its view of the chains, its open questions.

Also the answers to clients, which are gathered so that a batch of chunks costs a few letters and not one each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.chains import ChainView
from testbed.dualpath.chunk_letters import ChunkRefused, ChunksRead, ChunksWritten
from testbed.dualpath.letters import AnyLetter
from testbed.dualpath.local_messages import SERVER, STORAGE
from testbed.dualpath.mail import MAIL, Post
from testbed.dualpath.silence import Silence
from testbed.machine import Deliver, Effect, Message, UnexpectedMessage
from testbed.units import Nanoseconds

Handler: TypeAlias = Callable[[Nanoseconds, Any], list[Effect]]

GATHERED = 8
"""Finished chunks that go into one letter to the client; fewer at the end of its batch. Our choice."""


class Shelf:
    """See the head of this file."""

    def __init__(self, node: str, shape: BlockShape, view: ChainView, committed: dict[int, int]) -> None:
        self.node = node
        self.shape = shape
        self.view = view
        self.silence = Silence()
        self.committed = committed
        """Committed version of each chunk."""
        self.damaged: set[int] = set()
        """Chunks whose bytes are not what was written; their version stays known."""
        self._ticket = 0
        self._expected: dict[int, Handler] = {}

    def expect(self, handler: Handler) -> int:
        """A ticket for a question to the traffic manager or the disk; `handler` takes its answer."""
        self._ticket += 1
        self._expected[self._ticket] = handler
        return self._ticket

    def answer(self, now: Nanoseconds, ticket: int, message: Message) -> list[Effect]:
        """Hands an answer to who asked. Raises `UnexpectedMessage` for one that nobody waits for."""
        handler = self._expected.pop(ticket, None)
        if handler is None:
            raise UnexpectedMessage(SERVER, message)
        return handler(now, message)

    def post(self, peer: str, letter: AnyLetter) -> Effect:
        """A letter to another storage server."""
        return Deliver(MAIL, Post(peer, SERVER, letter, writer=SERVER))


class Batch:
    """Chunks that a client has asked for in one letter, and which of them are still to be answered."""

    def __init__(self, node: str, number: int, size: int, letter: type[ChunksRead] | type[ChunksWritten]) -> None:
        self.node = node
        self._number = number
        self._left = size
        self._letter = letter
        self._done: list[int] = []
        self._refused: list[ChunkRefused] = []

    def done(self, own: str, place: int) -> list[Effect]:
        """One chunk is served; perhaps a letter."""
        self._done.append(place)
        return self._gathered(own)

    def refuse(self, own: str, place: int, reason: str) -> list[Effect]:
        """One chunk is not served; perhaps a letter."""
        self._refused.append(ChunkRefused(place, reason[:60]))
        return self._gathered(own)

    def _gathered(self, own: str) -> list[Effect]:
        self._left -= 1
        if self._left and len(self._done) + len(self._refused) < GATHERED:
            return []
        letter = self._letter(own, self._number, tuple(self._done), tuple(self._refused))
        self._done, self._refused = [], []
        return [Deliver(MAIL, Post(self.node, STORAGE, letter, writer=SERVER))]
