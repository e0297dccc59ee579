"""Which processes are a node's: all that its software is, by the kernel's own grouping, and nothing of its NIC's.

What "CPU-free" is shown with: stop all of the host role's processes and watch the requests stream on (issue Thread).
"""

from __future__ import annotations

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
