"""What a storage server asks of its disk, and what a disk answers: the accelerator of a storage node.

Two disks keep this contract, held by one suite (tests/conformance): `testbed.dualpath.modelled_disk` for the simulated
clock, and real files without a page cache (`emulators.target_disk`). A disk does one thing after another, in the
order in which it was asked. A chunk has one committed version, which only rises, and drafts beside it.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from testbed.machine import Message
from testbed.units import Nanoseconds

ABSENT = "absent"
"""Failure of a read: there is no such chunk."""
DAMAGED = "damaged"
"""Failure of a read: what is on disk is not what was written. Words about it may follow."""
FULL = "no room"
"""Failure of a write. What was there before is still there."""


class DiskRead(msgspec.Struct, frozen=True):
    """Read the committed version of a chunk."""

    owner: str
    ticket: int
    block: int


class DiskWrite(msgspec.Struct, frozen=True):
    """Put a version on disk, as a draft beside the committed one, or `final`: as the committed one."""

    owner: str
    ticket: int
    block: int
    version: int
    data: bytes
    final: bool = False


class DiskCommit(msgspec.Struct, frozen=True):
    """A draft becomes the committed version, unless there is a higher one: then it is dropped."""

    owner: str
    ticket: int
    block: int
    version: int


class DiskDrop(msgspec.Struct, frozen=True):
    """A draft is given up; nothing happens if there is none."""

    owner: str
    ticket: int
    block: int
    version: int


DiskWork: TypeAlias = DiskRead | DiskWrite | DiskCommit | DiskDrop


class DiskDone(Message, frozen=True):
    """To the owner: the one answer to each work."""

    ticket: int
    version: int = 0
    """Of what was read, or written."""
    data: bytes = b""
    """What was read."""
    failure: str = ""
    time: Nanoseconds = 0
    """Of the disk alone, from the moment at which it began."""
