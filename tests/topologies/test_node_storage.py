"""Folders of storage nodes: images, folders that were lent, what is refused, what a dead run leaves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from testbed.experiment.hardware import Hardware, StorageMount
from testbed.experiment.plan import NodePlan, Plan
from tests.topologies.registered import registered
from topologies import node_storage, reaper, storage_image
from topologies.node_storage import NodeStorage
from topologies.registry import ProcessMark, RunRecord, RunRegistry, boot_id

MIB = 1 << 20
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(bool(storage_image.lacking()), reason=f"no loop mounts here: {storage_image.lacking()}"),
]


def planned(demo_plan: Plan, **lent: str) -> Plan:
    """The demonstration with two storage nodes."""
    nodes = tuple(NodePlan(f"storage{number}", "storage", "hardware", 128) for number in range(2))
    return msgspec.structs.replace(
        demo_plan,
        nodes=(*demo_plan.nodes, *nodes),
        parameters={**demo_plan.parameters, "storage_image_mib": 32},
        hardware=Hardware(storage={name: StorageMount(path) for name, path in lent.items()}),
    )


@pytest.fixture
def registry(demo_plan: Plan, tmp_path: Path) -> Iterator[RunRegistry]:
    with registered(tmp_path, demo_plan.label) as found:
        yield found


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """What a user has mounted."""
    with registered(tmp_path) as other:
        point = storage_image.mount_image(other, "storage0", 32 * MIB, tmp_path)
        yield point
        storage_image.unmount(point)


def test_each_storage_node_has_an_image_of_its_own_of_the_planned_size(
    demo_plan: Plan, registry: RunRegistry, tmp_path: Path
) -> None:
    plan = planned(demo_plan)
    storage = NodeStorage(plan, registry)
    storage.open(tmp_path)
    folders = {node.name: storage.folder(node) for node in plan.nodes}
    assert {name for name, folder in folders.items() if folder is not None} == {"storage0", "storage1"}
    for name in ("storage0", "storage1"):
        folder = folders[name]
        assert folder is not None
        assert folder.is_mount()
        facts = os.statvfs(folder)
        assert 24 * MIB < facts.f_blocks * facts.f_frsize <= 32 * MIB
        assert facts.f_files * 4096 >= facts.f_blocks * facts.f_frsize, "as many small files as there are blocks"
    assert list(tmp_path.iterdir()) == []
    storage.close()
    assert not any(folder.exists() for folder in folders.values() if folder is not None)


def test_a_lent_folder_is_used_by_a_folder_of_the_runs_own(
    demo_plan: Plan, registry: RunRegistry, disk: Path, tmp_path: Path
) -> None:
    (disk / "precious").write_text("the user's")
    plan = planned(demo_plan, storage1=str(disk))
    assert node_storage.refusals(plan) == []
    storage = NodeStorage(plan, registry)
    storage.open(tmp_path)
    folder = storage.folder(plan.node("storage1"))
    assert folder == disk / f"looplane-{plan.label}-storage1"
    assert folder.is_dir()
    (folder / "00").mkdir()
    (folder / "00" / "chunk").write_bytes(b"of the run")
    storage.close()
    assert sorted(path.name for path in disk.iterdir()) == ["lost+found", "precious"]


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/no/such/place", "No such file or directory"),
        ("/etc/hostname", "is no folder"),
        ("/usr", "lies on the root's file system: mount the target there first"),
    ],
)
def test_a_folder_that_cannot_hold_chunks_is_refused_in_one_line(demo_plan: Plan, path: str, words: str) -> None:
    (line,) = node_storage.refusals(planned(demo_plan, storage0=path))
    assert line.startswith(f'hardware.storage.storage0.path: "{path}": ')
    assert line.endswith(words)


def test_what_a_killed_run_has_lent_is_cleared_by_the_reaper_and_nothing_else(
    demo_plan: Plan, disk: Path, tmp_path: Path
) -> None:
    """Faults A1, A2, A8: by the label alone, also where it is not ours but the user's."""
    plan = planned(demo_plan, storage1=str(disk))
    dead = RunRegistry(plan.label)
    dead.create(RunRecord(plan.label, str(tmp_path), ProcessMark(2**22 - 1, 1, boot_id(), "bench"), "namespace"))
    NodeStorage(plan, dead).open(tmp_path)
    (disk / "looplane-000000-storage1").mkdir()
    noted = dead.folder / "chunks" / "storage9"
    noted.write_text(str(disk / "looplane-000000-storage1"))
    reaped = reaper.reap(only=plan.label)
    assert reaped.failed == ()
    found = [str(leftover) for leftover in reaped.removed]
    assert f"folder {disk / f'looplane-{plan.label}-storage1'} of run {plan.label}" in found
    assert any(line.startswith("mount ") for line in found), "storage0 had an image"
    assert sorted(path.name for path in disk.iterdir()) == ["looplane-000000-storage1", "lost+found"]
    assert not dead.folder.exists()


def test_an_image_that_does_not_fit_takes_the_others_down(
    demo_plan: Plan, registry: RunRegistry, tmp_path: Path
) -> None:
    plan = planned(demo_plan, storage1="/no/such/place")
    storage = NodeStorage(plan, registry)
    with pytest.raises(storage_image.ImageFault, match=r"storage1: /no/such/place/looplane-.*: No such file"):
        storage.open(tmp_path)
    storage.close()
    assert not any((registry.folder / storage_image.FOLDER).iterdir())
