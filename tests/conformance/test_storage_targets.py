"""Storage targets keep one contract: an image that a run makes, and a folder of a file system that was mounted before.

Where this machine has no disk of its own to mount, a loop mount made by hand stands for the user's.
"""

from __future__ import annotations

import errno
import os
import secrets
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulators.storage_target import (
    BLOCK,
    BadTarget,
    DamagedChunk,
    NoChunk,
    StaleVersion,
    StorageFull,
    StorageTarget,
    takes_direct_io,
)
from tests.topologies.registered import registered
from topologies import reaper, storage_image
from topologies.registry import ProcessMark, RunRecord, RunRegistry, boot_id

MIB = 1 << 20
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(storage_image.lacking()), reason=f"no loop mounts here: {storage_image.lacking()}"),
]


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[RunRegistry]:
    with registered(tmp_path) as found:
        yield found


@pytest.fixture(params=["made by the run", "mounted by the user"])
def folder(request: pytest.FixtureRequest, registry: RunRegistry, tmp_path: Path) -> Iterator[Path]:
    if request.param == "made by the run":
        point = storage_image.mount_image(registry, "storage0", 32 * MIB, tmp_path)
        assert list(tmp_path.iterdir()) == [], "the image has no name"
        yield point
        storage_image.unmount(point)
        return
    image, point = tmp_path / "disk.img", tmp_path / "mnt"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(32 * MIB)
    subprocess.run(["mkfs.ext4", "-q", "-F", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)
    inner = point / "chunks"
    inner.mkdir()
    yield inner
    subprocess.run(["umount", str(point)], check=True)


@pytest.fixture
def target(folder: Path) -> Iterator[StorageTarget]:
    made = StorageTarget(folder)
    yield made
    made.close()


@pytest.mark.parametrize("size", [0, 1, BLOCK - 1, BLOCK, BLOCK + 1, MIB])
def test_what_was_written_is_read(target: StorageTarget, size: int) -> None:
    data = secrets.token_bytes(size)
    target.write("chunk-1", 7, data)
    assert target.read("chunk-1") == (7, data)
    again = StorageTarget(target.path)
    assert again.read("chunk-1") == (7, data)
    again.close()


def test_versions_only_rise_and_the_old_data_stay_until_then(target: StorageTarget) -> None:
    target.write("a", 2, b"two")
    for stale in (1, 2):
        with pytest.raises(StaleVersion, match=rf"a: version {stale} is not above 2"):
            target.write("a", stale, b"old")
    target.write("a", 3, b"three")
    target.write("b", 1, b"b")
    assert (target.read("a"), target.version("b"), target.version("c")) == ((3, b"three"), 1, None)
    assert target.names() == ["a", "b"]
    target.remove("a")
    with pytest.raises(NoChunk, match="a: there is no such chunk"):
        target.read("a")
    with pytest.raises(NoChunk):
        target.remove("a")


@pytest.mark.parametrize("offset", [0, 9, 17, 31, BLOCK, BLOCK + 4000])
def test_a_flipped_bit_is_found(target: StorageTarget, offset: int) -> None:
    target.write("a", 1, secrets.token_bytes(5000))
    (path,) = target.path.glob("??/a")
    with path.open("r+b") as file:
        file.seek(offset)
        byte = file.read(1)[0]
        file.seek(offset)
        file.write(bytes([byte ^ 4]))
    os.sync()
    with pytest.raises(DamagedChunk):
        target.read("a")


def test_a_chunk_that_was_cut_short_is_damaged_not_wrong(target: StorageTarget) -> None:
    target.write("a", 1, bytes(3 * BLOCK))
    (path,) = target.path.glob("??/a")
    os.truncate(path, 2 * BLOCK)
    with pytest.raises(DamagedChunk, match="do not match"):
        target.read("a")


def test_a_full_disk_keeps_what_was_there(target: StorageTarget) -> None:
    target.write("a", 1, b"kept")
    with pytest.raises(StorageFull, match="no room for"):
        target.write("a", 2, bytes(64 * MIB))
    assert target.read("a") == (1, b"kept")
    assert target.names() == ["a"]
    target.write("b", 1, bytes(4 * MIB))


@pytest.mark.parametrize("name", ["", "../a", "a/b", ".hidden", "a.new", "x" * 101])
def test_a_name_that_is_a_path_is_refused(target: StorageTarget, name: str) -> None:
    with pytest.raises(ValueError, match="is no chunk's name"):
        target.write(name, 1, b"")


def test_transfers_pass_no_page_cache(target: StorageTarget) -> None:
    """A read after a write reaches the device: the loop device's counter of read sectors rises."""
    target.write("a", 1, secrets.token_bytes(MIB))
    before = sectors_read(target.path)
    target.read("a")
    assert sectors_read(target.path) - before >= MIB // 512


def sectors_read(folder: Path) -> int:
    device = folder.stat().st_dev
    path = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat")
    return int(path.read_text().split()[2])


def test_what_cannot_hold_chunks_is_refused_in_one_line(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadTarget, match=r"mnt-none: No such file or directory$"):
        StorageTarget(tmp_path / "mnt-none")
    with pytest.raises(BadTarget, match="lies on the root's file system: mount the target there first"):
        StorageTarget(tmp_path)
    with pytest.raises(BadTarget, match=r"has \d+ bytes free, 1073741824 are needed"):
        StorageTarget(folder, room=1 << 30)
    file = folder / "file"
    file.touch()
    with pytest.raises(BadTarget, match="is no folder"):
        StorageTarget(file)
    subprocess.run(["mount", "-o", "bind", str(folder), str(folder)], check=True)
    subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
    try:
        with pytest.raises(BadTarget, match="cannot be written to"):
            StorageTarget(folder)
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_file_system_without_direct_io_is_refused(tmp_path: Path) -> None:
    """ramfs has none; tmpfs has some since Linux 6.6, and is then as good as any other. Nothing else is wrong here:
    an ordinary file can be written, and no room is asked for, of which ramfs reports none.
    """
    point = tmp_path / "ram"
    point.mkdir()
    subprocess.run(["mount", "-t", "ramfs", "ramfs", str(point)], check=True)
    try:
        (point / "plain").write_bytes(bytes(2 * BLOCK))
        with pytest.raises(OSError, match="Invalid argument") as fault:
            os.open(point / "plain", os.O_RDWR | os.O_DIRECT)
        assert fault.value.errno == errno.EINVAL
        assert not takes_direct_io(point)
        with pytest.raises(BadTarget, match=r"ram: its file system takes no O_DIRECT"):
            StorageTarget(point)
        assert [path.name for path in point.iterdir()] == ["plain"], "the look left nothing"
    finally:
        subprocess.run(["umount", str(point)], check=True)


def test_reaper_takes_the_image_of_a_dead_run_down(tmp_path: Path) -> None:
    registry = RunRegistry(secrets.token_hex(3))
    dead = ProcessMark(2**22 - 1, 1, boot_id(), "bench")
    registry.create(RunRecord(registry.label, str(tmp_path), dead, "namespace"))
    point = storage_image.mount_image(registry, "storage0", 32 * MIB, tmp_path)
    loops = subprocess.run(["losetup", "-n", "-l", "-O", "NAME"], capture_output=True, text=True, check=True).stdout
    reaped = reaper.reap(only=registry.label)
    assert reaped.failed == ()
    assert f"mount {point} of run {registry.label}" in [str(leftover) for leftover in reaped.removed]
    assert not registry.folder.exists()
    after = subprocess.run(["losetup", "-n", "-l", "-O", "NAME"], capture_output=True, text=True, check=True).stdout
    assert len(after.split()) == len(loops.split()) - 1, "the loop device went with the mount"


def test_an_image_that_cannot_be_made_leaves_nothing(registry: RunRegistry, tmp_path: Path) -> None:
    with pytest.raises(storage_image.ImageFault, match="is too small; at least 16777216 are needed"):
        storage_image.mount_image(registry, "storage0", 1000, tmp_path)
    with pytest.raises(storage_image.ImageFault, match=r"No space left|File too large"):
        storage_image.mount_image(registry, "storage0", 1 << 50, tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert list((registry.folder / storage_image.FOLDER).iterdir()) == []
