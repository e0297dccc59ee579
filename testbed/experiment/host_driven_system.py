"""The host-driven servers' row: a client, a host with API server, engine core and worker, a GPU it launches graphs on.

The machines are those of `testbed.baselines.host_driven_*`; nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.baselines.host_driven_api import ApiServer
from testbed.baselines.host_driven_core import EngineCore
from testbed.baselines.host_driven_device import LaunchedDevice
from testbed.baselines.host_driven_parameters import HostDrivenParameters, host_costs
from testbed.baselines.host_driven_worker import Worker
from testbed.experiment.outlines import NodeAssembly, NodeOutline, Surroundings, System
from testbed.experiment.plan import NodePlan, Plan
from testbed.experiment.surroundings import modelled_processor
from testbed.machine import Machine
from testbed.serving.engine import Engine
from testbed.serving.provisioning import provision
from testbed.serving.text_model import bundled_text_model
from testbed.units import MICROSECOND

_HOST, _GPU = "host0", "gpu0"


def _nodes(parameters: HostDrivenParameters) -> tuple[NodeOutline, ...]:
    processes = host_costs(parameters).loop.processes
    return (
        NodeOutline("client0", "client", "host", 512, ("front0",)),
        # Three processes, each with a vocabulary or a core's tables, beside the churn that stands for a server's work.
        NodeOutline(_HOST, "host", "host", 2048, ("front0",), attached=(_GPU,), processes=processes),
        NodeOutline(_GPU, "gpu", "hardware", 768, attached=(_HOST,)),
    )


def _assemble(plan: Plan, parameters: HostDrivenParameters, node: NodePlan, surroundings: Surroundings) -> NodeAssembly:
    vocabulary = surroundings.vocabulary
    if vocabulary is None:
        raise ValueError(f"{node.name} speaks text and has no vocabulary")
    if node.role == "gpu":
        engine = Engine(parameters.cost_model(), bundled_text_model(vocabulary))
        return NodeAssembly((LaunchedDevice(parameters.graphs(), engine, executor=surroundings.executor),))
    costs = host_costs(parameters)
    machines: tuple[Machine, ...] = (
        ApiServer(parameters, costs, vocabulary=vocabulary),
        EngineCore(parameters, costs, kv_blocks=provision(parameters).kv_blocks, eos=vocabulary.eos),
        Worker(parameters, costs),
    )
    return NodeAssembly(machines, surroundings.processor or modelled_processor(plan, node))


def _notes(parameters: HostDrivenParameters, _rates: Mapping[str, int]) -> list[str]:
    loop, factor, visits = host_costs(parameters)
    overlap = "beside the GPU's step" if loop.overlapped else "while the GPU waits"
    token = loop.token_work(visits) / MICROSECOND
    work = (
        f"host work of a step x {factor:g}: {loop.serial_us:g} us and {token:g} us a sequence while the GPU waits, "
        f"{loop.hidden_us:g} us and {loop.per_request_us:g} us a sequence {overlap}; of a prompt {token:g} us a token "
        "before admission"
    )
    return [f"{parameters.shape}: {work}; {loop.source}"]


HOST_DRIVEN = System(
    kind="host-driven",
    parameters=HostDrivenParameters,
    page="docs/models/host_driven.md",
    plan_nodes=_nodes,
    server=(_HOST, ApiServer.name),
    assemble=_assemble,
    provision=provision,
    notes=_notes,
)
"""The row."""
