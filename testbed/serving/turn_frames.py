"""Turns on a byte stream: each message is four bytes of length, big endian, and msgpack.

Between agents and their server on the front network. Prompts and answers are runs of tokens and counts, not text
(`testbed.serving.turns`), so this is no HTTP; a front end that speaks an API for text would stand before the server
and send it these. An emulation sends the frames over TCP, a simulation takes their sizes. Pure: no socket is known.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from testbed.serving.turns import SubmitTurn, TurnAdvanced, TurnFailed

TurnMessage: TypeAlias = SubmitTurn | TurnAdvanced | TurnFailed
"""What goes over the stream: the first towards the server, the others back."""
LARGEST_FRAME = 4 << 20
"""Bytes of one message; a prompt of a hundred thousand runs still fits."""
_HEAD = 4
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(TurnMessage).decode


class BadFrame(Exception):
    """What came is no message: the peer is none of ours, or broken."""


def frame(message: TurnMessage) -> bytes:
    """The bytes of one message. Raises ValueError for one that is too long."""
    body = _encode(message)
    if len(body) > LARGEST_FRAME:
        raise ValueError(f"{type(message).__name__} has {len(body)} bytes, at most {LARGEST_FRAME} go in a frame")
    return len(body).to_bytes(_HEAD, "big") + body


class FrameReader:
    """Cuts what arrives into messages, wherever the pieces end."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = bytearray()

    def take(self, data: bytes) -> list[TurnMessage]:
        """The messages that are complete now. Raises `BadFrame`; after that the stream has lost its place."""
        held = self._held
        held += data
        messages: list[TurnMessage] = []
        place = 0
        while len(held) - place >= _HEAD:
            size = int.from_bytes(held[place : place + _HEAD], "big")
            if size > LARGEST_FRAME:
                raise BadFrame(f"a frame of {size} bytes, at most {LARGEST_FRAME} are sent")
            end = place + _HEAD + size
            if len(held) < end:
                break
            try:
                messages.append(_decode(memoryview(held)[place + _HEAD : end]))
            except msgspec.MsgspecError as fault:
                raise BadFrame(str(fault)) from fault
            place = end
        del held[:place]
        return messages
