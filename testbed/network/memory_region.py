"""Memory that a NIC may reach: registered regions with keys and bounds, and the local view a machine is handed.

A machine that owns memory (the resident scheduler owns the ring) is handed a `LocalMemory`; its loads, stores and
atomics are the only effects that are immediate (architecture §7). Peers reach the same bytes only by verbs.

`PlainMemory` is one process's memory; an emulated node uses `emulators.shared_memory`, which shares the bytes with
the soft RNIC's process and does its atomics by the CPU. Words are 64 bits, little-endian, 8-byte aligned.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

WORD_MASK = (1 << 64) - 1


class LocalMemory(Protocol):
    """Bytes of one region as its own node sees them. Offsets are from the region's start."""

    @property
    def size(self) -> int:
        """Size in bytes."""
        ...

    @property
    def view(self) -> memoryview:
        """The bytes themselves, writable, format 'B'."""
        ...

    def words(self, offset: int, count: int) -> npt.NDArray[np.uint64]:
        """A live numpy view of `count` 64-bit words from `offset` (no copy)."""
        ...

    def load(self, offset: int) -> int:
        """One 64-bit word."""
        ...

    def store(self, offset: int, value: int) -> None:
        """Writes one 64-bit word; a reader sees the old or the new one, never a mixture."""
        ...

    def compare_swap(self, offset: int, expected: int, desired: int) -> int:
        """Writes `desired` if the word equals `expected`; returns the word that was there before."""
        ...

    def fetch_add(self, offset: int, addend: int) -> int:
        """Adds modulo 2**64; returns the word that was there before."""
        ...


class PlainMemory:
    """`LocalMemory` within one process: the simulator's and the tests' memory."""

    def __init__(self, size: int) -> None:
        self._bytes = np.zeros(size, np.uint8)
        self._view = memoryview(self._bytes.data).cast("B")
        self._words = self._bytes[: size & ~7].view(np.uint64)

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self._view)

    @property
    def view(self) -> memoryview:
        """The bytes themselves."""
        return self._view

    def words(self, offset: int, count: int) -> npt.NDArray[np.uint64]:
        """A live view of `count` words from `offset`."""
        return self._words[offset >> 3 : (offset >> 3) + count]

    def load(self, offset: int) -> int:
        """One 64-bit word."""
        return int(self._words[offset >> 3])

    def store(self, offset: int, value: int) -> None:
        """Writes one 64-bit word."""
        self._words[offset >> 3] = value

    def compare_swap(self, offset: int, expected: int, desired: int) -> int:
        """Compare-and-swap; returns the word before."""
        before = int(self._words[offset >> 3])
        if before == expected:
            self._words[offset >> 3] = desired
        return before

    def fetch_add(self, offset: int, addend: int) -> int:
        """Fetch-and-add; returns the word before."""
        before = int(self._words[offset >> 3])
        self._words[offset >> 3] = (before + addend) & WORD_MASK
        return before
