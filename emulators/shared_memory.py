"""Memory that a node's software and its soft RNIC both map: a sealed memfd, with atomics done by the CPU.

`SharedMemory` is the `LocalMemory` of an emulated node. Both processes change the same words, so compare-and-swap
and fetch-and-add are the CPU's own, through libatomic's ABI (docs/decisions/0003): sequentially consistent, valid
between processes, no compiler needed. A memfd has no name in any file system, so a process that is killed leaves
nothing in /dev/shm. It is sealed against shrinking: nobody can pull pages from under the other process (SIGBUS).

This file knows nothing of regions, keys or queues.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from typing import Any

import cffi
import numpy as np
import numpy.typing as npt

SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_SEQ_CST = 5
"""Memory order as GCC numbers it (`__ATOMIC_SEQ_CST`): a store and a later load must stay apart."""
_LIBRARY = "libatomic.so.1"


class SharedMemoryError(Exception):
    """Base of what can be wrong with shared memory."""


class AtomicsMissing(SharedMemoryError):
    """The C runtime's atomics are not installed."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{_LIBRARY} cannot be loaded ({reason}); Debian and Ubuntu have it in the package libatomic1")


class NotSealed(SharedMemoryError):
    """A file descriptor that was handed over is no memfd sealed against shrinking, or too short."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"the memory handed over cannot be mapped safely: {reason}")


class WordOutOfRange(SharedMemoryError, IndexError):
    """An offset that is no aligned 64-bit word of the memory."""

    def __init__(self, offset: int, size: int) -> None:
        self.offset = offset
        self.size = size
        super().__init__(f"offset {offset} is no aligned 64-bit word of a memory of {size} bytes")


def _load_library() -> tuple[Any, Any]:
    ffi = cffi.FFI()
    ffi.cdef(
        "uint64_t __atomic_load_8(const void *, int);"
        "void __atomic_store_8(void *, uint64_t, int);"
        "uint64_t __atomic_fetch_add_8(void *, uint64_t, int);"
        "_Bool __atomic_compare_exchange_8(void *, void *, uint64_t, int, int);"
    )
    try:
        return ffi, ffi.dlopen(_LIBRARY)
    except OSError as error:
        raise AtomicsMissing(str(error)) from error


_ffi, _library = _load_library()
_load = _library.__atomic_load_8
_new_cell = _ffi.new
_store = _library.__atomic_store_8
_fetch_add = _library.__atomic_fetch_add_8
_compare_exchange = _library.__atomic_compare_exchange_8
_WORD_MASK = (1 << 64) - 1


class SharedMemory:
    """`testbed.network.memory_region.LocalMemory` over a memfd. Words are 64 bits, little-endian, 8-byte aligned.

    `fd` stays open as long as the memory does, to be handed to another process with SCM_RIGHTS.
    """

    __slots__ = ("_base", "_last_word", "_map", "_pin", "_view", "_words", "fd", "size")

    def __init__(self, fd: int, size: int, *, populate: bool = False) -> None:
        self.fd = fd
        self.size = size
        flags = mmap.MAP_SHARED | (mmap.MAP_POPULATE if populate else 0)
        self._map = mmap.mmap(fd, size, flags=flags, prot=mmap.PROT_READ | mmap.PROT_WRITE)
        self._view = memoryview(self._map)
        self._words = np.frombuffer(self._map, np.uint64, size >> 3)
        self._pin = _ffi.from_buffer("uint8_t[]", self._map)
        self._base = _ffi.cast("uint8_t *", self._pin)
        self._last_word = size - 8

    @classmethod
    def create(cls, size: int, label: str = "region", *, populate: bool = False) -> SharedMemory:
        """New zeroed memory of `size` bytes (at least 8). `label` is only for /proc/<pid>/maps.

        `populate` touches all pages now: a page fault later costs 4 to 6 µs.
        """
        if size < 8:
            raise ValueError(f"size {size} is less than one word")
        fd = os.memfd_create(f"looplane-{label}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SEALS)
            return cls(fd, size, populate=populate)
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def attach(cls, fd: int, size: int) -> SharedMemory:
        """Maps memory that another process made; takes over `fd`. Raises `NotSealed` if it is unsafe."""
        try:
            seals = fcntl.fcntl(fd, fcntl.F_GET_SEALS)
            length = os.fstat(fd).st_size
        except OSError as error:
            os.close(fd)
            raise NotSealed(f"not a memfd ({error.strerror})") from error
        if not seals & fcntl.F_SEAL_SHRINK:
            os.close(fd)
            raise NotSealed("it may still be shrunk")
        if not 8 <= size <= length:
            os.close(fd)
            raise NotSealed(f"{size} bytes were announced, it has {length}")
        return cls(fd, size)

    @property
    def view(self) -> memoryview:
        """The bytes themselves, writable."""
        return self._view

    def words(self, offset: int, count: int) -> npt.NDArray[np.uint64]:
        """A live view of `count` words from `offset` (no copy). Each element is loaded and stored whole."""
        return self._words[offset >> 3 : (offset >> 3) + count]

    def load(self, offset: int) -> int:
        """One word; what its writer wrote before it is seen after it."""
        if offset & 7 or not 0 <= offset <= self._last_word:
            raise WordOutOfRange(offset, self.size)
        return int(_load(self._base + offset, _SEQ_CST))

    def store(self, offset: int, value: int) -> None:
        """Writes one word; no later load overtakes it."""
        if offset & 7 or not 0 <= offset <= self._last_word:
            raise WordOutOfRange(offset, self.size)
        _store(self._base + offset, value, _SEQ_CST)

    def compare_swap(self, offset: int, expected: int, desired: int) -> int:
        """Writes `desired` if the word equals `expected`; returns the word that was there before."""
        if offset & 7 or not 0 <= offset <= self._last_word:
            raise WordOutOfRange(offset, self.size)
        # A cell of its own for each call: threads may change places between filling it and reading it.
        before = _new_cell("uint64_t *", expected)
        _compare_exchange(self._base + offset, before, desired, _SEQ_CST, _SEQ_CST)
        return int(before[0])

    def fetch_add(self, offset: int, addend: int) -> int:
        """Adds modulo 2**64; returns the word that was there before."""
        if offset & 7 or not 0 <= offset <= self._last_word:
            raise WordOutOfRange(offset, self.size)
        return int(_fetch_add(self._base + offset, addend & _WORD_MASK, _SEQ_CST))

    def close(self) -> None:
        """Closes the descriptor and unmaps; views that others still hold keep the pages until they are dropped."""
        if self.fd < 0:
            return
        os.close(self.fd)
        self.fd = -1
        self._last_word = -8
        _ffi.release(self._pin)
        self._words = np.empty(0, np.uint64)
        try:
            self._view.release()
            self._map.close()
        except BufferError:
            # A view is still out; the mapping goes with the last of them.
            return
