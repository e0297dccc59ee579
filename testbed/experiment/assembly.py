"""The systems there are, and how a plan's nodes become machines: the composition root.

`SYSTEMS` is the one table. A row names a system's parameters, its page, the nodes that it needs and the function that
builds the machines of one of them. The simulation and the emulated processes call the same `assemble_node`, so both
run the same machines. A new system is a row here, an experiment file and a page in docs/models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from testbed.blink.parameters import BlinkParameters
from testbed.clocks.node_host import Accelerator
from testbed.experiment.plan import NodePlan, Plan
from testbed.machine import Machine
from testbed.network.memory_region import LocalMemory
from testbed.serving.text_model import bundled_text
from testbed.serving.tokens import Vocabulary
from testbed.workload.client import OpenLoopClient
from testbed.workload.prompts import PromptSource
from testbed.workload.schedule import read_workload, schedule

RING = "ring"
"""Name of the memory region that holds Blink's ring."""


class RegionOutline(NamedTuple):
    """A memory region that a node offers to its peers."""

    name: str
    size: int
    bulk: bool = False


class NodeOutline(NamedTuple):
    """A node that a system needs, before it has addresses."""

    name: str
    role: Literal["client", "dpu", "gpu", "host", "storage", "prefill", "decode"]
    cores: Literal["host", "hardware"]
    memory_mib: int
    fabrics: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    """Nodes to which it has a queue pair on the compute fabric; both ends name each other."""
    regions: tuple[RegionOutline, ...] = ()


class NodeAssembly(NamedTuple):
    """What runs on one node."""

    machines: tuple[Machine, ...]
    accelerator: Accelerator | None = None


class System(NamedTuple):
    """One row of `SYSTEMS`."""

    kind: str
    parameters: type[msgspec.Struct]
    page: str
    """Its page, from the top of the source tree."""
    plan_nodes: Callable[[Any], tuple[NodeOutline, ...]]
    """The nodes for its parameters. The first one whose role serves an API answers the clients."""
    server: tuple[str, str]
    """(node, machine) that answers the clients."""
    assemble: Callable[[Plan, Any, NodePlan, Mapping[str, LocalMemory], Vocabulary], NodeAssembly]
    """The machines of one of its nodes; clients and hosts are the same for all systems."""


def _blink_nodes(parameters: BlinkParameters) -> tuple[NodeOutline, ...]:
    """A client, a DPU with the front end, a GPU with ring and scheduler, a host that only provisions."""
    ring = RegionOutline(RING, parameters.layout().size)
    ring_mib = -(-ring.size >> 20)
    return (
        NodeOutline("client0", "client", "host", 512, fabrics=("front",)),
        NodeOutline("dpu0", "dpu", "hardware", 768, fabrics=("front", "compute"), peers=("gpu0",)),
        # The process itself, vocabulary and text model included, has about 350 MiB.
        NodeOutline("gpu0", "gpu", "hardware", 768 + ring_mib, ("compute",), peers=("dpu0",), regions=(ring,)),
        NodeOutline("host0", "host", "host", 512),
    )


def _assemble_blink(
    plan: Plan,
    parameters: BlinkParameters,
    node: NodePlan,
    memories: Mapping[str, LocalMemory],
    vocabulary: Vocabulary,
) -> NodeAssembly:
    raise NotImplementedError


def assemble_node(
    plan: Plan, node_name: str, memories: Mapping[str, LocalMemory], vocabulary: Vocabulary
) -> NodeAssembly:
    """The machines of one node of `plan`. `memories` are the node's regions by name.

    Raises KeyError for a node or kind that there is none of, msgspec.ValidationError for a damaged plan.
    """
    node = plan.node(node_name)
    if node.role == "client":
        workload = read_workload(plan.workload)
        source = PromptSource(bundled_text(), vocabulary.encode)
        return NodeAssembly((OpenLoopClient(schedule(workload, plan.workload_seed, source)),))
    if node.role == "host":
        return NodeAssembly(())
    row = SYSTEMS[plan.kind]
    return row.assemble(plan, msgspec.convert(plan.parameters, row.parameters), node, memories, vocabulary)


SYSTEMS: dict[str, System] = {
    row.kind: row
    for row in (
        System(
            kind="blink",
            parameters=BlinkParameters,
            page="docs/models/blink.md",
            plan_nodes=_blink_nodes,
            server=("dpu0", "front_end"),
            assemble=_assemble_blink,
        ),
    )
}
"""Every system that an experiment can name."""
