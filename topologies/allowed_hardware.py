"""Which real parts a run that the console asked for may touch: what the bench's owner has listed, by default nothing.

Whoever is root on the bench may use everything (`looplane run`). The console's users are not root: what they name in a
spec reaches this host through runnerd, which says so in the environment of the runs that it starts. The list is
/etc/looplane/hardware.toml, root's own file, read each time:

    interfaces = ["enp1s0f0"]            rnics = ["mlx5_0"]
    sockets = ["/run/device.sock"]       storage = ["/mnt/nvme/looplane"]

Programs (`command`) and `force` are never allowed from there.
"""

from __future__ import annotations

import os
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from testbed.experiment.hardware import Hardware

LIST = Path("/etc/looplane/hardware.toml")
ASKED_BY_VARIABLE = "LOOPLANE_ASKED_BY"
"""Set by runnerd to `console`; the console has no say in it."""
CONSOLE = "console"
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


class AllowedHardware(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The owner's list."""

    interfaces: tuple[str, ...] = ()
    rnics: tuple[str, ...] = ()
    sockets: tuple[str, ...] = ()
    storage: tuple[str, ...] = ()


class BadList(Exception):
    """The list cannot be trusted or read."""


def read_list(path: Path = LIST) -> AllowedHardware:
    """The owner's list; empty where there is none. Raises `BadList`."""
    try:
        with path.open("rb") as file:
            facts = os.fstat(file.fileno())
            if facts.st_uid != 0 or facts.st_mode & _OTHERS_WRITE:
                raise BadList(f"{path}: must belong to root and be writable by nobody else")
            return msgspec.convert(tomllib.load(file), AllowedHardware)
    except FileNotFoundError:
        return AllowedHardware()
    except (OSError, tomllib.TOMLDecodeError, msgspec.ValidationError) as fault:
        raise BadList(f"{path}: {fault}") from fault


def forbidden(hardware: Hardware, environment: Mapping[str, str], path: Path = LIST) -> list[str]:
    """Why what a run asks for is not allowed to whoever asked, a line each. Raises `BadList`."""
    if not hardware or environment.get(ASKED_BY_VARIABLE) != CONSOLE:
        return []
    allowed = read_list(path)
    asked = [(where, lent.interface, allowed.interfaces) for where, lent in hardware.interfaces()]
    asked += [(f"hardware.rnics.{node}", rnic.device, allowed.rnics) for node, rnic in hardware.rnics.items()]
    asked += [(f"hardware.storage.{node}", mount.path, allowed.storage) for node, mount in hardware.storage.items()]
    asked += [
        (f"hardware.accelerators.{node}", device.socket, allowed.sockets)
        for node, device in hardware.accelerators.items()
        if device.socket is not None
    ]
    lines = [
        f'{where}: "{name}": not in {path}, which lists what the console may use on this bench'
        for where, name, listed in asked
        if name not in listed
    ]
    lines += [
        f"hardware.accelerators.{node}.command: only root of the bench may start programs: looplane run"
        for node, device in hardware.accelerators.items()
        if device.command is not None
    ]
    lines += [
        f"{where}.force: only root of the bench may take an interface that is in use: looplane run"
        for where, lent in hardware.interfaces()
        if lent.force
    ]
    return lines
