"""Trajectories as one line of text, so that an experiment, a plan and a run folder can carry recorded sessions along.

msgpack, zlib and base64; with them the rules by which they were read, so that nobody takes them for what other rules
would have given.
"""

from __future__ import annotations

import base64
import binascii
import zlib

import msgspec

from testbed.workload.trajectories import Trajectory

LONGEST = 16 << 20
"""Characters of the text."""
_LARGEST = 256 << 20
"""Bytes when unpacked; text that claims more is none of ours."""


class Packed(msgspec.Struct, frozen=True, array_like=True):
    """What a text holds."""

    rules: list[str]
    sessions: list[Trajectory]


def pack(rules: list[str], sessions: list[Trajectory]) -> str:
    """The text. Raises ValueError if it is longer than `LONGEST`."""
    text = base64.b64encode(zlib.compress(msgspec.msgpack.encode(Packed(rules, sessions)), 9)).decode()
    if len(text) > LONGEST:
        raise ValueError(f"the sessions make {len(text)} characters, at most {LONGEST} go along; take fewer of them")
    return text


def unpack(text: str) -> Packed:
    """What is in the text. Raises ValueError if it is none of `pack`'s."""
    try:
        opened = zlib.decompressobj()
        data = opened.decompress(base64.b64decode(text[: LONGEST + 1], validate=True), _LARGEST)
        if not opened.eof:
            raise ValueError("it is cut off, or too large")
        return msgspec.msgpack.decode(data, type=Packed)
    except (binascii.Error, zlib.error, msgspec.MsgspecError, ValueError) as fault:
        raise ValueError(f"packed sessions cannot be read: {fault}") from fault
