"""What the HTTP shell needs of a server, and that port made from a front-end machine's messages.

The shell (`emulators.openai_api`) sees a `ServerPort`; the machine behind it may live in an emulated DPU's process
or, for users without root, in one process with the device (`emulators.in_process`).

It may not know HTTP, machines, wires or clocks: only the messages of `testbed.serving.requests`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

import msgspec

from testbed.machine import Message
from testbed.serving.requests import Abandon, Finish, Refused, Request, Submit, Tokens
from testbed.serving.tokens import Vocabulary


class ModelCard(msgspec.Struct, frozen=True):
    """The one model that is served, as `/v1/models` shows it."""

    id: str
    root: str
    max_model_len: int
    """Most tokens of prompt and answer together."""
    created: int
    """Seconds since 1970, when the server was started."""
    owned_by: str = "looplane"


def text_of(vocabulary: Vocabulary, tokens: Sequence[int]) -> str:
    """The text of `tokens`, with U+FFFD where bytes are no UTF-8. Raises KeyError for an id that there is not."""
    return b"".join(vocabulary.token_bytes(token) for token in tokens).decode("utf-8", "replace")


class ServerPort(Protocol):
    """A server of one model."""

    card: ModelCard
    vocabulary: Vocabulary

    @property
    def ready(self) -> bool:
        """True once the model is loaded and requests may come."""
        ...

    def submit(self, request: Request) -> AsyncIterator[Tokens | Refused]:
        """Hands a request in; its name must not be in use. The last message has a reason or is `Refused`."""
        ...

    def abandon(self, name: str) -> None:
        """The client of `name` is gone; nothing more will be read. Does nothing if the request has ended."""
        ...

    def finish(self, name: str) -> None:
        """A stop string has ended the answer of `name`: served in full. Does nothing if the request has ended."""
        ...

    def in_use(self, name: str) -> bool:
        """True while a request of that name is being served."""
        ...


class AnswerStream:
    """The messages of one request, as they come."""

    def __init__(self) -> None:
        self._messages: asyncio.Queue[Tokens | Refused] = asyncio.Queue()
        self._ended = False

    def put(self, message: Tokens | Refused) -> None:
        """One more message."""
        self._messages.put_nowait(message)

    def __aiter__(self) -> AsyncIterator[Tokens | Refused]:
        return self

    async def __anext__(self) -> Tokens | Refused:
        if self._ended:
            raise StopAsyncIteration
        message = await self._messages.get()
        self._ended = ends(message)
        return message


def ends(message: Tokens | Refused) -> bool:
    """True for the last message of a request."""
    return isinstance(message, Refused) or message.reason is not None


class FrontEndPort:
    """A `ServerPort` over the front-end machine.

    `deliver(message)` hands `Submit`, `Abandon` and `Finish` to the machine; what it answers comes in through `take`.
    """

    def __init__(self, card: ModelCard, vocabulary: Vocabulary, deliver: Callable[[Message], None]) -> None:
        self.card = card
        self.vocabulary = vocabulary
        self._deliver = deliver
        self._streams: dict[str, AnswerStream] = {}
        self._ready = False

    @property
    def ready(self) -> bool:
        """True once `open` was called."""
        return self._ready

    def open(self) -> None:
        """The model is loaded and the run has begun."""
        self._ready = True

    def close(self) -> None:
        """No more requests; those in flight are answered as unavailable."""
        self._ready = False
        for name in tuple(self._streams):
            self.take(Refused(name, "unavailable", "The server is shutting down."))

    def submit(self, request: Request) -> AnswerStream:
        """Hands a request to the machine. Raises ValueError if the name is in use."""
        if request.name in self._streams:
            raise ValueError(f"request {request.name!r} is being served already")
        stream = AnswerStream()
        self._streams[request.name] = stream
        self._deliver(Submit(request))
        return stream

    def abandon(self, name: str) -> None:
        """Tells the machine, if the request has not ended."""
        if self._streams.pop(name, None) is not None:
            self._deliver(Abandon(name))

    def finish(self, name: str) -> None:
        """Tells the machine, if the request has not ended."""
        if self._streams.pop(name, None) is not None:
            self._deliver(Finish(name))

    def in_use(self, name: str) -> bool:
        """True while the request's last message has not come."""
        return name in self._streams

    def take(self, message: Tokens | Refused) -> None:
        """A message of the machine. Those of requests that were abandoned or finished fall on the floor."""
        stream = self._streams.get(message.name)
        if stream is None:
            return
        if ends(message):
            del self._streams[message.name]
        stream.put(message)
