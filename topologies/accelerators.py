"""Device processes that a run starts for its nodes: the `command` of [hardware.accelerators].

Each runs outside the node's container and listens at a socket in the node's own folder, which the container sees. It
may use every core of the run, under SCHED_FIFO above the software that waits for it: a chip does not share its node's
processor. A device that runs already (`socket`) is not touched. What is said there is none of our business.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from testbed.experiment.plan import Plan
from topologies import silicon
from topologies.naming import Names
from topologies.processes import Placement, ProcessTable, Started, end, python_environment

SOCKET_NAME = "accelerator"


def socket_of(plan: Plan, names: Names, node: str) -> Path | None:
    """Where the node's device listens; None for a node whose accelerator is emulated."""
    planned = plan.hardware.accelerators.get(node)
    if planned is None:
        return None
    return names.node_folder(node) / SOCKET_NAME if planned.socket is None else Path(planned.socket)


class DeviceFault(Exception):
    """A device process cannot be started."""


class DeviceProcesses:
    """The device processes of one run."""

    def __init__(self, plan: Plan, names: Names, table: ProcessTable, cpus: dict[str, tuple[int, ...]]) -> None:
        self._plan = plan
        self._names = names
        self._table = table
        self._cores = tuple(sorted({core for cores in cpus.values() for core in cores}))
        self.started: list[Started] = []

    def start(self, wait_for: Callable[[Started, Path], None]) -> None:
        """Starts every device and waits for its socket with `wait_for`. Raises DeviceFault and what that raises."""
        for node, planned in self._plan.hardware.accelerators.items():
            if planned.command is None:
                continue
            path = self._names.node_folder(node) / SOCKET_NAME
            words = [word.replace("{socket}", str(path)).replace("{python}", sys.executable)
                     for word in planned.command]  # fmt: skip
            placement = Placement(cell="device", cpus=self._cores)
            try:
                device = self._table.start(f"accelerator {node}", words, placement, python_environment())
            except OSError as fault:
                raise DeviceFault(f"hardware.accelerators.{node}.command: {words[0]}: {fault.strerror}") from fault
            self.started.append(device)
            wait_for(device, path)
            silicon.favour([device.pid], silicon.DEVICE)

    def end(self, patience_s: float) -> None:
        """Ends those that this run has started."""
        end(self.started, patience_s)
