"""Messages between the nodes of a placed server: a courier for each machine that is elsewhere, a mail for what comes.

A courier has the name of the machine that it stands for ("node/machine"), so no other machine knows what is near. It
posts SENDs over a reliable connection, which keeps their order; what is longer than a posted receive goes in several,
one after another. A prompt that the NIC has written into GPU memory does not travel again: the control loop gets its
length and its last two ids. It knows no batch and no request beyond its number.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from testbed.baselines import host_messages
from testbed.baselines.host_messages import AddRequest, HostMessage, RequestsFailed, StepOutput, WithdrawRequest
from testbed.events.schema import VerbFailed
from testbed.machine import (
    NOTHING,
    Completion,
    CompletionStatus,
    Deliver,
    Effect,
    Effects,
    Emit,
    Message,
    Received,
    Send,
    UnexpectedMessage,
)
from testbed.serving import device_messages
from testbed.serving.device_messages import DeviceMessage, LaunchStep, StepDone, StepFailed
from testbed.serving.requests import Sampling
from testbed.units import Nanoseconds

MAIL = "mail"
"""Name of the machine that takes SENDs; the first of its node."""
FRAME_BYTES = 4_000
"""Most of a message in one SEND: posted receives have 4 KiB (emulators.verbs)."""
_MORE, _LAST = b"\1", b"\0"


class AddWritten(Message, frozen=True, array_like=True):
    """A request whose prompt lies in GPU memory."""

    request: int
    tokens: int
    tail: tuple[int, int]
    max_tokens: int
    sampling: Sampling


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """What a SEND carries, whole or in part."""

    to: str
    family: Literal["host", "device", "written"]
    """Which union the message is of: `host_messages`, `device_messages`, or `AddWritten`."""
    message: bytes


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Envelope).decode
_written = msgspec.msgpack.Decoder(AddWritten).decode


class Courier:
    """Stands for the machine `to` of the node `peer`."""

    def __init__(self, peer: str, to: str, *, tickets: int, written: bool = False, api: str = "") -> None:
        """`tickets` is the first of its own; `written` says that prompts travel by themselves; `api` is told of
        requests that could not be handed on.
        """
        self.name = f"{peer}/{to}"
        self._peer, self._to = peer, to
        self._ticket = tickets
        self._written = written
        self._api = api
        self._out: dict[int, Message] = {}

    @property
    def in_flight(self) -> int:
        """SENDs that have not completed."""
        return len(self._out)

    def receive(self, now: Nanoseconds, message: Message) -> Effects:  # noqa: ARG002  # it keeps no time
        """Takes a message to carry, or the completion of a SEND."""
        match message:
            case Completion() if message.ticket in self._out:
                return self._sent(self._out.pop(message.ticket), message.status)
            case (
                AddRequest() | WithdrawRequest() | StepOutput() | RequestsFailed() | LaunchStep() | StepDone()
                | StepFailed()
            ):  # fmt: skip
                return self._post(message)
            case _:
                raise UnexpectedMessage(self.name, message)

    def wake(self, now: Nanoseconds) -> Effects:  # noqa: ARG002
        """Nothing is ever due."""
        return NOTHING

    def deadline(self) -> None:
        """None."""

    def _post(self, message: HostMessage | DeviceMessage) -> Effects:
        data = _encode(self._envelope(message))
        out: list[Effect] = []
        for begin in range(0, len(data), FRAME_BYTES):
            last = begin + FRAME_BYTES >= len(data)
            self._ticket += 1
            self._out[self._ticket] = message
            frame = (_LAST if last else _MORE) + data[begin : begin + FRAME_BYTES]
            out.append(Send(self._ticket, self._peer, data=frame))
        return out

    def _envelope(self, message: HostMessage | DeviceMessage) -> Envelope:
        if self._written and isinstance(message, AddRequest):
            return Envelope(self._to, "written", _encode(_as_written(message)))
        if isinstance(message, LaunchStep | StepDone | StepFailed):
            return Envelope(self._to, "device", device_messages.encode(message))
        return Envelope(self._to, "host", host_messages.encode(message))

    def _sent(self, message: Message, status: CompletionStatus) -> Effects:
        if status is CompletionStatus.SUCCESS:
            return NOTHING
        failed = Emit(VerbFailed("send", self._peer, status.name.lower()))
        if isinstance(message, AddRequest) and self._api:
            lost = RequestsFailed((message.request,), "unavailable", f"{self._peer} cannot be reached")
            return (failed, Deliver(self._api, lost))
        return (failed,)


class Mail:
    """Takes SENDs and hands what they carry to the machines of its node."""

    name = MAIL

    def __init__(self) -> None:
        self._parts: dict[str, bytes] = {}

    def receive(self, now: Nanoseconds, message: Message) -> Effects:  # noqa: ARG002  # it keeps no time
        """Takes a `Received`. Raises `UnexpectedMessage`, msgspec.DecodeError."""
        if not isinstance(message, Received):
            raise UnexpectedMessage(self.name, message)
        data = self._parts.pop(message.peer, b"") + message.data[1:]
        if message.data[:1] == _MORE:
            self._parts[message.peer] = data
            return NOTHING
        envelope = _decode(data)
        return (Deliver(envelope.to, _opened(envelope)),)

    def wake(self, now: Nanoseconds) -> Effects:  # noqa: ARG002
        """Nothing is ever due."""
        return NOTHING

    def deadline(self) -> None:
        """None."""


def _opened(envelope: Envelope) -> Message:
    match envelope.family:
        case "host":
            return host_messages.decode(envelope.message)
        case "device":
            return device_messages.decode(envelope.message)
        case "written":
            return _as_asked(_written(envelope.message))


def _as_written(added: AddRequest) -> AddWritten:
    prompt = added.prompt
    return AddWritten(added.request, len(prompt), (prompt[-2:][0], prompt[-1]), added.max_tokens, added.sampling)


def _as_asked(written: AddWritten) -> AddRequest:
    """For a control loop that looks at a prompt's length and its end alone; the rest is in GPU memory."""
    tail = written.tail[-written.tokens :]
    prompt = (0,) * (written.tokens - len(tail)) + tail
    return AddRequest(written.request, prompt, written.max_tokens, written.sampling)
