"""What this host could put into a run: interfaces, RDMA devices, accelerators, file systems. Looked at, never changed.

A line each, with what follows from it. `doctor` asks once; nothing is watched. What is missing here is never missing
for a run that asks for none of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from topologies import hardware, rdma, storage_image
from topologies.programs import ProgramFailed
from topologies.registry import registered

_DISKS = frozenset({"ext4", "xfs", "btrfs", "fuse.hf3fs", "fuse", "nfs", "nfs4", "lustre", "beegfs"})
ACCELERATORS = (("NVIDIA GPU", "/dev", "nvidia[0-9]*"), ("AMD GPU", "/dev/dri", "renderD*"), ("NPU", "/dev/accel", "*"))
"""What it is, and where its device files lie."""


class Offer(NamedTuple):
    """One thing that was looked for."""

    name: str
    detail: str
    remedy: str = ""


def offers() -> Iterator[Offer]:
    """Everything, in the order of the guide's seams."""
    yield from _interfaces()
    yield from _rdma()
    yield from _accelerators()
    yield from _storage()


def _interfaces() -> Iterator[Offer]:
    if os.geteuid() != 0:
        return
    try:
        names = hardware.interfaces()
    except ProgramFailed as fault:
        yield Offer("interfaces", str(fault))
        return
    for name in names:
        known = ", ".join(hardware.facts(name)) or "driver unknown"
        reason = hardware.refusal(name, 0)
        yield Offer(f"interface {name}", f"{known}; {reason or 'could be lent to a run (hardware.ports, uplinks)'}")
    for registry in registered():
        for lent in hardware.lent_by(registry):
            yield Offer(f"interface {lent.name}", f"is lent to run {registry.label} as {lent.place}")


def _rdma() -> Iterator[Offer]:
    for device in rdma.devices():
        table = ", ".join(f"{gid.row} {gid.address} ({gid.kind})" for gid in rdma.gids(device, 1)) or "empty"
        known = ", ".join(rdma.facts(device)) or "driver unknown"
        follows = rdma.lacking() or "could carry a node's verbs (hardware.rnics)"
        yield Offer(f"RDMA device {device}", f"{known}; GID table of port 1: {table}; {follows}")
    if not rdma.devices():
        yield Offer("RDMA devices", "none: RoCEv2 is spoken by the soft RNIC")
    lacking = rdma.rxe_lacking()
    yield Offer("rxe", f"{lacking}: not needed, the soft RNIC is ours" if lacking else "can be made by the kernel")
    missing = rdma.pyverbs_lacking()
    yield Offer("python3-pyverbs", f"{missing} (only a real RNIC needs it)" if missing else "found")


def _accelerators() -> Iterator[Offer]:
    for what, folder, pattern in ACCELERATORS:
        for path in sorted(Path(folder).glob(pattern)):
            yield Offer(f"accelerator {path}", f"{what}; put a process in front of it (hardware.accelerators)")


def _storage() -> Iterator[Offer]:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, options = line.split()[:4]
        folder = Path(point.encode().decode("unicode_escape"))
        if kind in _DISKS and options.split(",")[0] == "rw" and not _on_root(folder):
            fit = "could hold a storage node's chunks" if _takes_direct_io(folder) else "takes no O_DIRECT as it seems"
            yield Offer(f"file system {folder}", f"{kind}; {fit}")
    lacking = storage_image.lacking()
    yield Offer("storage images", f"cannot be mounted: {lacking}" if lacking else "can be made and loop-mounted")


def _on_root(folder: Path) -> bool:
    try:
        return folder.stat().st_dev == Path("/").stat().st_dev
    except OSError:
        return True


def _takes_direct_io(folder: Path) -> bool:
    """Tried with a file without a name, since nothing may be left. FUSE has none such; a run tries it by a name."""
    try:
        os.close(os.open(folder, os.O_TMPFILE | os.O_WRONLY | os.O_DIRECT, 0o600))
    except OSError:
        return False
    return True
