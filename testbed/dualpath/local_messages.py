"""What machines of one DualPath node ask of each other: moves of KV, and blocks of storage.

Offsets and lengths are of images (bytes of the node's own memory regions); `testbed.dualpath.blocks` has their true
sizes. Tickets are the asker's own numbers; every question is answered once, whatever goes wrong.
"""

from __future__ import annotations

import msgspec

from testbed.machine import Message, RemoteAddress

TRAFFIC = "traffic"
"""Name of the traffic manager, the same on every node."""
STORAGE = "storage"
"""Name of the storage client on engines' nodes."""
SERVER = "server"
"""Name of the storage server on storage nodes."""
SCHEDULER = "api"
"""Name of the central request scheduler, which is also what agents speak to."""


class Piece(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of one of the node's regions, as one element of a gather list."""

    region: str
    offset: int
    length: int


class Move(Message, frozen=True, kw_only=True):
    """To the traffic manager: gather `pieces` and WRITE them to `remote`. Answered by `Moved`."""

    owner: str
    ticket: int
    hop: str
    """Row of `testbed.dualpath.read_paths.HOPS`."""
    request: str
    layer: int = -1
    """-1 for all layers."""
    interface: str
    """Own port by which it leaves, as cnic3."""
    peer: str
    """Node and port, as de0.cnic1; the own ones for a host-to-device copy by loop-back."""
    remote: RemoteAddress
    pieces: tuple[Piece, ...] = ()
    data: bytes = b""
    """In place of pieces: bytes that are not in a region, as what a disk has read."""


class Moved(Message, frozen=True):
    """From the traffic manager."""

    ticket: int
    failure: str = ""
    """Status of the completion; empty when the bytes are there."""


class Pull(Message, frozen=True, kw_only=True):
    """To the traffic manager: READ `length` bytes at `remote`. Answered by `Pulled`."""

    owner: str
    ticket: int
    hop: str
    request: str
    interface: str
    peer: str
    remote: RemoteAddress
    length: int


class Pulled(Message, frozen=True):
    """From the traffic manager."""

    ticket: int
    data: bytes = b""
    failure: str = ""


class ReadBlocks(Message, frozen=True, kw_only=True):
    """To the storage client: bring Full Blocks into a region of this node, checked. Answered by one `BlocksRead`."""

    owner: str
    ticket: int
    request: str
    hop: str
    blocks: tuple[int, ...]
    """Ids."""
    region: str
    offsets: tuple[int, ...]
    """Where each block's image begins."""
    interface: str = "snic0"


class BlocksRead(Message, frozen=True):
    """From the storage client."""

    ticket: int
    failed: tuple[int, ...] = ()
    """Ids of blocks that no replica could give; the others are in place and their checksums fit."""


class BlockArrived(Message, frozen=True):
    """From the storage client, before `BlocksRead`: so many more of the blocks are in place, for read queues."""

    ticket: int
    blocks: int


class WriteBlocks(Message, frozen=True, kw_only=True):
    """To the storage client: persist Full Blocks that lie in a region of this node. Answered by `BlocksWritten`.

    The region must stay as it is until then: storage nodes READ from it.
    """

    owner: str
    ticket: int
    request: str
    blocks: tuple[int, ...]
    parents: tuple[int, ...]
    """Parent of each block in the trie."""
    region: str
    offsets: tuple[int, ...]
    interface: str = "snic0"


class BlocksWritten(Message, frozen=True):
    """From the storage client."""

    ticket: int
    failed: tuple[int, ...] = ()
    """Ids of blocks that are on no replica."""


class Exchange(Message, frozen=True, kw_only=True):
    """To the machine collective{engine}: take part in one collective of the engine's group. Answered by `Exchanged`.

    All members ask for the same sequence numbers in the same order, one at a time.
    """

    owner: str
    ticket: int
    operation: str
    """dispatch, combine, reduce_scatter or all_gather."""
    sequence: int
    """Grows with each collective of the group."""
    bytes_to_each: tuple[int, ...]
    """Bytes for each member, in the group's order, of images as all lengths here; the own one is not sent."""


class Exchanged(Message, frozen=True):
    """From a collective: the parts of all members have arrived."""

    ticket: int
    failure: str = ""
    """Why they have not; empty when all went well."""
