"""RDMA devices of this host: which there are, their GID tables, and whether the kernel can make one (rxe).

Read from sysfs (Documentation/ABI/stable/sysfs-class-infiniband), which needs neither rdma-core nor a device. A device
may have no PCI path (rxe, siw): nothing here looks for one (fault D10). It opens no device.
"""

from __future__ import annotations

import importlib.machinery
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from testbed.experiment.hardware import RealRnic
from topologies.programs import ProgramFailed, run

SYSFS = Path("/sys/class/infiniband")
_NO_GID = "0000:0000:0000:0000:0000:0000:0000:0000"
_MAPPED = "0000:0000:0000:0000:0000:ffff:"
"""An IPv4 address as a GID begins so (IBA annex A17)."""
PYVERBS = Path("/usr/lib/python3/dist-packages/pyverbs")
NAMESPACES = Path("/sys/module/ib_core/parameters/netns_mode")


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
    """Why a run cannot use this device, port and GID index (fault D7); empty if it could. It never waits."""
    there = devices(sysfs)
    if rnic.device not in there:
        return f"there is no such RDMA device on this host; there are {', '.join(there) or 'none'}"
    table = gids(rnic.device, rnic.port, sysfs)
    usable = [gid.row for gid in table if gid.kind == "RoCE v2"]
    choice = f"RoCE v2 is at {', '.join(map(str, usable)) or 'none'} of port {rnic.port}"
    kind = next((gid.kind for gid in table if gid.row == rnic.gid_index), None)
    if kind is None:
        return f"GID index {rnic.gid_index} is empty; {choice}"
    if kind != "RoCE v2":
        return f"GID index {rnic.gid_index} is {kind}; {choice}"
    state = _text(sysfs / rnic.device / "ports" / str(rnic.port) / "state")
    return "" if state.endswith("ACTIVE") else f"port {rnic.port} is not active ({state or 'no state'})"


def facts(device: str, sysfs: Path = SYSFS) -> tuple[str, ...]:
    """What can be read of a device: driver, firmware, rate of its first port. A virtual one has no driver (D10)."""
    driver = sysfs / device / "device" / "driver"
    found = {
        "driver": driver.resolve().name if driver.exists() else "",
        "firmware": _text(sysfs / device / "fw_ver"),
        "rate": _text(sysfs / device / "ports" / "1" / "rate"),
    }
    return tuple(f"{what} {text}" for what, text in found.items() if text)


def refusals(rnics: Mapping[str, RealRnic], sysfs: Path = SYSFS) -> list[str]:
    """A line for each node's RNIC that a run cannot have."""
    found = {node: refusal(rnic, sysfs) or lacking(sysfs) for node, rnic in rnics.items()}
    return [f'hardware.rnics.{node}: "{rnics[node].device}": {reason}' for node, reason in found.items() if reason]


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


def pyverbs_lacking(folder: Path = PYVERBS) -> str:
    """Why Looplane's interpreter cannot drive a real RNIC, with what helps; empty if it can. Imports nothing."""
    if importlib.machinery.PathFinder.find_spec("pyverbs") is not None:
        return ""
    if not folder.is_dir():
        return "no pyverbs, by which an RNIC is driven: apt-get install python3-pyverbs"
    if any((folder / f"device{suffix}").exists() for suffix in importlib.machinery.EXTENSION_SUFFIXES):
        return ""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return f"python3-pyverbs is not built for Python {version}: install Looplane with the system's /usr/bin/python3"


def lacking(sysfs: Path = SYSFS, folder: Path = PYVERBS, mode: Path = NAMESPACES) -> str:
    """Why no real RNIC at all can be driven on this host; empty if one can."""
    if not devices(sysfs):
        return "no RDMA device"
    if _text(mode) == "N":
        return "RDMA devices are kept in the host's network namespace: rdma system set netns shared"
    return pyverbs_lacking(folder)


def first_active(sysfs: Path = SYSFS) -> RealRnic | None:
    """The first active port of this host that has a RoCE v2 address; of its rows an IPv4 one, if it has any."""
    for device in devices(sysfs):
        for port in sorted((sysfs / device / "ports").iterdir(), key=lambda path: int(path.name)):
            if not _text(port / "state").endswith("ACTIVE"):
                continue
            table = [gid for gid in gids(device, int(port.name), sysfs) if gid.kind == "RoCE v2"]
            table.sort(key=lambda gid: not gid.address.startswith(_MAPPED))
            if table:
                return RealRnic(device, table[0].row, int(port.name))
    return None


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:  # an empty row of the table reads as an error
        return ""
