"""Blink's row of the systems: a client, a DPU with the front end, a GPU with ring and scheduler, a host.

The machines are those of `testbed.blink`; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.blink.control_line import ControlLine
from testbed.blink.device import EmulatedDevice
from testbed.blink.frontend import FrontEnd
from testbed.blink.parameters import BlinkParameters
from testbed.blink.persistent_scheduler import PersistentScheduler
from testbed.blink.provisioning import provision
from testbed.experiment.outlines import (
    ConnectionOutline,
    NodeAssembly,
    NodeOutline,
    Owner,
    RegionOutline,
    Surroundings,
    System,
)
from testbed.experiment.plan import NodePlan, Plan
from testbed.machine import RemoteAddress
from testbed.network.memory_region import LocalMemory
from testbed.serving.cost_model import CostModel, read_profile
from testbed.serving.engine import Engine
from testbed.serving.text_model import bundled_text_model

RING = "ring"
"""Name of the memory region that holds Blink's ring."""
_DPU, _GPU = "dpu0", "gpu0"


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
    plan: Plan, parameters: BlinkParameters, node: NodePlan, surroundings: Surroundings
) -> NodeAssembly:
    memories, vocabulary, executor, _ = surroundings
    if vocabulary is None:
        raise ValueError(f"{node.name} speaks text and has no vocabulary")
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


def _owner(parameters: BlinkParameters, memories: Mapping[str, LocalMemory]) -> Owner:
    line = ControlLine(memories[RING], parameters.layout())
    return Owner(line.restart_asked, line.begin_life, parameters.restart_cost)


BLINK = System(
    kind="blink",
    parameters=BlinkParameters,
    page="docs/models/blink.md",
    plan_nodes=_blink_nodes,
    server=(_DPU, FrontEnd.name),
    assemble=_assemble_blink,
    provision=provision,
    owner=_owner,
)
"""The row."""
