"""What the real disk adds to the contract of tests/conformance/test_disks.py: its thread, its clock, its faults."""

from __future__ import annotations

import itertools
import os
import select
from pathlib import Path

import pytest

from emulators.storage_target import BLOCK, StorageTarget, takes_direct_io
from emulators.target_disk import TargetDisk
from testbed.dualpath.disk import DAMAGED, DiskDone, DiskRead, DiskWrite
from testbed.machine import Deliver


@pytest.fixture
def target(tmp_path: Path) -> StorageTarget:
    if not takes_direct_io(tmp_path):
        pytest.skip("the temporary folder's file system takes no O_DIRECT")
    return StorageTarget(tmp_path, mounted=False)


def answers(disk: TargetDisk, count: int) -> list[DiskDone]:
    found: list[DiskDone] = []
    while len(found) < count:
        assert select.select([disk.fd], [], [], 30)[0]
        for effect in disk.wake(0):
            assert isinstance(effect, Deliver)
            assert isinstance(effect.message, DiskDone)
            found.append(effect.message)
    return found


def test_times_are_true_ones(target: StorageTarget) -> None:
    ticks = itertools.count(0, 8_000)
    disk = TargetDisk(target, dilation=4.0, clock=lambda: next(ticks))
    for ticket in range(3):
        disk.submit(0, DiskWrite("server", ticket, ticket + 1, 1, b"x", final=True))
    assert [done.time for done in answers(disk, 3)] == [2_000] * 3
    disk.close()


def test_the_loop_is_told_exactly_while_there_are_answers(target: StorageTarget) -> None:
    disk = TargetDisk(target, dilation=1.0)
    assert disk.deadline() is None
    assert not select.select([disk.fd], [], [], 0)[0]
    for ticket in range(20):
        disk.submit(0, DiskRead("server", ticket, 99))
    assert len(answers(disk, 20)) == 20
    assert disk.deadline() is None
    assert not select.select([disk.fd], [], [], 0)[0]
    assert list(disk.wake(0)) == []
    disk.close()


def test_a_damaged_chunk_is_told_and_a_new_version_takes_its_place(target: StorageTarget) -> None:
    disk = TargetDisk(target, dilation=1.0)
    disk.submit(0, DiskWrite("server", 1, 7, 1, b"x" * 5000, final=True))
    answers(disk, 1)
    (path,) = target.path.glob("??/0000000000000007")
    for place in (BLOCK + 10, 2):  # its data, then its header
        with path.open("r+b") as file:
            file.seek(place)
            file.write(b"!")
        os.sync()
        disk.submit(0, DiskRead("server", 2, 7))
        (done,) = answers(disk, 1)
        assert done.failure.startswith(f"{DAMAGED}: 0000000000000007: the ")
    assert disk.committed() == {}
    disk.submit(0, DiskWrite("server", 3, 7, 2, b"new", final=True))
    disk.submit(0, DiskRead("server", 4, 7))
    assert [(done.failure, done.version, done.data) for done in answers(disk, 2)] == [("", 2, b""), ("", 2, b"new")]
    disk.close()


def test_a_device_that_fails_ends_the_node(target: StorageTarget) -> None:
    """No answer would be true; the run then names the node."""
    disk = TargetDisk(target, dilation=1.0)
    for folder in target.path.iterdir():
        folder.rmdir()
    disk.submit(0, DiskWrite("server", 1, 7, 1, b"x"))
    assert select.select([disk.fd], [], [], 30)[0]
    with pytest.raises(FileNotFoundError):
        disk.wake(0)
    disk.close()
