"""What clients are told: tokens with their text, or why there are none. Steps 12 and 13, and every refusal.

The same for every server, wherever its front end runs. It knows which clients listen, by the name of their request;
nothing of slots, processes and the wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from testbed.events.schema import RequestRefused, TokensDetokenised, TokensStreamed
from testbed.machine import Deliver, Effect, Emit
from testbed.serving.requests import Refused, Request, Tokens
from testbed.serving.tokens import TokenText, Vocabulary

NOT_LAST = -1


class Listener:
    """A request whose client may listen; a server adds what it must remember of it."""

    def __init__(self, request: Request, number: int, prompt: list[int], vocabulary: Vocabulary) -> None:
        self.request = request
        self.number = number
        self.prompt = prompt
        self.text = TokenText(vocabulary)
        self.cached = 0
        """Tokens of the prompt whose KV was there already, as far as the server knows."""
        self.listening = True
        """False once the client is gone or has had its last message."""


L = TypeVar("L", bound=Listener)


class ClientSide(Generic[L]):
    """The listening clients, behind the port `to` of this node."""

    def __init__(self, to: str) -> None:
        self._to = to
        self._listening: dict[str, L] = {}

    def find(self, name: str) -> L | None:
        """The request of a listening client."""
        return self._listening.get(name)

    def join(self, tracked: L) -> None:
        """A client has sent a request and listens."""
        self._listening[tracked.request.name] = tracked

    def leave(self, tracked: L) -> None:
        """The client listens no more: it is gone, or has all it will get."""
        if tracked.listening:
            tracked.listening = False
            del self._listening[tracked.request.name]

    def refuse(self, tracked: L, reason: str, detail: str, out: list[Effect]) -> None:
        """Tells a listening client why it gets nothing (more)."""
        if tracked.listening:
            self.leave(tracked)
            self.turn_away(tracked.number, tracked.request.name, reason, detail, out)

    def turn_away(self, number: int, name: str, reason: str, detail: str, out: list[Effect]) -> None:
        """Refuses a request that was never taken in."""
        out.append(Emit(RequestRefused(number, name, reason)))
        out.append(Deliver(self._to, Refused(name, reason, detail)))

    def stream(
        self, tracked: L, first: int, tokens: Sequence[int], reason: str | None, out: list[Effect]
    ) -> None:
        """Detokenises and streams tokens; with `reason` they are the last ones."""
        if not tracked.listening:
            return
        last = len(tokens) - 1 if reason is not None else NOT_LAST
        texts = tuple(tracked.text.push(token, last=place == last) for place, token in enumerate(tokens))
        number, name = tracked.number, tracked.request.name
        if tokens:
            out.append(Emit(TokensDetokenised(number, first, len(tokens), "".join(texts))))
        told = Tokens(name, tuple(tokens), texts, len(tracked.prompt), reason, tracked.cached)
        out.append(Deliver(self._to, told))
        if tokens:
            out.append(Emit(TokensStreamed(number, first, len(tokens))))
        if reason is not None:
            self.leave(tracked)
