"""One suite for every disk of a storage node: the modelled one, and real files on an image that is mounted for it."""

from __future__ import annotations

import select
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from emulators.storage_target import StorageTarget
from emulators.target_disk import TargetDisk
from testbed.clocks.node_host import Accelerator
from testbed.dualpath.blocks import BlockShape, full_image
from testbed.dualpath.disk import ABSENT, FULL, DiskCommit, DiskDone, DiskDrop, DiskRead, DiskWork, DiskWrite
from testbed.dualpath.modelled_disk import ModelledDisk
from testbed.machine import Deliver
from testbed.units import MICROSECOND
from tests.topologies.registered import registered
from topologies import storage_image

MIB = 1 << 20
SHAPE = BlockShape(layers=4, tokens=16, token_layer_bytes=64, scale=2)
LATENCY = 20 * MICROSECOND


@pytest.fixture(scope="module")
def mounted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("images")
    with registered(folder) as registry:
        point = storage_image.mount_image(registry, "storage0", 32 * MIB, folder)
        yield point
        storage_image.unmount(point)


Make = Callable[[], Accelerator]
LOOPS = pytest.mark.skipif(bool(storage_image.lacking()), reason=f"no loop mounts here: {storage_image.lacking()}")


@pytest.fixture(params=["modelled", pytest.param("files", marks=[pytest.mark.root, LOOPS])])
def disk(request: pytest.FixtureRequest) -> Iterator[Accelerator]:
    """A fresh disk with room for little more than 20 MiB."""
    if request.param == "modelled":
        capacity = SHAPE.true_bytes(20 * MIB)
        yield ModelledDisk(SHAPE, bytes_per_s=10**9, latency=LATENCY, capacity_bytes=capacity)
        return
    target = StorageTarget(request.getfixturevalue("mounted"))
    files = TargetDisk(target, dilation=2.0)
    yield files
    files.close()
    for name in target.names():
        target.remove(name)
    target.close()


def ask(disk: Accelerator, *works: DiskWork) -> list[DiskDone]:
    """Asks for all at one moment, and takes the answers in the order in which they come."""
    now = 1_000
    for work in works:
        assert list(disk.submit(now, work)) == []
    done: list[DiskDone] = []
    while len(done) < len(works):
        if isinstance(disk, TargetDisk):
            assert select.select([disk.fd], [], [], 30)[0], "an answer comes"
        deadline = disk.deadline()
        assert deadline is not None
        now = max(now, deadline)
        for effect in disk.wake(now):
            assert isinstance(effect, Deliver)
            assert effect.to == "server"
            assert isinstance(effect.message, DiskDone)
            done.append(effect.message)
    assert disk.deadline() is None
    return done


def image(block: int) -> bytes:
    return full_image(SHAPE, block, SHAPE.tokens)


def test_what_was_written_is_read_with_its_version_and_a_time(disk: Accelerator) -> None:
    wrote, read = ask(disk, DiskWrite("server", 1, 7, 3, image(7), final=True), DiskRead("server", 2, 7))
    assert (wrote.ticket, wrote.version, wrote.failure) == (1, 3, "")
    assert (read.ticket, read.version, read.data, read.failure) == (2, 3, image(7), "")
    assert wrote.time > 0
    assert read.time > 0


def test_a_chunk_that_is_not_there_is_absent(disk: Accelerator) -> None:
    assert [done.failure for done in ask(disk, DiskRead("server", 1, 7))] == [ABSENT]


def test_a_draft_is_read_by_nobody_until_it_is_committed(disk: Accelerator) -> None:
    answers = ask(
        disk,
        DiskWrite("server", 1, 7, 1, image(7), final=True),
        DiskWrite("server", 2, 7, 2, image(7)),
        DiskRead("server", 3, 7),
        DiskCommit("server", 4, 7, 2),
        DiskRead("server", 5, 7),
    )
    assert [(done.ticket, done.version, done.failure) for done in answers] == [
        (1, 1, ""), (2, 2, ""), (3, 1, ""), (4, 2, ""), (5, 2, ""),
    ]  # fmt: skip


def test_a_draft_alone_is_no_chunk_and_a_dropped_one_is_gone(disk: Accelerator) -> None:
    answers = ask(
        disk,
        DiskWrite("server", 1, 7, 1, image(7)),
        DiskRead("server", 2, 7),
        DiskDrop("server", 3, 7, 1),
        DiskCommit("server", 4, 7, 1),
        DiskRead("server", 5, 7),
    )
    assert [done.failure for done in answers] == ["", ABSENT, "", "", ABSENT]


def test_versions_never_go_back(disk: Accelerator) -> None:
    answers = ask(
        disk,
        DiskWrite("server", 1, 7, 1, image(7)),
        DiskWrite("server", 2, 7, 2, image(7)),
        DiskCommit("server", 3, 7, 2),
        DiskCommit("server", 4, 7, 1),
        DiskRead("server", 5, 7),
        DiskWrite("server", 6, 7, 1, image(7), final=True),
        DiskRead("server", 7, 7),
    )
    assert [done.failure for done in answers] == [""] * 7
    assert [done.version for done in answers if done.ticket in (5, 7)] == [2, 2]


def test_answers_come_in_the_order_of_asking(disk: Accelerator) -> None:
    works: list[DiskWork] = [DiskWrite("server", block, block, 1, image(block), final=True) for block in range(1, 20)]
    works += [DiskRead("server", 100 + block, block) for block in range(19, 0, -1)]
    answers = ask(disk, *works)
    assert [done.ticket for done in answers] == [work.ticket for work in works]
    assert [done.data for done in answers[19:]] == [image(block) for block in range(19, 0, -1)]


def test_a_full_disk_refuses_and_keeps_what_it_has(disk: Accelerator) -> None:
    big = bytes(6 * MIB)
    answers = ask(disk, *(DiskWrite("server", block, block, 1, big, final=True) for block in range(1, 8)))
    failures = [done.failure for done in answers]
    kept = failures.index(FULL)
    assert 1 <= kept <= 4
    assert set(failures[:kept]) == {""}
    assert set(failures[kept:]) == {FULL}
    (read,) = ask(disk, DiskRead("server", 50, 1))
    assert (read.failure, read.data) == ("", big)


def test_what_is_no_work_of_a_disk_is_refused(disk: Accelerator) -> None:
    with pytest.raises(TypeError, match="a disk does no str"):
        disk.submit(0, "spin")


def test_a_server_that_starts_finds_what_is_committed(disk: Accelerator) -> None:
    assert isinstance(disk, ModelledDisk | TargetDisk)
    ask(disk, DiskWrite("server", 1, 7, 4, image(7), final=True), DiskWrite("server", 2, 8, 1, image(8)))
    assert disk.committed() == {7: 4}
