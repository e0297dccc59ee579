"""Chunks come from the disk each time: neither the image's file system nor the file below it is held in memory.

3FS has no DRAM cache (DualPath 1.11). Here the storage nodes' "disk" is a file of this host, so that there are two
page caches which could serve a read in its place: that of the image's file system, which O_DIRECT passes by, and that
of the file system in which the image lies, which the loop device must pass by.
"""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from emulators.storage_target import StorageTarget
from tests.topologies.registered import registered
from topologies import storage_image

MIB = 1 << 20
CHUNKS, CHUNK = 48, 512 * 1024
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(storage_image.lacking()), reason=f"no loop mounts here: {storage_image.lacking()}"),
]


@contextmanager
def mounted(folder: Path) -> Iterator[tuple[Path, Path]]:
    """An image that keeps its name, and where it is mounted."""
    image, point = folder / "disk.img", folder / "mnt"
    point.mkdir()
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, 64 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop,noatime", str(image), str(point)], check=True)
    try:
        yield image, point
    finally:
        subprocess.run(["umount", str(point)], check=True)


def in_memory(file: Path) -> int:
    """Bytes of a file that the page cache holds."""
    words = ["fincore", "--bytes", "--noheadings", "--output", "RES", str(file)]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def drop(file: Path) -> None:
    """Has the page cache forget what it holds of a file."""
    subprocess.run(["sync"], check=True)
    descriptor = os.open(file, os.O_RDONLY)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def read_from_devices() -> int:
    """Bytes that this process has had devices read so far."""
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("read_bytes")))


@pytest.mark.parametrize("bypassed", [True, False])
def test_reads_are_of_the_device_and_leave_nothing_in_memory(tmp_path: Path, bypassed: bool) -> None:
    with mounted(tmp_path) as (image, point):
        if bypassed:
            storage_image.bypass_cache(point)
        target = StorageTarget(point, synced=False)
        data = {f"chunk{number}": secrets.token_bytes(CHUNK) for number in range(CHUNKS)}
        for name, image_of_it in data.items():
            target.write(name, 1, image_of_it)
        drop(image)
        held = in_memory(image)
        for _ in range(2):
            before = read_from_devices()
            for name, image_of_it in data.items():
                assert target.read(name) == (1, image_of_it)
            assert read_from_devices() - before >= CHUNKS * CHUNK, "the second reading is no cheaper than the first"
        rise = in_memory(image) - held
        if bypassed:
            assert rise < CHUNKS * CHUNK // 20, "what was read is not in memory below the image either"
        else:
            assert rise >= CHUNKS * CHUNK, "without the loop device's direct I/O every chunk would be"
        target.close()


def test_the_image_of_a_run_is_mounted_so(tmp_path: Path) -> None:
    with registered(tmp_path) as registry:
        point = storage_image.mount_image(registry, "storage0", 16 * MIB, tmp_path)
        try:
            device = point.stat().st_dev
            flag = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/loop/dio").read_text().strip()
            assert flag == "1"
        finally:
            storage_image.unmount(point)
