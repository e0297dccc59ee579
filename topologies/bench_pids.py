"""Which processes are a node's: all that its software is, by the kernel's own grouping, and nothing of its NIC's.

A host that runs the control loop has several by name (`NodePlan.processes`); theirs say which they are themselves.

What "CPU-free" is shown with: stop all of the host role's processes and watch the requests stream on (issue Thread).
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from testbed.experiment.outlines import SCHEDULER_PROCESS
from testbed.experiment.plan import Plan
from topologies import docker_host
from topologies.cells import Cells
from topologies.naming import Names


def software_pids(plan: Plan, node: str) -> list[int]:
    """Pids, in the host's counting, of every process of a node of a live run; empty when it has none.

    A container's first process, which only keeps it open, is among them. Raises KeyError for an unknown node.
    """
    plan.node(node)
    found = Cells(plan.label).processes(f"node-{node}")
    if found:
        return found
    docker = docker_host.engine_that_answers()
    return [] if docker is None else docker.processes(Names(plan).container(node))


def process_pids(plan: Plan, node: str) -> dict[str, int]:
    """Pid of each of the node's processes that lives, by the process's name; empty for a node that has no names.

    Raises KeyError for an unknown node.
    """
    names = [group[0] for group in plan.node(node).processes]
    found: dict[str, int] = {}
    for pid in software_pids(plan, node) if names else ():
        with suppress(OSError):  # it has ended
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
            if "--node" in words and f"emulators.{plan.node(node).role}" in words:
                name = words[words.index("--process") + 1] if "--process" in words else names[0]
                found[name] = pid
    return found


def scheduler_pid(plan: Plan, node: str) -> int | None:
    """Pid, in the host's counting, of the process of a GPU's node that its owner has started; None while there is none.

    It is known by the name that it has given itself (`emulators.device_owner`).
    """
    for pid in software_pids(plan, node):
        with suppress(OSError):  # it has ended
            if Path(f"/proc/{pid}/comm").read_text().strip() == SCHEDULER_PROCESS:
                return pid
    return None
