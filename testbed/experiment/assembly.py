"""The systems there are, and how a plan's nodes become machines: the composition root.

`SYSTEMS` is the one table. A row names a system's parameters, its page, the nodes that it needs and the function that
builds the machines of one of them. The simulation and the emulated processes call the same `assemble_node`, so both
run the same machines. A new system is a row here, an experiment file and a page in docs/models.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

import msgspec

from testbed.blink.device import EmulatedDevice
from testbed.blink.frontend import FrontEnd
from testbed.blink.parameters import BlinkParameters
from testbed.blink.persistent_scheduler import PersistentScheduler
from testbed.blink.provisioning import provision
from testbed.clocks.node_host import Accelerator
from testbed.events.schema import HostProvisioned
from testbed.experiment.plan import NodePlan, Plan, Role
from testbed.machine import Machine, RemoteAddress
from testbed.network.memory_region import LocalMemory
from testbed.serving.cost_model import CostModel, read_profile
from testbed.serving.engine import Engine
from testbed.serving.executor import Executor
from testbed.serving.text_model import bundled_text, bundled_text_model
from testbed.serving.tokens import Vocabulary
from testbed.workload.client import OpenLoopClient
from testbed.workload.prompts import PromptSource
from testbed.workload.schedule import read_workload, schedule

RING = "ring"
"""Name of the memory region that holds Blink's ring."""
_DPU, _GPU = "dpu0", "gpu0"


class RegionOutline(NamedTuple):
    """A memory region that a node offers to its peers."""

    name: str
    size: int
    """Bytes; true ones where `bulk`, and the plan has room for the images of so many (`testbed.units.image_bytes`)."""
    bulk: bool = False
    """Holds images of KV or weights: one byte for `byte_scale` true ones."""
    grain: int = 1
    """True bytes of the smallest thing that has an image of its own, where `bulk`."""
    dram: bool = False
    """Lies in the host's memory and not in a device's."""


class ConnectionOutline(NamedTuple):
    """One end of a queue pair. The other end must be outlined too, with the same service level."""

    interface: str
    peer: str
    """Name of the node; the node's own for loop-back."""
    peer_interface: str
    service_level: int = 0
    """The port's table maps it to a virtual lane."""
    messages: bool = True
    """Whether SENDs come over it; pairs that carry WRITEs and READs alone need no receives."""


class NodeOutline(NamedTuple):
    """A node that a system needs, before it has addresses."""

    name: str
    role: Role
    cores: Literal["host", "hardware"]
    memory_mib: int
    ports: tuple[str, ...] = ()
    """Interfaces, named after their fabric: front0; cnic0, cnic1, … on compute; snic0, … on storage."""
    connections: tuple[ConnectionOutline, ...] = ()
    regions: tuple[RegionOutline, ...] = ()
    pcie_bits_per_s: int = 0
    """As `NodePlan`."""
    dram_bits_per_s: int = 0
    """As `NodePlan`."""


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
    provision: Callable[[Any], HostProvisioned]
    """What the host does before it leaves the path. Raises ValueError where the device has no room for it."""
    assemble: Callable[[Plan, Any, NodePlan, Mapping[str, LocalMemory], Vocabulary, Executor | None], NodeAssembly]
    """The machines of one of its nodes; clients and hosts are the same for all systems. The executor, if any, runs the
    node's graphs in place of the cost model.
    """


def _blink_nodes(parameters: BlinkParameters) -> tuple[NodeOutline, ...]:
    """A client, a DPU with the front end, a GPU with ring and scheduler, a host that only provisions."""
    ring = RegionOutline(RING, parameters.layout().size)
    ring_mib = -(-ring.size >> 20)
    level = parameters.service_level
    return (
        NodeOutline("client0", "client", "host", 512, ("front0",)),
        NodeOutline(
            _DPU, "dpu", "hardware", 768, ("front0", "cnic0"), (ConnectionOutline("cnic0", _GPU, "cnic0", level),)
        ),
        # The process itself, vocabulary and text model included, has about 350 MiB.
        NodeOutline(
            _GPU,
            "gpu",
            "hardware",
            768 + ring_mib,
            ("cnic0",),
            (ConnectionOutline("cnic0", _DPU, "cnic0", level),),
            (ring,),
        ),
        NodeOutline("host0", "host", "host", 512),
    )


def _assemble_blink(
    plan: Plan,
    parameters: BlinkParameters,
    node: NodePlan,
    memories: Mapping[str, LocalMemory],
    vocabulary: Vocabulary,
    executor: Executor | None,
) -> NodeAssembly:
    if node.role == "dpu":
        (ring,) = (region for region in plan.node(_GPU).regions if region.name == RING)
        where = RemoteAddress(ring.address, ring.key)
        return NodeAssembly((FrontEnd(parameters, vocabulary=vocabulary, ring=where, peer=_GPU, to="api"),))
    model = parameters.served_model()
    cost_model = CostModel(read_profile(model.profile))
    memory = memories[RING]
    scheduler = PersistentScheduler(
        parameters,
        memory=memory,
        cost_model=cost_model if executor is None else None,
        kv_blocks=provision(parameters).kv_blocks,
        eos=vocabulary.eos,
    )
    engine = Engine(cost_model, bundled_text_model(vocabulary))
    return NodeAssembly((scheduler,), EmulatedDevice(parameters, memory=memory, engine=engine, executor=executor))


def parameters_of(plan: Plan) -> Any:
    """The system's parameters, as its row's class has them. Raises KeyError or msgspec.ValidationError."""
    return msgspec.convert(plan.parameters, SYSTEMS[plan.kind].parameters)


def provisions_of(plan: Plan) -> HostProvisioned:
    """What the plan's host provisions. Raises ValueError where the device has no room for it."""
    return SYSTEMS[plan.kind].provision(parameters_of(plan))


def assemble_node(
    plan: Plan,
    node_name: str,
    memories: Mapping[str, LocalMemory],
    vocabulary: Vocabulary,
    executor: Executor | None = None,
) -> NodeAssembly:
    """The machines of one node of `plan`. `memories` are the node's regions by name, `executor` its real device.

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
    return row.assemble(plan, parameters_of(plan), node, memories, vocabulary, executor)


SYSTEMS: dict[str, System] = {
    row.kind: row
    for row in (
        System(
            kind="blink",
            parameters=BlinkParameters,
            page="docs/models/blink.md",
            plan_nodes=_blink_nodes,
            server=(_DPU, FrontEnd.name),
            provision=provision,
            assemble=_assemble_blink,
        ),
    )
}
"""Every system that an experiment can name."""
