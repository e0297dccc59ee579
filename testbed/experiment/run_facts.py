"""What the figures of a trial need to know of its plan: roles of nodes, rates of resources, and the model of hops.

A log says what was carried, not how much could have been; the plan does. Rates are true bits per second. Resources
are named as `transfer.finished` names them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.read_paths import PAPERS_PATH, DataPath, data_path
from testbed.experiment.assembly import parameters_of
from testbed.experiment.plan import NodePlan, Plan
from testbed.serving.agentic_models import AGENTIC_MODELS

SIDES: Mapping[str, str] = {"prefill": "pe", "decode": "de", "storage": "storage"}
"""Role of a node and its name in metrics."""


class HopModel(msgspec.Struct, frozen=True):
    """What `testbed.dualpath.read_paths` needs to say how many bytes a turn sends over which resource."""

    block_tokens: int
    full_bytes: int
    """True bytes of a Full Block as this run's images stand for it."""
    landing: str
    replicas: int
    persist: bool
    storage_nics: int
    path: DataPath = PAPERS_PATH


class RunFacts(msgspec.Struct, frozen=True):
    """Facts of one trial's plan."""

    roles: dict[str, str] = {}
    """By node."""
    rates: dict[str, int] = {}
    """By resource; what has no rate in the model is left out. Of a wire it is that of both ways together."""
    hop_model: HopModel | None = None
    """None where the system's data path is another one."""
    neighbour_threads: int = 0
    """Threads of all neighbours on the host's CPU set."""


NO_FACTS = RunFacts()


def facts_of(plan: Plan) -> RunFacts:
    """The facts of `plan`. Raises KeyError or msgspec.ValidationError for a plan of an unknown system."""
    return RunFacts(
        roles={node.name: node.role for node in plan.nodes},
        rates=dict(rate for node in plan.nodes for rate in _rates(node)),
        hop_model=_hop_model(parameters_of(plan), plan.byte_scale),
        neighbour_threads=sum(neighbour.threads for neighbour in plan.neighbours),
    )


def _rates(node: NodePlan) -> Iterator[tuple[str, int]]:
    if node.dram_bits_per_s:
        yield f"{node.name}.dram", node.dram_bits_per_s
    if node.host_design.cxl_bits_per_s:
        yield f"{node.name}.cxl", node.host_design.cxl_bits_per_s
    for port in node.ports:
        place, rate = f"{node.name}.{port.interface}", port.rate_bits_per_s
        if port.fabric == "storage":
            yield f"{place}.snic_rx", rate
            yield f"{place}.snic_tx", rate
        elif port.fabric == "compute":
            # Where PCIe is not modelled the NIC itself is what a loop-back crosses.
            pcie = node.pcie_bits_per_s or rate
            yield f"{place}.cnic_read", pcie
            yield f"{place}.cnic_write", pcie
            yield f"{place}.wire", 2 * rate
            if node.host_design.copies == "copy_engine":
                yield f"{place}.copy_engine", pcie


def _hop_model(parameters: object, byte_scale: int) -> HopModel | None:
    if not isinstance(parameters, DualPathParameters):
        return None
    if parameters.read_path == "bypass" or parameters.dram_pool_bytes or parameters.fetch_percent != 100:
        return None
    model = AGENTIC_MODELS[parameters.model].with_layers(parameters.layers)
    shape = BlockShape(model.layers, parameters.block_tokens, model.token_layer_bytes, byte_scale)
    return HopModel(
        block_tokens=parameters.block_tokens,
        full_bytes=shape.true_bytes(shape.full_image),
        landing=parameters.decode_landing,
        replicas=min(parameters.replicas, parameters.storage_nodes),
        persist=parameters.persist,
        storage_nics=parameters.storage_nics,
        path=data_path(parameters),
    )
