"""What the processes of a host-driven server say to each other: API server, engine core, worker.

Each is a machine of the node ("api", "core", "worker"), and may be an operating-system process of its own, so every
message is tagged and can be carried as bytes. What the worker and the device say is `testbed.serving.device_messages`.
Requests are called by the server's number for them.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from testbed.machine import Message
from testbed.serving.engine import Lane
from testbed.serving.graph_cache import Graph
from testbed.serving.requests import Sampling


class AddRequest(Message, frozen=True, tag="add"):
    """API to core: a tokenised request."""

    request: int
    prompt: tuple[int, ...]
    """At least one token."""
    max_tokens: int
    sampling: Sampling


class WithdrawRequest(Message, frozen=True, tag="withdraw"):
    """API to core: nobody waits for this request's tokens any more. No answer; what has crossed it is dropped."""

    request: int


class StepOutput(Message, frozen=True, tag="output"):
    """Core to API: the tokens of one step, one for each request of it that is still wanted."""

    requests: tuple[int, ...]
    tokens: tuple[int, ...]
    reasons: tuple[str | None, ...]
    """stop or length where the token is the request's last, else None."""


class RequestsFailed(Message, frozen=True, tag="failed"):
    """Core to API: these requests get no (more) tokens."""

    requests: tuple[int, ...]
    reason: str
    """As `testbed.serving.requests.Refused`."""
    detail: str


class RunStep(Message, frozen=True, tag="run"):
    """Core to worker: launch this step when those before it have ended."""

    launch: int
    graph: Graph
    lanes: tuple[Lane, ...]


class StepTaken(Message, frozen=True, tag="taken"):
    """Worker to core: the tokens that the step's sampling left, one a lane."""

    launch: int
    tokens: tuple[int, ...]


class StepLost(Message, frozen=True, tag="lost"):
    """Worker to core: the device refused or lost the step, and runs none after it."""

    launch: int
    code: str
    detail: str


HostMessage: TypeAlias = (
    AddRequest | WithdrawRequest | StepOutput | RequestsFailed | RunStep | StepTaken | StepLost
)
"""All of them."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[HostMessage] = msgspec.msgpack.Decoder(HostMessage)


def encode(message: HostMessage) -> bytes:
    """The message as bytes."""
    return _ENCODER.encode(message)


def decode(data: bytes) -> HostMessage:
    """The message of these bytes. Raises msgspec.MsgspecError."""
    return _DECODER.decode(data)
