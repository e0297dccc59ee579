"""Places in the staging area: first fit, freed in any order, neighbours joined at once.

First fit keeps using the same few pages at the front, which are warm in cache and already faulted in. Pure.
"""

from __future__ import annotations

from bisect import bisect_left

ALIGNMENT = 64
"""Extents start on cache lines of their own."""


class StagingArea:
    """Hands out extents of `size` bytes of memory that somebody else owns."""

    __slots__ = ("_lengths", "_starts", "size")

    def __init__(self, size: int) -> None:
        self.size = size & -ALIGNMENT
        self._starts = [0] if self.size else []
        self._lengths = [self.size] if self.size else []

    def take(self, length: int) -> int | None:
        """Offset of `length` free bytes, or None if no stretch is long enough now."""
        need = max(ALIGNMENT, (length + ALIGNMENT - 1) & -ALIGNMENT)
        lengths = self._lengths
        for index, free in enumerate(lengths):
            if free >= need:
                start = self._starts[index]
                if free == need:
                    del self._starts[index], lengths[index]
                else:
                    self._starts[index] = start + need
                    lengths[index] = free - need
                return start
        return None

    def give_back(self, offset: int, length: int) -> None:
        """Frees what `take(length)` returned. Raises ValueError if it is (partly) free already."""
        need = max(ALIGNMENT, (length + ALIGNMENT - 1) & -ALIGNMENT)
        starts, lengths = self._starts, self._lengths
        index = bisect_left(starts, offset)
        before = index > 0 and starts[index - 1] + lengths[index - 1]
        if (before and before > offset) or (index < len(starts) and starts[index] < offset + need):
            raise ValueError(f"staging {offset}+{length} is given back twice")
        if offset < 0 or offset + need > self.size:
            raise ValueError(f"staging {offset}+{length} lies outside {self.size}")
        if index < len(starts) and starts[index] == offset + need:
            need += lengths[index]
            del starts[index], lengths[index]
        if before and before == offset:
            lengths[index - 1] += need
        else:
            starts.insert(index, offset)
            lengths.insert(index, need)

    @property
    def free(self) -> int:
        """Bytes that are free."""
        return sum(self._lengths)
