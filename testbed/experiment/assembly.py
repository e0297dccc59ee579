"""The systems there are, and how a plan's nodes become machines: the composition root.

`SYSTEMS` is the one table. A row names a system's parameters, its page, the nodes that it needs and the function that
builds the machines of one of them. The simulation and the emulated processes call the same `assemble_node`, so both
run the same machines. A new system is a row in a module of its own, an experiment file and a page in docs/models.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from testbed.events.run_events import HostProvisioned
from testbed.experiment.baseline_systems import BASELINES
from testbed.experiment.blink_system import BLINK
from testbed.experiment.dualpath_system import DUALPATH
from testbed.experiment.host_driven_system import HOST_DRIVEN
from testbed.experiment.lanes_system import LANES
from testbed.experiment.outlines import NodeAssembly, Owner, Surroundings, System
from testbed.experiment.placed_system import PLACED
from testbed.experiment.plan import NodePlan, Plan
from testbed.network.memory_region import LocalMemory
from testbed.serving.text_model import bundled_text
from testbed.workload.agents import AGENTS, agents_of
from testbed.workload.client import OpenLoopClient
from testbed.workload.prompts import PromptSource
from testbed.workload.schedule import read_workload, schedule

SYSTEMS: dict[str, System] = {row.kind: row for row in (BLINK, HOST_DRIVEN, PLACED, DUALPATH, *BASELINES, LANES)}
"""Every system that an experiment can name."""


CLIENTS = {"text": "client", "agents": AGENTS}
"""The machine that a client node's first is, by what clients do."""


def parameters_of(plan: Plan) -> Any:
    """The system's parameters, as its row's class has them. Raises KeyError or msgspec.ValidationError."""
    return msgspec.convert(plan.parameters, SYSTEMS[plan.kind].parameters)


def provisions_of(plan: Plan) -> HostProvisioned:
    """What the plan's host provisions. Raises ValueError where the device has no room, or there is no host."""
    provision = SYSTEMS[plan.kind].provision
    if provision is None:
        raise ValueError(f"{plan.kind} has no host that provisions")
    return provision(parameters_of(plan))


def owner_of(plan: Plan, node: NodePlan, memories: Mapping[str, LocalMemory]) -> Owner | None:
    """The owner of the node's memory, where there is a scheduler on it that can be started anew."""
    owner = SYSTEMS[plan.kind].owner
    return owner(parameters_of(plan), memories) if owner is not None and node.role == "gpu" else None


def assemble_node(plan: Plan, node_name: str, surroundings: Surroundings) -> NodeAssembly:
    """The machines of one node of `plan`.

    Raises KeyError for a node or kind that there is none of, msgspec.ValidationError for a damaged plan, ValueError
    where a node that speaks text has no vocabulary, or one that plays agents has no trajectories.
    """
    node, row = plan.node(node_name), SYSTEMS[plan.kind]
    if node.role == "client" and row.clients == "agents":
        load = read_workload(plan.workload).trajectories
        if load is None:
            raise ValueError(f"{node_name} plays agents and the workload has none")
        return NodeAssembly((agents_of(load, plan.workload_seed),))
    if node.role == "client":
        if surroundings.vocabulary is None:
            raise ValueError(f"{node_name} speaks text and has no vocabulary")
        workload = read_workload(plan.workload)
        source = PromptSource(bundled_text(), surroundings.vocabulary.encode)
        return NodeAssembly((OpenLoopClient(schedule(workload, plan.workload_seed, source)),))
    if node.role == "host" and not node.processes:
        return NodeAssembly(())
    return row.assemble(plan, parameters_of(plan), node, surroundings)
