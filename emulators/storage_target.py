"""A storage node's chunks in a folder of a mounted file system: O_DIRECT, synced, versioned, with a checksum each.

The storage port of hardware in the loop: the folder is on a file-backed image that the run has made for itself
(`topologies.storage_image`) or on what a user has mounted, an NVMe disk or 3FS through FUSE. Both are opened alike and
keep the same conformance suite. A chunk is a file of one header block and its data in whole blocks, so that every
transfer is aligned and passes no page cache. A write is a new file that takes the old one's name once it is on disk
(3FS replaces chunks by version in the same way), so a reader sees one version or the other, also after a crash.

It knows no clock, no run and no network; it decides nothing about who may read what.
"""

from __future__ import annotations

import errno
import mmap
import os
import re
import struct
import zlib
from contextlib import suppress
from pathlib import Path

BLOCK = 4096
"""Bytes to which transfers are aligned: no disk that we know asks for more."""
_MAGIC = b"LPCHUNK1"
_HEADER = struct.Struct("<8sQQII")
"""Magic, version, length, CRC-32 of the data, CRC-32 of this header with 0 in its place."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
_SPREAD = 256


class StorageFault(Exception):
    """Base of what can be wrong with a target or a chunk. One line."""


class BadTarget(StorageFault):
    """The folder cannot hold chunks."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class NoChunk(StorageFault):
    """There is no chunk of that name."""


class StaleVersion(StorageFault):
    """A write whose version is not above the one that is there."""


class DamagedChunk(StorageFault):
    """What is on disk is not what was written."""


class StorageFull(StorageFault):
    """The file system has no room; what was there before is still there."""


class StorageTarget:
    """Chunks under one folder. Not for several threads; several processes may read."""

    def __init__(self, path: Path, *, room: int = 0, mounted: bool = True, synced: bool = True) -> None:
        """Opens the folder. `room` bytes must be free; with `mounted` it may not be on the root's file system.

        Without `synced`, writes are on the device when they return, but neither the device nor the file system's own
        records are flushed: enough for an image that does not outlive its run. Raises `BadTarget`.
        """
        self.path = path
        self._synced = synced
        _check(path, room, mounted=mounted)
        self._buffer = mmap.mmap(-1, BLOCK)  # anonymous memory is aligned to pages, as O_DIRECT asks
        for number in range(_SPREAD):
            (path / f"{number:02x}").mkdir(exist_ok=True)

    def write(self, name: str, version: int, data: bytes | memoryview) -> None:
        """Puts a chunk on disk, whole, and returns once it is there.

        Raises `StaleVersion`, `StorageFull`, ValueError for a name that is none, OSError.
        """
        self._check_version(name, version)
        final = self._file(name)
        draft = final.with_name(f"{final.name}.new")
        self._put(draft, name, version, data)
        draft.rename(final)
        self._sync_folder(final.parent)

    def write_draft(self, name: str, version: int, data: bytes | memoryview) -> None:
        """Puts a version beside the chunk, whose own one stays, until `commit` or `drop`.

        Its bytes are on disk when this returns, its name perhaps only after `commit`. Raises as `write`.
        """
        self._check_version(name, version)
        self._put(self._draft(name, version), name, version, data)

    def commit(self, name: str, version: int) -> None:
        """A draft becomes the chunk. Raises `StaleVersion`, `NoChunk` without such a draft, OSError."""
        self._check_version(name, version)
        final = self._file(name)
        try:
            self._draft(name, version).rename(final)
        except FileNotFoundError:
            raise NoChunk(f"{name}: there is no draft of version {version}") from None
        self._sync_folder(final.parent)

    def drop(self, name: str, version: int) -> None:
        """A draft is given up; nothing happens if there is none."""
        self._draft(name, version).unlink(missing_ok=True)

    def _check_version(self, name: str, version: int) -> None:
        there = self.version(name)
        if there is not None and version <= there:
            raise StaleVersion(f"{name}: version {version} is not above {there}, which is there")

    def _draft(self, name: str, version: int) -> Path:
        final = self._file(name)
        return final.with_name(f"{final.name}.v{version}.new")

    def _put(self, draft: Path, name: str, version: int, data: bytes | memoryview) -> None:
        """A file with header and data, on disk. Raises `StorageFull`, OSError."""
        size = BLOCK + _whole_blocks(len(data))
        buffer = self._room(size)
        buffer[:BLOCK] = _header(version, data)
        buffer[BLOCK : BLOCK + len(data)] = data
        buffer[BLOCK + len(data) : size] = bytes(size - BLOCK - len(data))
        try:
            _write_whole(draft, memoryview(buffer)[:size], synced=self._synced)
        except OSError as fault:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
            if fault.errno in (errno.ENOSPC, errno.EDQUOT):
                raise StorageFull(f"{self.path}: no room for {size} bytes of {name}") from fault
            raise

    def read(self, name: str) -> tuple[int, bytes]:
        """Version and data of a chunk, checked. Raises `NoChunk`, `DamagedChunk`, OSError."""
        file = self._open(name)
        try:
            size = _whole_blocks(os.fstat(file).st_size)
            buffer = self._room(max(size, BLOCK))
            got = os.readv(file, [memoryview(buffer)[:size]])
            version, length, checksum = self._take_header(name, bytes(buffer[:BLOCK]), got)
        finally:
            os.close(file)
        data = bytes(buffer[BLOCK : BLOCK + length])
        if got < BLOCK + length or zlib.crc32(data) != checksum:
            raise DamagedChunk(f"{name}: the data of version {version} do not match their checksum")
        return version, data

    def version(self, name: str) -> int | None:
        """Version of a chunk; None if there is none. Raises `DamagedChunk`, OSError."""
        try:
            file = self._open(name)
        except NoChunk:
            return None
        try:
            got = os.readv(file, [memoryview(self._buffer)[:BLOCK]])
            return self._take_header(name, bytes(self._buffer[:BLOCK]), got)[0]
        finally:
            os.close(file)

    def remove(self, name: str) -> None:
        """Removes a chunk. Raises `NoChunk`."""
        try:
            self._file(name).unlink()
        except FileNotFoundError:
            raise NoChunk(f"{name}: there is no such chunk") from None
        self._sync_folder(self._file(name).parent)

    def names(self) -> list[str]:
        """Every chunk, in order of its name."""
        return sorted(path.name for path in self.path.glob("??/*") if not path.name.endswith(".new"))

    def close(self) -> None:
        """Lets go of the buffer."""
        self._buffer.close()

    def _file(self, name: str) -> Path:
        if not _NAME.fullmatch(name) or name.endswith(".new"):
            raise ValueError(f"{name!r} is no chunk's name")
        return self.path / f"{zlib.crc32(name.encode()) % _SPREAD:02x}" / name

    def _open(self, name: str) -> int:
        try:
            return os.open(self._file(name), os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
        except FileNotFoundError:
            raise NoChunk(f"{name}: there is no such chunk") from None

    def _sync_folder(self, path: Path) -> None:
        if not self._synced:
            return
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _room(self, size: int) -> mmap.mmap:
        if len(self._buffer) < size:
            self._buffer = mmap.mmap(-1, size)
        return self._buffer

    def _take_header(self, name: str, block: bytes, got: int) -> tuple[int, int, int]:
        magic, version, length, checksum, own = _HEADER.unpack_from(block)
        if got < BLOCK or magic != _MAGIC or zlib.crc32(_HEADER.pack(magic, version, length, checksum, 0)) != own:
            raise DamagedChunk(f"{name}: the header is damaged")
        return version, length, checksum


def takes_direct_io(folder: Path) -> bool:
    """Whether a file in `folder` can be written with O_DIRECT; tried with one that is gone afterwards."""
    try:
        file = os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_DIRECT, 0o600)
    except OSError:
        return _takes_direct_io_by_name(folder)
    os.close(file)
    return True


def _takes_direct_io_by_name(folder: Path) -> bool:
    """For file systems without O_TMPFILE, as FUSE has none."""
    path = folder / f".looplane-probe-{os.getpid()}"
    try:
        file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_DIRECT, 0o600)
    except OSError:
        return False
    finally:
        with suppress(OSError):
            path.unlink(missing_ok=True)
    os.close(file)
    return True


def _check(path: Path, room: int, *, mounted: bool) -> None:
    try:
        facts = path.stat()
        if not path.is_dir():
            raise BadTarget(path, "is no folder")
        if mounted and facts.st_dev == Path("/").stat().st_dev:
            raise BadTarget(path, "lies on the root's file system: mount the target there first")
        if not os.access(path, os.W_OK) or os.statvfs(path).f_flag & os.ST_RDONLY:
            raise BadTarget(path, "cannot be written to")
        free = os.statvfs(path).f_bavail * os.statvfs(path).f_frsize
    except OSError as fault:
        raise BadTarget(path, fault.strerror or str(fault)) from fault
    if free < room:
        raise BadTarget(path, f"has {free} bytes free, {room} are needed")
    if not takes_direct_io(path):
        raise BadTarget(path, "its file system takes no O_DIRECT (tmpfs and some others do not)")


def _header(version: int, data: bytes | memoryview) -> bytes:
    checksum = zlib.crc32(data)
    own = zlib.crc32(_HEADER.pack(_MAGIC, version, len(data), checksum, 0))
    return _HEADER.pack(_MAGIC, version, len(data), checksum, own).ljust(BLOCK, b"\0")


def _whole_blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def _write_whole(path: Path, view: memoryview, *, synced: bool) -> None:
    file = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_DIRECT | os.O_CLOEXEC, 0o600)
    try:
        done = 0
        while done < len(view):
            done += os.write(file, view[done:])
        if synced:
            os.fsync(file)
    finally:
        os.close(file)
