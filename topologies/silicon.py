"""Priorities of what stands for silicon of its own: no neighbour on the host may slow it.

A real NIC, GPU or DPU does not share its processor with whatever else runs on the host, and the machine of a client
that measures does not either. So their processes run under SCHED_FIFO once the run starts; the host's own, which the
paper's interference is about, never do. The order is that of what must not wait: a NIC serves while a GPU works, a
GPU's step does not wait for a DPU's batch of server-sent events. SCHED_FIFO has no turns, hence the levels.

Docker's cgroup v1 groups forbid real-time scheduling where the kernel has RT_GROUP_SCHED (platform.md §4); the
process then leaves its `cpu` group, which limits nothing of a node's (cores and memory are other groups), for the
root one. sched(7), cgroups(7).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from topologies.cells import mounts

NIC = 10
DEVICE = 8
"""Of a device process that computes for a node (topologies.accelerators): its node's software polls for the result."""
OF_ROLE = {"gpu": 7, "prefill": 7, "decode": 7, "scheduler": 7, "dpu": 5, "storage": 5, "client": 5}
"""SCHED_FIFO priority of a node's software by its role, where it has silicon of its own (`NodePlan.silicon`). The role
`host` is not here on purpose."""


def favour(pids: Iterable[int], priority: int) -> bool:
    """Puts every thread of `pids` under SCHED_FIFO. False if the kernel refuses; what has ended meanwhile is passed."""
    refused = [pid for pid in pids if not _favour_process(pid, priority)]  # every one is tried
    return not refused


def _favour_process(pid: int, priority: int) -> bool:
    if _favour_threads(pid, priority):
        return True
    _leave_cpu_group(pid)
    return _favour_threads(pid, priority)


def _favour_threads(pid: int, priority: int) -> bool:
    with suppress(FileNotFoundError, ProcessLookupError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            try:
                os.sched_setscheduler(int(thread.name), os.SCHED_FIFO, os.sched_param(priority))
            except PermissionError:
                return False
    return True


def _leave_cpu_group(pid: int) -> None:
    """Moves a process to the root of the v1 hierarchy that has the `cpu` controller, if there is one."""
    for kind, point, options in mounts():
        if kind == "cgroup" and "cpu" in options:
            with suppress(OSError):  # it has ended, or the host forbids it: the caller sees that nothing changed
                (point / "cgroup.procs").write_text(str(pid))
