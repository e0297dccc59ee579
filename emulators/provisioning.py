"""The file by which a host says that it has provisioned the device: `control/<host>.provisioned`.

It stands for the memory that a real host fills before it leaves the path. The GPU's software and the DPU's wait for
it before they say that they are ready, check that it was meant for their parameters, and never look at the host
again.
"""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

from emulators.node import NodeRun
from testbed.events.run_events import HostProvisioned
from testbed.experiment.assembly import provisions_of
from testbed.experiment.plan import Plan

_LOOK_S = 0.002


class BadProvisions(Exception):
    """What the host has left is damaged, or was meant for another device."""


def write_provisions(folder: Path, host: str, provisions: HostProvisioned) -> None:
    """Writes the file, whole or not at all."""
    path = _path(folder, host)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}")
    draft.write_bytes(msgspec.json.encode(provisions))
    draft.rename(path)


def read_provisions(folder: Path, plan: Plan) -> HostProvisioned | None:
    """What the plan's host has provisioned; None while it has not. Raises `BadProvisions`."""
    host = next((node.name for node in plan.nodes if node.role == "host"), None)
    if host is None:
        raise BadProvisions("the plan has no host that could provision anything")
    path = _path(folder, host)
    try:
        found = msgspec.json.decode(path.read_bytes(), type=HostProvisioned)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise BadProvisions(f"{path}: {error}") from error
    if found != provisions_of(plan):
        raise BadProvisions(f"{path}: the host provisioned {found}, the plan asks for {provisions_of(plan)}")
    return found


def wait_for_provisions(run: NodeRun) -> bool:
    """Blocks until the host has provisioned; False if the run was stopped before. Raises `BadProvisions`."""
    while read_provisions(run.folder, run.plan) is None:
        run.look_for_epoch()  # also notices that the run is being stopped
        if run.stopping:
            return False
        time.sleep(_LOOK_S)
    return True


def _path(folder: Path, host: str) -> Path:
    return folder / "control" / f"{host}.provisioned"
