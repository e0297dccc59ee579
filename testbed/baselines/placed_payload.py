"""The ways that prompts and tokens take: the NIC's WRITE into GPU memory, a copy through host memory, storage.

Three machines between the API server and the control loop. Each keeps the order of what passes it, so that a request's
withdrawal never overtakes it. They know requests by number and size, no client and no batch.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from testbed.baselines.host_messages import AddRequest, RequestsFailed, StepOutput, WithdrawRequest
from testbed.baselines.placements import RELAY, STORED, WRITER
from testbed.blink.arenas import ArenaAllocator
from testbed.events.schema import VerbFailed
from testbed.machine import (
    NOTHING,
    Completion,
    CompletionStatus,
    Compute,
    Deliver,
    Effect,
    Effects,
    Emit,
    Message,
    RemoteAddress,
    UnexpectedMessage,
    Write,
)
from testbed.serving.device_messages import StepDone, StepFailed
from testbed.serving.host_work import HostWork, HostWorked
from testbed.units import Nanoseconds, serialization_time

_TICKETS = 1 << 50
TOKEN_BYTES = 4


class _Written(NamedTuple):
    added: AddRequest
    start: int


class PromptWriter:
    """WRITEs prompts into GPU memory at `arena`, then hands the request on to `core`; answers pass it to `api`."""

    name = WRITER

    def __init__(self, *, arena: RemoteAddress, tokens: int, peer: str, core: str, api: str) -> None:
        self._arena = arena
        self._room = ArenaAllocator(tokens)
        self._peer, self._core, self._api = peer, core, api
        self._ticket = _TICKETS
        self._waiting: deque[AddRequest] = deque()
        self._writing: dict[int, _Written] = {}
        self._dropped: set[int] = set()
        """Requests under WRITE that nobody waits for any more."""
        self._held: dict[int, int] = {}
        """Start of each prompt whose prefill has not ended, by request."""

    @property
    def held(self) -> int:
        """Tokens of the arena that are taken, and requests that wait or are written."""
        return self._room.held + len(self._waiting) + len(self._writing)

    def deadline(self) -> None:
        """Never: messages alone move it."""

    def wake(self, now: Nanoseconds) -> Effects:  # noqa: ARG002
        """Nothing is ever due."""
        return NOTHING

    def receive(self, now: Nanoseconds, message: Message) -> Effects:  # noqa: ARG002  # it keeps no time
        """Takes a request, its withdrawal, an answer, or the completion of a WRITE."""
        out: list[Effect] = []
        match message:
            case AddRequest():
                self._waiting.append(message)
            case WithdrawRequest(request=request):
                self._withdraw(request, message, out)
            case Completion() if message.ticket in self._writing:
                self._written(self._writing.pop(message.ticket), message.status, out)
            case StepOutput(requests=requests) | RequestsFailed(requests=requests):
                for request in requests:
                    self._release(request)
                out.append(Deliver(self._api, message))
            case _:
                raise UnexpectedMessage(self.name, message)
        self._write(out)
        return out

    def _write(self, out: list[Effect]) -> None:
        while self._waiting:
            added = self._waiting[0]
            if len(added.prompt) > self._room.size:
                self._waiting.popleft()
                lost = RequestsFailed(
                    (added.request,), "context_length_exceeded", "the prompt is larger than its arena"
                )
                out.append(Deliver(self._api, lost))
                continue
            start = self._room.allocate(len(added.prompt))
            if start is None:
                return
            self._waiting.popleft()
            self._ticket += 1
            self._writing[self._ticket] = _Written(added, start)
            data = struct.pack(f"<{len(added.prompt)}I", *added.prompt)
            remote = self._arena.at(TOKEN_BYTES * start)
            out.append(Write(self._ticket, self._peer, remote=remote, data=data))

    def _written(self, done: _Written, status: CompletionStatus, out: list[Effect]) -> None:
        request = done.added.request
        if status is not CompletionStatus.SUCCESS:
            out.append(Emit(VerbFailed("write", self._peer, status.name.lower())))
        if request in self._dropped or status is not CompletionStatus.SUCCESS:
            self._room.release(done.start)
            if request not in self._dropped:
                lost = RequestsFailed((request,), "unavailable", "the prompt could not be written to the GPU")
                out.append(Deliver(self._api, lost))
            self._dropped.discard(request)
            return
        self._held[request] = done.start
        out.append(Deliver(self._core, done.added))

    def _withdraw(self, request: int, message: WithdrawRequest, out: list[Effect]) -> None:
        """A prefill that goes on all the same reads what may be another's prompt then; its token is dropped."""
        if any(one.added.request == request for one in self._writing.values()):
            self._dropped.add(request)
            return
        waiting = len(self._waiting)
        self._waiting = deque(added for added in self._waiting if added.request != request)
        if len(self._waiting) == waiting:
            self._release(request)
            out.append(Deliver(self._core, message))

    def _release(self, request: int) -> None:
        start = self._held.pop(request, None)
        if start is not None:
            self._room.release(start)


Relayed: TypeAlias = AddRequest | WithdrawRequest | StepOutput | RequestsFailed | StepDone | StepFailed


class HostRelay:
    """Copies what passes it through host memory: work on the host's CPU, in order. `then` says who is next for whom."""

    name = RELAY

    def __init__(self, then: Mapping[type[Message], str], copy: Nanoseconds) -> None:
        self._then = dict(then)
        self._copy = copy
        self._ticket = 0
        self._working: dict[int, Message] = {}

    @property
    def held(self) -> int:
        """Messages that are being copied."""
        return len(self._working)

    def deadline(self) -> None:
        """Never: messages alone move it."""

    def wake(self, now: Nanoseconds) -> Effects:  # noqa: ARG002
        """Nothing is ever due."""
        return NOTHING

    def receive(self, now: Nanoseconds, message: Message) -> Effects:  # noqa: ARG002  # it keeps no time
        """Takes what is to be copied, or the end of a copy."""
        if isinstance(message, HostWorked) and message.ticket in self._working:
            done = self._working.pop(message.ticket)
            return (Deliver(self._then[type(done)], done),)
        if type(message) not in self._then:
            raise UnexpectedMessage(self.name, message)
        self._ticket += 1
        self._working[self._ticket] = message
        # News that carry no payload wait their turn and cost nothing.
        amount = self._copy if isinstance(message, AddRequest | StepOutput | StepDone) else 0
        return (Compute(HostWork(self._ticket, self.name, "copy", amount)),)


class StoredInput:
    """Fetches what each request needs from storage: work of the store's client, then its bytes, one after another."""

    name = STORED

    def __init__(self, *, work: Nanoseconds, size_bytes: int, rate_bits_per_s: int, core: str) -> None:
        self._work = work
        self._transfer = serialization_time(size_bytes, rate_bits_per_s)
        self._core = core
        self._ticket = 0
        self._asked: dict[int, Message] = {}
        self._coming: deque[tuple[Nanoseconds, Message]] = deque()
        self._free: Nanoseconds = 0

    @property
    def held(self) -> int:
        """Requests whose input is not here yet."""
        return len(self._asked) + len(self._coming)

    def deadline(self) -> Nanoseconds | None:
        """When the next input is here."""
        return self._coming[0][0] if self._coming else None

    def wake(self, now: Nanoseconds) -> Effects:
        """Hands on the requests whose input is here."""
        out = []
        while self._coming and self._coming[0][0] <= now:
            out.append(Deliver(self._core, self._coming.popleft()[1]))
        return out

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes a request or its withdrawal, or the end of the client's work for one."""
        match message:
            case AddRequest() | WithdrawRequest():
                self._ticket += 1
                self._asked[self._ticket] = message
                amount = self._work if isinstance(message, AddRequest) else 0
                return (Compute(HostWork(self._ticket, self.name, "fetch", amount)),)
            case HostWorked() if message.ticket in self._asked:
                done = self._asked.pop(message.ticket)
                if isinstance(done, AddRequest):
                    self._free = max(now, self._free) + self._transfer
                self._coming.append((max(now, self._free), done))
                return NOTHING
            case _:
                raise UnexpectedMessage(self.name, message)
