"""Where the storage nodes of one run keep their chunks: an image that is made and mounted, or a folder of the user's.

In a folder of `[hardware.storage]` each run has a folder of its own, noted in the run's registry before it is made and
removed at the end, by the reaper if need be; what else lies there is never looked at.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from testbed.experiment.plan import NodePlan, Plan
from topologies.registry import RunRegistry
from topologies.storage_image import ImageFault, mount_image, unmount

FOLDER_VARIABLE = "LOOPLANE_STORAGE"
"""Environment variable that tells a storage node's software its folder."""
_NOTED = "chunks"
_MIB = 1 << 20


class NodeStorage:
    """The folders of one run's storage nodes, by node; empty until `open`."""

    def __init__(self, plan: Plan, registry: RunRegistry) -> None:
        self._plan = plan
        self._registry = registry
        self._images: dict[str, Path] = {}
        self._lent: dict[str, Path] = {}

    def open(self, run_folder: Path) -> None:
        """Makes every folder; images lie in `run_folder`, unnamed. Raises ImageFault, OSError."""
        for node in self._plan.nodes:
            if node.role != "storage":
                continue
            mount = self._plan.hardware.storage.get(node.name)
            if mount is None:
                size = int(self._plan.parameters["storage_image_mib"]) * _MIB
                self._images[node.name] = mount_image(self._registry, node.name, size, run_folder)
            else:
                self._lent[node.name] = _borrow(self._registry, node.name, Path(mount.path))

    def folder(self, node: NodePlan) -> Path | None:
        """The folder of a node; None for one that has none."""
        return self._images.get(node.name) or self._lent.get(node.name)

    def close(self) -> None:
        """Takes all down; goes on past what fails and raises the first fault at the end."""
        faults: list[Exception] = []
        for point in self._images.values():
            try:
                unmount(point)
            except Exception as fault:  # noqa: BLE001  # the others must be taken down too
                faults.append(fault)
        for folder in self._lent.values():
            try:
                shutil.rmtree(folder)
            except OSError as fault:
                faults.append(fault)
        if faults:
            raise faults[0]


def lent_folders(registry: RunRegistry) -> Iterator[Path]:
    """Folders of this run on file systems of the user's that are still there, for the reaper."""
    noted = registry.folder / _NOTED
    for note in sorted(noted.iterdir()) if noted.is_dir() else ():
        folder = Path(note.read_text())
        # A name that only this label's runs make: whatever the note says, nothing else is removed.
        if folder.name.startswith(f"looplane-{registry.label}-") and folder.is_dir():
            yield folder


def refusals(plan: Plan) -> list[str]:
    """Why this host cannot give what `[hardware.storage]` asks for, a line each; nothing is touched."""
    lines = []
    for node, mount in plan.hardware.storage.items():
        reason = _refusal(Path(mount.path))
        if reason:
            lines.append(f'hardware.storage.{node}.path: "{mount.path}": {reason}')
    return lines


def _refusal(folder: Path) -> str:
    try:
        device = folder.stat().st_dev
    except OSError as fault:
        return fault.strerror or str(fault)
    if not folder.is_dir():
        return "is no folder"
    if device == Path("/").stat().st_dev:
        return "lies on the root's file system: mount the target there first"
    if not os.access(folder, os.W_OK) or os.statvfs(folder).f_flag & os.ST_RDONLY:
        return "cannot be written to"
    return ""


def _borrow(registry: RunRegistry, node: str, path: Path) -> Path:
    """A folder of the run's own in `path`. Raises ImageFault."""
    folder = path / f"looplane-{registry.label}-{node}"
    try:
        noted = registry.folder / _NOTED
        noted.mkdir(exist_ok=True, mode=0o700)
        (noted / node).write_text(str(folder))
        folder.mkdir(mode=0o700)
    except OSError as fault:
        raise ImageFault(f"{node}: {folder}: {fault.strerror}") from fault
    return folder
