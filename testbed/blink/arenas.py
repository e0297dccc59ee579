"""Extents of an arena: who has which run of token places. Owned by the DPU; the GPU only follows descriptors.

Next fit: the search goes on where the last extent ended, so that the prompts of a burst lie side by side and travel
in one WRITE. It knows places, not memory and not requests.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from testbed.machine import MachineError

UNIT = 16
"""Tokens (64 bytes) that an extent is rounded up to. Our choice: a cache line, and fewer odd gaps."""


class ArenaAllocator:
    """Extents of an arena of `size` tokens (a multiple of `UNIT`)."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._starts = [0]
        self._lengths = {0: size}
        self._held: dict[int, int] = {}
        self._hint = 0

    @property
    def free(self) -> int:
        """Tokens in no extent."""
        return sum(self._lengths.values())

    @property
    def held(self) -> int:
        """Tokens in extents, rounding included."""
        return sum(self._held.values())

    def allocate(self, tokens: int) -> int | None:
        """Start of a new extent for `tokens` tokens (at least 1), or None if no gap is large enough."""
        needed = _rounded(tokens)
        count = len(self._starts)
        first = bisect_left(self._starts, self._hint)
        for step in range(count):
            start = self._starts[(first + step) % count]
            if self._lengths[start] >= needed:
                self._carve(start, needed)
                return start
        return None

    def release(self, start: int) -> None:
        """Gives the extent at `start` back. Raises MachineError if there is none."""
        length = self._held.pop(start, None)
        if length is None:
            raise MachineError(f"no extent starts at {start}")
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and self._starts[index] == start + length:
            length += self._lengths.pop(self._starts.pop(index))
        if index and (before := self._starts[index - 1]) + self._lengths[before] == start:
            self._lengths[before] += length
            return
        insort(self._starts, start)
        self._lengths[start] = length

    def _carve(self, start: int, needed: int) -> None:
        left = self._lengths.pop(start) - needed
        index = bisect_left(self._starts, start)
        self._held[start] = needed
        self._hint = start + needed
        if left:
            self._starts[index] = start + needed
            self._lengths[start + needed] = left
        else:
            self._starts.pop(index)


def _rounded(tokens: int) -> int:
    return -(-tokens // UNIT) * UNIT
