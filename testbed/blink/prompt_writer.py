"""A burst of prompts as few RDMA WRITEs: prompts that lie side by side travel together, and so do descriptors.

Bulk tokens and control metadata are staged apart (summary, "one-sided RDMA data path"): prompts become WRITEs into
the input arena, descriptors WRITEs into their plane, and nothing mixes the two. Pure functions over places and bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from testbed.blink.arenas import UNIT
from testbed.blink.request_tracker import TrackedRequest
from testbed.blink.ring import TOKEN, RingLayout, token_bytes


class StagedWrite(NamedTuple):
    """Bytes for one WRITE, at an offset of the region."""

    offset: int
    data: bytes


class Burst:
    """Prompts that are written together."""

    def __init__(self, members: Sequence[TrackedRequest], layout: RingLayout) -> None:
        self.members = tuple(members)
        bulk: list[StagedWrite] = []
        control: list[StagedWrite] = []
        self.bytes_of: dict[int, int] = {}
        """Bytes of each request's prompt and descriptor, by its number."""
        for member in members:
            prompt = token_bytes(member.prompt)
            bulk.append(StagedWrite(layout.prompt(member.input_start), prompt))
            descriptor = member.descriptor(zlib.crc32(prompt)).pack()
            control.append(StagedWrite(layout.descriptor(member.slot), descriptor))
            self.bytes_of[member.number] = len(prompt) + len(descriptor)
        # An extent is rounded up to whole units: the gap to its neighbour is its own, zeros may be written there.
        self.writes = (*merge(bulk, (UNIT - 1) * TOKEN), *merge(control, 0))
        self.outstanding = len(self.writes)
        self.failed = False

    @property
    def operations(self) -> int:
        """RDMA operations of the whole burst: its WRITEs and one compare-and-swap a prompt."""
        return len(self.writes) + len(self.members)


def merge(writes: Iterable[StagedWrite], gap: int) -> list[StagedWrite]:
    """Joins writes that are at most `gap` bytes apart; the bytes in between become zero."""
    merged: list[tuple[int, bytearray]] = []
    for offset, data in sorted(writes):
        if merged:
            start, body = merged[-1]
            between = offset - start - len(body)
            if 0 <= between <= gap:
                body += bytes(between)
                body += data
                continue
        merged.append((offset, bytearray(data)))
    return [StagedWrite(offset, bytes(body)) for offset, body in merged]
