"""The emulated storage target: a file system in a file, made for one run and mounted in its record's folder.

The image is unlinked as soon as it is mounted, so nothing of it outlives the mount; the loop device goes with the
mount, too (it is made with autoclear). What a killed bench leaves is the mount, which the reaper takes down by the
run's label. The loop device reads and writes the image without this host's page cache: else every chunk would be
served from memory, which 3FS does not do (DualPath 1.11). mount(8), losetup(8).
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from topologies.programs import ProgramFailed, run
from topologies.registry import RunRegistry

SMALLEST = 16 << 20
"""Bytes; below it ext4 has hardly room for its own journal."""
FOLDER = "storage"


class ImageFault(Exception):
    """The image cannot be made or mounted here. One line."""


def lacking() -> str:
    """Why this host cannot mount images; empty if it can."""
    for program in ("mkfs.ext4", "mount", "losetup"):
        if shutil.which(program, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin") is None:
            return f"{program} is not installed"
    return "" if Path("/dev/loop-control").exists() else "the kernel has no loop devices (/dev/loop-control)"


def mount_image(registry: RunRegistry, node: str, size: int, folder: Path) -> Path:
    """A fresh ext4 of `size` bytes for `node`; returns where it is mounted. The image lies in `folder`, unnamed.

    Raises ImageFault.
    """
    if size < SMALLEST:
        raise ImageFault(f"{node}: an image of {size} bytes is too small; at least {SMALLEST} are needed")
    reason = lacking()
    if reason:
        raise ImageFault(f"{node}: {reason}")
    point = registry.folder / FOLDER / node
    point.mkdir(parents=True, mode=0o700)
    image = folder / f".{node}.{registry.label}.img"
    try:
        with image.open("xb") as file:
            os.posix_fallocate(file.fileno(), 0, size)  # a full disk is found now and not in the middle of the run
        # Chunks are small files, so that there may be as many as there are blocks.
        run(["mkfs.ext4", "-q", "-F", "-m", "0", "-i", "4096", str(image)])
        run(["mount", "-o", "loop,noatime", str(image), str(point)])
        bypass_cache(point)
    except (OSError, ProgramFailed) as fault:
        if point.is_mount():
            run(["umount", str(point)])
        point.rmdir()
        raise ImageFault(f"{node}: {fault}") from fault
    finally:
        image.unlink(missing_ok=True)
    return point


def bypass_cache(point: Path) -> None:
    """Has the loop device of a mounted image pass this host's page cache by.

    Raises ProgramFailed where the file system below the image takes no direct I/O.
    """
    lines = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    device = next(fields[0] for fields in lines if fields[1] == str(point))
    run(["losetup", "--direct-io=on", device])


def unmount(point: Path) -> None:
    """Ends an image and all that is in it. Raises ProgramFailed."""
    run(["umount", str(point)])
    point.rmdir()
