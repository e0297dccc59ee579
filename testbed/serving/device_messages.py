"""What a control loop says to a device that it launches graphs on, and the device's answers; over PCIe or a fabric.

The messages of a host-launched (or DPU-launched) GPU: one launch runs one captured graph with its input tensors, one
answer brings the sampled tokens. They are tagged, so that a link can carry them as bytes.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from testbed.machine import Message
from testbed.serving.engine import Lane
from testbed.serving.graph_cache import Graph

ON_DEVICE = (-1, -1)
"""Tail of a lane whose last tokens only the device has: those that the steps launched before leave."""


class LaunchStep(Message, frozen=True, tag="launch"):
    """To the device: run this graph after those launched before it."""

    launch: int
    graph: Graph
    lanes: tuple[Lane, ...]


class StepDone(Message, frozen=True, tag="done"):
    """From the device: the tokens that the graph's sampling left, one a lane."""

    launch: int
    tokens: tuple[int, ...]


class StepFailed(Message, frozen=True, tag="failed"):
    """From the device: the graph was refused or lost."""

    launch: int
    code: str
    detail: str


DeviceMessage: TypeAlias = LaunchStep | StepDone | StepFailed
"""All of them."""

_ENCODER = msgspec.msgpack.Encoder()
_DECODER: msgspec.msgpack.Decoder[DeviceMessage] = msgspec.msgpack.Decoder(DeviceMessage)


def encode(message: DeviceMessage) -> bytes:
    """The message as bytes."""
    return _ENCODER.encode(message)


def decode(data: bytes) -> DeviceMessage:
    """The message of these bytes. Raises msgspec.MsgspecError."""
    return _DECODER.decode(data)
