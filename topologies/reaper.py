"""Removes what dead runs have left on the host: by their label, and nothing else (faults A1, A2, A5, A8).

A run is dead when its owner, known by pid, start time and boot, is gone. Everything is looked for where a run could
have put it; nothing is looked for by a pattern that a stranger's thing could match. Idempotent: the record of a label
goes last, so a reaper that is killed half way is followed by one that goes on.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import msgspec

from topologies import cells, docker_host, hardware, images, mitigations, node_storage
from topologies.naming import RUN_ROOT, is_label
from topologies.programs import run
from topologies.registry import ProcessMark, RunRegistry, end_processes, registered, registry_lock

_OUR_LINK = re.compile(r"l([0-9a-f]{6})[pb]\d+")
BENCH_RESULT = "bench.json"


class Leftover(NamedTuple):
    """One thing of a dead run."""

    label: str
    kind: str
    """interface (given back, not removed), process, cell, container, link, mount, record, folder, cache group, engine.
    """
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" of run {self.label}" if self.label else "")


class Reaped(NamedTuple):
    """What was found, and what could not be removed."""

    removed: tuple[Leftover, ...]
    failed: tuple[tuple[Leftover, str], ...]


def reap(*, dry_run: bool = False, only: str | None = None) -> Reaped:
    """Removes, or with `dry_run` only names, everything of dead runs; `only` confines it to one label.

    Never raises for a thing that resists: it is in `failed`, and the label's record stays for the next time.
    """
    removed: list[Leftover] = []
    failed: list[tuple[Leftover, str]] = []
    with registry_lock():
        for label in sorted(_dead_labels()):
            if only is not None and label != only:
                continue
            resisted = False
            for leftover, remove in _of(label):
                fault = None if dry_run else _attempt(remove)
                if fault is None:
                    removed.append(leftover)
                else:
                    resisted = True
                    failed.append((leftover, fault))
            record = Leftover(label, "record", str(RUN_ROOT / label))
            if (RUN_ROOT / label).exists() and not resisted:
                if not dry_run:
                    _mark_lost(RunRegistry(label))
                    RunRegistry(label).remove()
                removed.append(record)
    for folder in images.abandoned() if only is None else []:
        abandoned = Leftover("", "folder", str(folder))
        fault = None if dry_run else _attempt(partial(shutil.rmtree, folder))
        if fault is None:
            removed.append(abandoned)
        else:
            failed.append((abandoned, fault))
    engine = Leftover("", "engine", str(docker_host.OWN_SOCKET))
    if dry_run:
        if docker_host.own_engine() is not None and not docker_host.in_use():
            removed.append(engine)
    elif docker_host.stop_if_unused():
        removed.append(engine)
    return Reaped(tuple(removed), tuple(failed))


def _dead_labels() -> set[str]:
    labels = {registry.label for registry in registered()} | {label for label in cells.labels() if is_label(label)}
    labels |= {label for label in _containers().values() if is_label(label)}
    return {label for label in labels if not RunRegistry(label).live()}


def _of(label: str) -> Iterator[tuple[Leftover, Callable[[], object]]]:
    """Everything of one dead label with how to remove it, in the order of removal: first what could make more."""
    registry = RunRegistry(label)
    for lent in hardware.lent_by(registry):  # before anything ends that it might end with
        yield Leftover(label, "interface", lent.name), partial(hardware.give_back, registry, lent)
    marks = [mark for mark in registry.processes() if mark.alive()]
    for mark in marks:
        yield Leftover(label, "process", f"{mark.pid} ({mark.what})"), partial(_end, mark)
    containers = [name for name, owner in _containers().items() if owner == label]
    for name in containers:
        yield Leftover(label, "container", name), partial(_remove_container, name)
    if label in cells.labels():
        yield Leftover(label, "cell", f"{cells.FOLDER}/{label}"), cells.Cells(label).remove
    for device in _links(label):
        # Links are born in namespaces that end with their processes; one is here only if somebody moved it.
        yield Leftover(label, "link", device), partial(_remove_link, label, device)
    for point in _mounts(registry.folder):
        yield Leftover(label, "mount", str(point)), partial(run, ["umount", str(point)])
    cache = mitigations.RESCTRL / mitigations.resctrl_group(label)
    if cache.is_dir():
        yield Leftover(label, "cache group", str(cache)), cache.rmdir
    for folder in node_storage.lent_folders(registry):
        yield Leftover(label, "folder", str(folder)), partial(shutil.rmtree, folder)


def _attempt(remove: Callable[[], object]) -> str | None:
    try:
        remove()
    except Exception as fault:  # noqa: BLE001  # one thing that resists must not save the others
        return str(fault) or type(fault).__name__
    return None


def _end(mark: ProcessMark) -> None:
    if end_processes([mark]):
        raise TimeoutError("still runs after SIGKILL")


def _containers() -> dict[str, str]:
    docker = docker_host.engine_that_answers()
    return {} if docker is None else docker.labelled()


def _remove_container(name: str) -> None:
    docker = docker_host.engine_that_answers()
    if docker is not None:
        docker.remove([name])


def _links(label: str) -> list[str]:
    devices = [line.split(": ")[1].split("@")[0] for line in run(["ip", "-o", "link"]).splitlines()]
    return [name for name in devices if (found := _OUR_LINK.fullmatch(name)) and found[1] == label]


def _remove_link(label: str, device: str) -> None:
    if device in _links(label):  # it may have gone with its other end
        run(["ip", "link", "del", device])


def _mounts(folder: Path) -> list[Path]:
    points = [Path(line.split()[4]) for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted((point for point in points if folder in point.parents), reverse=True)


def _mark_lost(registry: RunRegistry) -> None:
    """Leaves word in the run folder of a run that nobody has ended (fault A8)."""
    record = registry.record()
    if record is None:
        return
    control = Path(record.folder) / "control"
    result = control / BENCH_RESULT
    if control.is_dir() and not result.exists():
        text = {"outcome": "lost", "detail": "the bench ended without a result; reaped later", "teardown": ""}
        temporary = result.with_suffix(".new")
        temporary.write_bytes(msgspec.json.format(msgspec.json.encode(text), indent=1) + b"\n")
        temporary.replace(result)
