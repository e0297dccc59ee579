"""Work as a Python serving stack has it on the host's CPU: what a host-driven server's pieces of work are made of.

vLLM, SGLang and the Python around TensorRT-LLM spend a step's host time on objects: requests, block tables and batches
are looked up, counted, copied into new lists and dicts, and dropped. A round does that on a heap of small objects in
shuffled order, which does not fit into a core's own caches, and so depends on what neighbours leave of the shared
cache, of the TLB and of the memory's bandwidth, as the paper's table of interference has it (papers/blink summary).
It knows no machine, no request and no clock; how long a round takes is for whoever calls to measure.
"""

from __future__ import annotations

import mmap
import sys
from random import Random

WORKING_SET_BYTES = 8 << 20
"""More than a core's own caches (1 to 2 MiB), so that the work lives from the shared cache; so little that a server's
three processes fit into one of 32 MiB together, and are not each other's neighbours when nobody else is there."""
VISITS = 8
"""Objects that a round visits, one behind another."""
MAPPING_ROUNDS = 128
"""Rounds between two mappings: the allocator of Python takes memory from the kernel and gives it back in arenas."""
MAPPING_BYTES = 64 << 10
_FIELDS = 8
_PAGE = mmap.PAGESIZE
_SEED = 20_260_407


class _Item:
    __slots__ = ("blocks", "next", "uses")

    def __init__(self, number: int) -> None:
        self.next = self
        self.uses = number
        self.blocks = [number] * _FIELDS


class Churn:
    """A heap and the place where the next round begins. Building it takes about 10 ms for each MiB."""

    def __init__(self, working_set_bytes: int = WORKING_SET_BYTES) -> None:
        """Raises ValueError for a working set that is too small for one round."""
        size = sum(map(sys.getsizeof, (_Item(0), [0] * _FIELDS, 1 << 20)))
        count = working_set_bytes // size
        if count < VISITS:
            raise ValueError(f"a working set of {working_set_bytes} bytes; a round needs {VISITS * size}")
        self.working_set_bytes = count * size
        """What the objects take, without the allocator's own."""
        # Numbers of which Python has no object yet: each item counts in an object of its own.
        items = [_Item((1 << 20) + number) for number in range(count)]
        Random(_SEED).shuffle(items)
        for place, item in enumerate(items):
            item.next = items[place - 1]
        self._at = items[0]
        self._count = 0

    def rounds(self, number: int) -> None:
        """Does `number` rounds."""
        item = self._at
        first = self._count + 1
        for count in range(first, first + number):
            seen = []
            for _ in range(VISITS):
                item = item.next
                item.uses += 1
                seen.append(item)
            batch = {each.uses: each.blocks for each in seen}
            batch.clear()
            if count % MAPPING_ROUNDS == 0:
                _map_and_unmap()
        self._at = item
        self._count += number


def _map_and_unmap() -> None:
    with mmap.mmap(-1, MAPPING_BYTES) as arena:
        arena[::_PAGE] = bytes(MAPPING_BYTES // _PAGE)
