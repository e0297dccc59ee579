"""The open-loop client as a machine: it sends each request at its scheduled time, whatever became of the others.

What latency is measured from is logged here, on the client's side: `request.sent` with its lag behind the schedule
(design serving §3), `token.received`, and one `request.finished` or `request.failed`. It speaks to `api` by the
messages of `testbed.serving.requests` and does not know what serves it. The emulated client process sends the same
schedule over HTTP.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

from testbed.events.client_events import RequestFailed, RequestFinished, RequestSent, TokenReceived
from testbed.machine import NOTHING, Deliver, Effect, Effects, Emit, Message, UnexpectedMessage
from testbed.serving.requests import Refused, Request, Submit, Tokens
from testbed.units import Nanoseconds


class Progress(Enum):
    """How far the client is with one request."""

    SCHEDULED = "scheduled"
    SENT = "sent"
    STREAMING = "streaming"
    FINISHED = "finished"
    FAILED = "failed"


class Step(Enum):
    """What can happen to one request."""

    SEND = "send"
    CHUNK = "chunk"
    LAST_CHUNK = "last chunk"
    REFUSAL = "refusal"


MOVES: dict[tuple[Progress, Step], Progress] = {
    (Progress.SCHEDULED, Step.SEND): Progress.SENT,
    (Progress.SENT, Step.CHUNK): Progress.STREAMING,
    (Progress.SENT, Step.LAST_CHUNK): Progress.FINISHED,
    (Progress.SENT, Step.REFUSAL): Progress.FAILED,
    (Progress.STREAMING, Step.CHUNK): Progress.STREAMING,
    (Progress.STREAMING, Step.LAST_CHUNK): Progress.FINISHED,
    (Progress.STREAMING, Step.REFUSAL): Progress.FAILED,
}
"""Every move there is; an answer that goes on after its end is a fault of the server's and raises."""

_ENDED = frozenset({Progress.FINISHED, Progress.FAILED})


class OpenLoopClient:
    """Sends `requests` on schedule to `api` and notes what comes back."""

    def __init__(self, requests: Sequence[Request], *, name: str = "client", api: str = "api") -> None:
        self.name = name
        self._api = api
        self._requests = sorted(requests, key=lambda request: request.scheduled)
        self._next = 0
        self._progress = {request.name: Progress.SCHEDULED for request in self._requests}
        if len(self._progress) != len(self._requests):
            raise ValueError("two requests have one name")
        self._received = dict.fromkeys(self._progress, 0)
        self._open = len(self._requests)

    @property
    def done(self) -> bool:
        """True once every request has finished or failed."""
        return self._open == 0

    @property
    def ended(self) -> int:
        """How many requests have finished or failed."""
        return len(self._requests) - self._open

    @property
    def remaining(self) -> int:
        """How many requests have neither finished nor failed."""
        return self._open

    def progress(self, name: str) -> Progress:
        """How far request `name` is. Raises KeyError."""
        return self._progress[name]

    def deadline(self) -> Nanoseconds | None:
        """When the next request is due."""
        return self._requests[self._next].scheduled if self._next < len(self._requests) else None

    def wake(self, now: Nanoseconds) -> Effects:
        """Sends what is due."""
        effects: list[Effect] = []
        while self._next < len(self._requests) and self._requests[self._next].scheduled <= now:
            request = self._requests[self._next]
            self._next += 1
            self._progress[request.name] = MOVES[self._progress[request.name], Step.SEND]
            effects.append(
                Emit(
                    RequestSent(
                        name=request.name,
                        scheduled=request.scheduled,
                        lag=now - request.scheduled,
                        prompt_tokens=request.prompt_tokens,
                        max_tokens=request.max_tokens,
                    )
                )
            )
            effects.append(Deliver(self._api, Submit(request)))
        return effects

    def receive(self, now: Nanoseconds, message: Message) -> Effects:  # noqa: ARG002  # the contract's shape
        """Takes a server's `Tokens` or `Refused`. Raises `UnexpectedMessage` for what no request waits for."""
        match message:
            case Tokens(name=name, reason=None):
                self._move(name, Step.CHUNK, message)
                return self._count(message)
            case Tokens(name=name, reason=str(reason)):
                self._move(name, Step.LAST_CHUNK, message)
                chunk = self._count(message)
                return (*chunk, Emit(RequestFinished(name, tokens=self._received[name], reason=reason)))
            case Refused(name=name):
                self._move(name, Step.REFUSAL, message)
                return (Emit(RequestFailed(name, error=message.reason)),)
            case _:
                raise UnexpectedMessage(self.name, message)

    def _move(self, name: str, step: Step, message: Message) -> None:
        progress = self._progress.get(name)
        after = MOVES.get((progress, step)) if progress is not None else None
        if after is None:
            state = f"{name}: {progress.value}" if progress else f"{name}: never sent"
            raise UnexpectedMessage(self.name, message, state)
        self._progress[name] = after
        if after in _ENDED:
            self._open -= 1

    def _count(self, message: Tokens) -> Effects:
        count = len(message.tokens)
        if count == 0:
            return NOTHING
        index = self._received[message.name]
        self._received[message.name] = index + count
        return (Emit(TokenReceived(message.name, index=index, count=count)),)
