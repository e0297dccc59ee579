"""The reaper takes what dead runs left, and nothing of anybody else's (faults A1, A2, A4, A5, A8)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import host_state
import msgspec
import pytest

from tests.topologies.registered import registered
from topologies import docker_host, images, reaper
from topologies.cells import Cells
from topologies.naming import CONTAINER_LABEL, RUN_ROOT
from topologies.processes import Placement, ProcessTable
from topologies.programs import ProgramFailed, run
from topologies.registry import ProcessMark, RunRecord, RunRegistry, boot_id, mark_of

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("unchanged_host")]


def dead_owner() -> ProcessMark:
    process = subprocess.Popen(["true"])
    mark = ProcessMark(process.pid, 1, boot_id(), "bench")
    process.wait()
    return mark


@pytest.fixture
def dead_run(label: str, tmp_path: Path) -> Iterator[RunRegistry]:
    """The record of a run whose bench is gone."""
    (tmp_path / "control").mkdir()
    registry = RunRegistry(label)
    registry.create(RunRecord(label, str(tmp_path), dead_owner(), "namespace"))
    yield registry
    if registry.folder.exists():
        registry.remove()


def names(found: reaper.Reaped, label: str) -> list[str]:
    return sorted(f"{leftover.kind} {leftover.name}" for leftover in found.removed if leftover.label == label)


def test_what_a_dead_run_left_goes_and_its_folder_says_lost(dead_run: RunRegistry, label: str, tmp_path: Path) -> None:
    table = ProcessTable(dead_run, Cells(label), tmp_path)
    noted = table.start("noted", ["sleep", "60"], Placement(cell="node-a"))
    link = f"l{label}p0"
    run(["ip", "link", "add", link, "type", "veth", "peer", "name", f"l{label}p1"])  # stranded in the host's namespace
    shared = dead_run.folder / "nodes"
    shared.mkdir()
    subprocess.run(["mount", "--bind", shared, shared], check=True)
    dry = reaper.reap(dry_run=True, only=label)
    assert {"record", "process", "cell", "link", "mount"} <= {leftover.kind for leftover in dry.removed}
    assert noted.code() is None
    found = reaper.reap(only=label)
    assert found.failed == ()
    assert names(found, label) == names(dry, label)
    assert noted.wait(5) == -signal.SIGKILL
    assert f"link {link}" in names(found, label)
    assert host_state.of_label(label) == set()
    assert '"lost"' in (tmp_path / "control" / "bench.json").read_text()
    assert names(reaper.reap(only=label), label) == []


def test_a_living_runs_things_stay(label: str, tmp_path: Path) -> None:
    cells = Cells(label)
    with registered(tmp_path, label) as registry:
        table = ProcessTable(registry, cells, tmp_path)
        try:
            started = table.start("mine", ["sleep", "60"], Placement(cell="node-a"))
            assert names(reaper.reap(), label) == []
            assert started.code() is None
        finally:
            table.end_all(0)
            cells.remove()


def test_strangers_with_names_like_ours_stay(
    dead_run: RunRegistry, label: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("keep.log", "keep.conf", "keep.txt"):
        Path(name).touch()
    links = ["keepme", "foo-eth0", "l0p0", f"x{label}p0", f"l{label}x0"]
    try:
        for link in links:
            run(["ip", "link", "add", link, "type", "bridge"])
        with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "ping", label]) as ping:
            assert names(reaper.reap(), label) == [f"record {dead_run.folder}"]
            assert ping.poll() is None
            ping.kill()
        assert all(link in run(["ip", "-o", "link"]) for link in links)
        assert sorted(path.name for path in Path().glob("keep.*")) == ["keep.conf", "keep.log", "keep.txt"]
    finally:
        for link in links:
            subprocess.run(["ip", "link", "del", link], check=False, stderr=subprocess.DEVNULL)


def test_a_number_that_somebody_else_has_now_is_not_killed(dead_run: RunRegistry, label: str) -> None:
    with subprocess.Popen(["sleep", "60"]) as stranger:
        mark = mark_of(stranger.pid, "nic")
        assert mark is not None
        dead_run.note(os.getpid(), "will be replaced")
        for changed in (
            ProcessMark(mark.pid, mark.start - 1, mark.boot, "nic"),
            ProcessMark(mark.pid, mark.start, "0" * 36, "nic"),
        ):
            (dead_run.folder / "processes.jsonl").write_bytes(msgspec.json.encode(changed) + b"\n")
            dead = reaper.reap(dry_run=True, only=label)
            assert names(dead, label) == [f"record {dead_run.folder}"]
        reaper.reap(only=label)
        assert stranger.poll() is None
        stranger.kill()


def test_a_label_whose_record_was_cut_off_is_reaped(label: str) -> None:
    folder = RUN_ROOT / label
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"label": "')
    assert names(reaper.reap(only=label), label) == [f"record {folder}"]


def test_what_resists_is_said_and_the_record_stays(dead_run: RunRegistry, label: str) -> None:
    point = dead_run.folder / "busy"
    point.mkdir()
    subprocess.run(["mount", "--bind", point, point], check=True)
    with subprocess.Popen(["sleep", "60"], cwd=point) as holder:
        found = reaper.reap(only=label)
        assert [(leftover.kind, "busy" in fault) for leftover, fault in found.failed] == [("mount", True)]
        assert dead_run.folder.exists()
        holder.kill()
    assert names(reaper.reap(only=label), label) == [f"mount {point}", f"record {dead_run.folder}"]


@pytest.mark.docker
def test_containers_go_by_label_only(dead_run: RunRegistry, label: str) -> None:
    with docker_host.engine("test-reaper") as docker:
        image = images.ensure(docker, lambda _text: None)
        base = ["run", "--detach", "--network", "none"]
        docker.run(*base, "--name", f"keepme-{label}", image, "sleep", "600")
        ours = ["--name", f"looplane-{label}-a", "--label", f"{CONTAINER_LABEL}={label}"]
        docker.run(*base, *ours, image, "sleep", "600")
        try:
            found = reaper.reap(only=label)
            assert f"container looplane-{label}-a" in names(found, label)
            said = docker.run("ps", "--all", "--format", "{{.Names}}").split()
            assert f"keepme-{label}" in said
            assert f"looplane-{label}-a" not in said
        finally:
            docker.remove([f"keepme-{label}"])


@pytest.mark.docker
def test_a_foreign_container_with_our_next_name_gives_a_clear_message(label: str) -> None:
    with docker_host.engine("test-reaper") as docker:
        image = images.ensure(docker, lambda _text: None)
        name = f"looplane-{label}-dpu0"
        docker.run("run", "--detach", "--network", "none", "--name", name, image, "sleep", "600")
        try:
            spec = docker_host.ContainerSpec(name, label, image, "dpu0", (), 64, (), {})
            with pytest.raises(ProgramFailed, match="is already in use"):
                docker.start_container(spec)
        finally:
            docker.remove([name])
