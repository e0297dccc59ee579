"""Memory that a NIC may reach: registered regions with keys and bounds, and the local view a machine is handed.

A machine that owns memory (the resident scheduler owns the ring) is handed a `LocalMemory`; its loads, stores and
atomics are the only effects that are immediate (architecture §7). Peers reach the same bytes only by verbs.

`PlainMemory` is one process's memory; an emulated node uses `emulators.shared_memory`, which shares the bytes with
the soft RNIC's process and does its atomics by the CPU. Words are 64 bits, little-endian, 8-byte aligned.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Iterable, Iterator
from enum import IntFlag
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

WORD_MASK = (1 << 64) - 1
_NO_RESERVE = 0x4000 if sys.platform == "linux" else 0
"""MAP_NORESERVE of Linux on x86-64 and arm64, which `mmap` of Python 3.11 does not name."""


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
    """`LocalMemory` within one process: the simulator's and the tests' memory. Raises OSError where it has no place.

    Pages cost nothing until they are written, so that modelled memory may be larger than the host's own: the paper's
    buffers are 80 GB a node. Plain arrays are refused beyond the host's memory, used or not.
    """

    def __init__(self, size: int) -> None:
        pages = mmap.mmap(-1, max(size, 1), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
        self._bytes = np.frombuffer(pages, np.uint8, size)
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


class Access(IntFlag):
    """What peers may do to a region (libibverbs' access flags). The local node may always read and write."""

    LOCAL = 0
    REMOTE_READ = 1
    REMOTE_WRITE = 2
    REMOTE_ATOMIC = 4
    REMOTE = 7


class MemoryRegion(msgspec.Struct, frozen=True):
    """Memory that is registered with a NIC: peers reach byte `address + i` of it with `key`."""

    key: int
    """Remote key, 32 bits."""
    address: int
    """Virtual address of the first byte, 64 bits."""
    size: int
    """Bytes; at most those of `memory`."""
    access: Access
    memory: LocalMemory
    bulk: bool = False
    """True for KV blocks and weights, which a wall-clock wire scales by `byte_scale`."""
    name: str = ""
    """Name in the plan, for people."""


class RegionError(Exception):
    """A request that the region table refuses. The peer's fault: the responder answers with a NAK."""


class UnknownKey(RegionError):
    """No region has this remote key."""

    def __init__(self, key: int) -> None:
        self.key = key
        super().__init__(f"no memory region has the key {key:#x}")


class OutOfBounds(RegionError):
    """The bytes asked for do not all lie in the region of that key."""

    def __init__(self, region: MemoryRegion, address: int, length: int) -> None:
        self.region = region
        self.address = address
        self.length = length
        super().__init__(
            f"{length} bytes at {address:#x} are not within region {region.name or hex(region.key)}, "
            f"which is {region.size} bytes at {region.address:#x}"
        )


class AccessDenied(RegionError):
    """The region does not allow what was asked."""

    def __init__(self, region: MemoryRegion, wanted: Access) -> None:
        self.region = region
        self.wanted = wanted
        super().__init__(f"region {region.name or hex(region.key)} allows {region.access!r}, not {wanted!r}")


class InvalidRegion(Exception):
    """A region that cannot be registered; our fault."""

    def __init__(self, region: MemoryRegion, reason: str) -> None:
        self.region = region
        self.reason = reason
        super().__init__(f"region {region.name or hex(region.key)} cannot be registered: {reason}")


class RegionTable:
    """The registered regions of one node, by remote key."""

    def __init__(self, regions: Iterable[MemoryRegion] = ()) -> None:
        self._regions: dict[int, MemoryRegion] = {}
        for region in regions:
            self.register(region)

    def __iter__(self) -> Iterator[MemoryRegion]:
        return iter(self._regions.values())

    def __len__(self) -> int:
        return len(self._regions)

    def register(self, region: MemoryRegion) -> None:
        """Makes `region` reachable. Raises InvalidRegion for a taken key or numbers that do not fit."""
        if region.key in self._regions:
            raise InvalidRegion(region, f"the key {region.key:#x} is taken")
        if not 0 <= region.key < 1 << 32:
            raise InvalidRegion(region, f"the key {region.key:#x} has more than 32 bits")
        if not 0 <= region.size <= region.memory.size:
            raise InvalidRegion(region, f"its size is {region.size}, but its memory has {region.memory.size} bytes")
        if region.address < 0 or region.address + region.size > 1 << 64:
            raise InvalidRegion(region, f"{region.size} bytes at {region.address:#x} leave the 64-bit address space")
        if region.address % 8:
            raise InvalidRegion(region, f"its address {region.address:#x} is not a multiple of 8, as atomics need")
        self._regions[region.key] = region

    def deregister(self, key: int) -> None:
        """Makes the region of `key` unreachable. Raises UnknownKey."""
        if self._regions.pop(key, None) is None:
            raise UnknownKey(key)

    def find(self, key: int, address: int, length: int, access: Access) -> MemoryRegion:
        """The region of `key`, if it allows `access` to `length` bytes at `address` (IBA 10.6).

        Raises UnknownKey, AccessDenied or OutOfBounds, in this order of checking.
        """
        region = self._regions.get(key)
        if region is None:
            raise UnknownKey(key)
        if int(region.access) & int(access) != int(access):
            raise AccessDenied(region, access)
        if address < region.address or address + length > region.address + region.size:
            raise OutOfBounds(region, address, length)
        return region
