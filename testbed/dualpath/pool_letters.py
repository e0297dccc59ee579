"""Letters of a DRAM pool in front of storage: its nodes and its directory (docs/models/dram_pool.md).

A part of `testbed.dualpath.letters`.
"""

from __future__ import annotations

import msgspec

from testbed.dualpath.letter import Letter


class PoolLookup(Letter, frozen=True, tag="pool_lookup"):
    """To the scheduler, which has the directory: where are these blocks, and which slots of mine may keep them?"""

    node: str
    number: int
    """The node's own, of this question."""
    blocks: tuple[int, ...]
    read: bool = True
    """False for new blocks, which are only to be kept."""


class PoolPlace(msgspec.Struct, frozen=True, array_like=True):
    """What the directory says of one block."""

    holder: int
    """Place of the node that holds it among the prefill and then the decode nodes; -1 for storage alone."""
    slot: int
    """Of that node's part of the pool."""
    keep: int
    """Slot of the asker's part in which it is to be kept; -1 for none."""


class PoolPlaces(Letter, frozen=True, tag="pool_places"):
    """The answer. What is told to lie somewhere stays there, and what is kept is kept, until `PoolDone`."""

    number: int
    places: tuple[PoolPlace, ...]


class PoolDone(Letter, frozen=True, tag="pool_done"):
    """To the scheduler: the reads of a question are over, and these blocks now lie in the slots kept for them."""

    node: str
    number: int
    kept: tuple[int, ...]
