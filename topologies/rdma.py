"""RDMA devices of this host: which there are, their GID tables, and whether the kernel can make one (rxe).

Read from sysfs (Documentation/ABI/stable/sysfs-class-infiniband), which needs neither rdma-core nor a device. A device
may have no PCI path (rxe, siw): nothing here looks for one (fault D10). It opens no device.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from testbed.experiment.hardware import RealRnic
from topologies.programs import ProgramFailed, run

SYSFS = Path("/sys/class/infiniband")
_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
PYVERBS_PLACES = (Path("/usr/lib/python3/dist-packages/pyverbs"),)


class Gid(NamedTuple):
    """One row of a port's GID table."""

    row: int
    """Its index."""
    address: str
    kind: str
    """`IB/RoCE v1`, `RoCE v2`."""


def devices(sysfs: Path = SYSFS) -> list[str]:
    """Names of the host's RDMA devices."""
    return sorted(path.name for path in sysfs.iterdir()) if sysfs.is_dir() else []


def gids(device: str, port: int, sysfs: Path = SYSFS) -> list[Gid]:
    """The rows of a port's GID table that hold something; none where there is no such port."""
    folder = sysfs / device / "ports" / str(port)
    found = []
    for path in sorted(folder.glob("gids/*"), key=lambda path: int(path.name)):
        address = _text(path)
        if address and address != _NO_GID:
            found.append(Gid(int(path.name), address, _text(folder / "gid_attrs" / "types" / path.name)))
    return found


def refusal(rnic: RealRnic, sysfs: Path = SYSFS) -> str:
    """Why a run cannot use this device with this GID index (fault D7); empty if it could. It never waits."""
    there = devices(sysfs)
    if rnic.device not in there:
        return f"there is no such RDMA device on this host; there are {', '.join(there) or 'none'}"
    table = gids(rnic.device, rnic.port, sysfs)
    usable = [gid.row for gid in table if gid.kind == "RoCE v2"]
    choice = f"RoCE v2 is at {', '.join(map(str, usable)) or 'none'} of port {rnic.port}"
    kind = next((gid.kind for gid in table if gid.row == rnic.gid_index), None)
    if kind is None:
        return f"GID index {rnic.gid_index} is empty; {choice}"
    return "" if kind == "RoCE v2" else f"GID index {rnic.gid_index} is {kind}; {choice}"


def rxe_lacking(environment: Mapping[str, str] | None = None) -> str:
    """Why no software RDMA device (rxe) can be made here; empty if one can (faults D1, D9). Makes none."""
    path = (environment or {}).get("PATH")
    if shutil.which("rdma", path=path) is None:
        return "the rdma tool is not installed (apt-get install iproute2)"
    try:
        said = run([shutil.which("rdma", path=path) or "rdma", "link", "help"])
    except ProgramFailed as fault:  # it ends with an error after its help in some versions
        said = fault.output
    if "NETLINK_RDMA" in said:
        return "this kernel has no RDMA: the rdma tool cannot open its socket"
    if "link add" not in said:
        return "the rdma tool is too old: it has no `rdma link add`"
    module = Path("/lib/modules") / _text(Path("/proc/sys/kernel/osrelease"))
    if Path("/sys/module/rdma_rxe").exists() or list(module.glob("kernel/drivers/infiniband/sw/rxe/*")):
        return ""
    return "this kernel has no rdma_rxe (CONFIG_RDMA_RXE)"


def pyverbs_found() -> bool:
    """Whether Debian's python3-pyverbs is here, for the interpreter that it was built for."""
    return any(list(place.glob(f"device.cpython-3{sys.version_info.minor}-*.so")) for place in PYVERBS_PLACES)


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # an empty row of the table reads as an error
        return ""
