"""A storage node's process: `python -m emulators.storage --run RUNFOLDER --node NAME`, the server over real files.

The bench names the folder of its chunks in the environment: a file system in a file of the run's own, or a folder of
`[hardware.storage]`. Everything but the disk is as in a simulation (`testbed.experiment.assembly`).
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from emulators.node import NodeRun
from emulators.node_life import run_node
from emulators.promptness import ACCELERATOR_TURN, ask_for_turns
from emulators.storage_target import StorageTarget
from emulators.target_disk import TargetDisk
from testbed.events.fidelity_events import HardwareEngaged
from testbed.experiment.assembly import assemble_node
from testbed.experiment.outlines import Surroundings

FOLDER_VARIABLE = "LOOPLANE_STORAGE"
_SWITCH_S = 0.0005


def build(run: NodeRun) -> None:
    """Opens the node's disk and assembles the node. Raises KeyError without a folder, `BadTarget` for a bad one."""
    ask_for_turns(ACCELERATOR_TURN)
    folder = Path(os.environ[FOLDER_VARIABLE])
    mount = run.plan.hardware.storage.get(run.name)
    target = StorageTarget(folder, synced=mount is not None)
    if mount is not None:
        run.emit(HardwareEngaged("storage", run.name, mount.path, _facts(folder)))
    assembly = assemble_node(run.plan, run.name, Surroundings(run.memories))
    disk = TargetDisk(target, run.plan.dilation)
    run.attach(assembly.machines, disk)
    run.watch(disk.fd)
    # The disk's thread and the node's loop have little to do at a time: neither holds the interpreter for long.
    sys.setswitchinterval(_SWITCH_S)


def _facts(folder: Path) -> tuple[str, ...]:
    """Kind of file system and what is free."""
    device = os.stat(folder).st_dev
    wanted = f"{os.major(device)}:{os.minor(device)}"
    mounts = [line.split() for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    kinds = [fields[fields.index("-") + 1] for fields in mounts if fields[2] == wanted]
    free = os.statvfs(folder)
    return (*(f"file system {kind}" for kind in kinds[:1]), f"{free.f_bavail * free.f_frsize} bytes free")


if __name__ == "__main__":
    raise SystemExit(run_node(build))
