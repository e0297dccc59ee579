"""The file by which a host says that it has provisioned the device: `control/<host>.provisioned`.

It stands for the memory that a real host fills before it leaves the path. The GPU's software and the DPU's wait for
it before they say that they are ready, check that it was meant for their parameters, and never look at the host
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from emulators.node import NodeRun
from testbed.blink.provisioning import provision
from testbed.events.schema import HostProvisioned
from testbed.experiment.assembly import parameters_of
from testbed.experiment.plan import Plan

_LOOK_S = 0.002
_PROVISION: dict[str, Callable[[Any], HostProvisioned]] = {"blink": provision}
"""What the host of each kind of system does before it leaves the path."""


class BadProvisions(Exception):
    """What the host has left is damaged, or was meant for another device."""


def provisions_of(plan: Plan) -> HostProvisioned:
    """What a host has to provision for the plan's system. Raises ValueError where the device has no room for it."""
    return _PROVISION[plan.kind](parameters_of(plan))


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
