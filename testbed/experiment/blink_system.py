"""Blink's row of the systems: a client, a DPU with the front end, a GPU with ring and scheduler, a host.

The machines are those of `testbed.blink`; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.blink.control_line import ControlLine
from testbed.blink.device import EmulatedDevice
from testbed.blink.dispatcher import Dispatcher
from testbed.blink.frontend import FrontEnd
from testbed.blink.modelled_steps import times_of
from testbed.blink.parameters import BlinkParameters
from testbed.blink.persistent_scheduler import PersistentScheduler
from testbed.blink.share import Share
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
from testbed.machine import Machine, RemoteAddress
from testbed.network.memory_region import LocalMemory
from testbed.serving.engine import Engine
from testbed.serving.provisioning import provision
from testbed.serving.text_model import bundled_text_model
from testbed.serving.tokens import Vocabulary

RING = "ring"
"""Name of the memory region that holds Blink's ring."""
_DPU = "dpu0"


def _gpus(parameters: BlinkParameters) -> list[str]:
    return [f"gpu{number}" for number in range(parameters.gpus)]


def _blink_nodes(parameters: BlinkParameters) -> tuple[NodeOutline, ...]:
    """A client, a DPU with the front end, GPUs each with ring and scheduler, a host that only provisions."""
    ring = RegionOutline(RING, parameters.layout().size)
    ring_mib = -(-ring.size >> 20)
    level = parameters.service_level
    return (
        NodeOutline("client0", "client", "host", 512, ("front0",)),
        NodeOutline(
            _DPU,
            "dpu",
            "hardware",
            768,
            ("front0", "cnic0"),
            tuple(ConnectionOutline("cnic0", gpu, "cnic0", level) for gpu in _gpus(parameters)),
        ),
        # The process itself, vocabulary and text model included, has about 350 MiB.
        *(
            NodeOutline(
                gpu,
                "gpu",
                "hardware",
                768 + ring_mib,
                ("cnic0",),
                (ConnectionOutline("cnic0", _DPU, "cnic0", level),),
                (ring,),
            )
            for gpu in _gpus(parameters)
        ),
        NodeOutline("host0", "host", "host", 512),
    )


def _front_ends(plan: Plan, parameters: BlinkParameters, vocabulary: Vocabulary) -> tuple[Machine, ...]:
    """The DPU's machines: a front end a ring, and before several of them the one that chooses."""
    gpus = _gpus(parameters)
    rings = [next(region for region in plan.node(gpu).regions if region.name == RING) for gpu in gpus]
    where = [RemoteAddress(ring.address, ring.key) for ring in rings]
    if len(gpus) == 1:
        return (FrontEnd(parameters, vocabulary=vocabulary, ring=where[0], peer=gpus[0], to="api"),)
    names = [f"{FrontEnd.name}.{gpu}" for gpu in gpus]
    front_ends = (
        FrontEnd(
            parameters, vocabulary=vocabulary, ring=where[place], peer=gpu,
            to=Dispatcher.name, name=names[place], share=Share(place, len(gpus)),
        )
        for place, gpu in enumerate(gpus)
    )  # fmt: skip
    return (Dispatcher(parameters, names, to="api"), *front_ends)


def _assemble_blink(
    plan: Plan, parameters: BlinkParameters, node: NodePlan, surroundings: Surroundings
) -> NodeAssembly:
    memories, vocabulary, executor, _ = surroundings
    if vocabulary is None:
        raise ValueError(f"{node.name} speaks text and has no vocabulary")
    if node.role == "dpu":
        return NodeAssembly(_front_ends(plan, parameters, vocabulary))
    cost_model = parameters.cost_model()
    memory = memories[RING]
    scheduler = PersistentScheduler(
        parameters,
        memory=memory,
        cost_model=cost_model if executor is None else None,
        kv_blocks=provision(parameters).kv_blocks,
        eos=vocabulary.eos,
    )
    engine = Engine(cost_model, bundled_text_model(vocabulary), times_of(parameters, cost_model))
    return NodeAssembly((scheduler,), EmulatedDevice(parameters, memory=memory, engine=engine, executor=executor))


def _simulated_only(parameters: BlinkParameters) -> list[str]:
    names = ("speculation", "tensor_parallel", "expert_offload")
    return [name for name in names if getattr(parameters, name) is not None]


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
    simulated_only=_simulated_only,
)
"""The row."""
