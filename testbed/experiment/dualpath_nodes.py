"""The nodes of a DualPath system for its parameters: engines, their CNICs and SNICs, storage, scheduler, agents.

P prefill nodes pe0…, D decode nodes de0…, storage0…, the central scheduler sched0 and the agents' client0. Engine i of
a node has cnic i and shares the node's SNICs, engine i taking snic i mod s. Letters go by the first port of a node;
KV goes from every CNIC of one side to every CNIC of the other, and from each CNIC to itself (host-device copies).
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.baselines.pool_client import POOL
from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.node_memory import BUFFER, hbm_region
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.service_levels import COLLECTIVE, CONTROL, KV
from testbed.dualpath.storage import staging_bytes
from testbed.experiment.outlines import ConnectionOutline, NodeOutline, RegionOutline
from testbed.experiment.plan import Plan
from testbed.serving.agentic_models import AGENTIC_MODELS
from testbed.units import GBYTE_PER_S

SCHEDULER_NODE = "sched0"
AGENTS_NODE = "client0"
STAGING = "staging"
"""Region of a storage node in which images wait for the next node of their chain."""


def tokens_region(engine: int) -> str:
    """Region into which peers write an engine's part of a collective."""
    return f"tokens{engine}"


def on_flow_wire(plan: Plan) -> bool:
    """Whether the wire carries true bytes, over PCIe links where the plan has some: an emulation's does neither."""
    return plan.clock == "simulated" and plan.wire == "flow"


def shape_of(parameters: DualPathParameters, scale: int) -> BlockShape:
    """The blocks of a system's model, with one byte of an image for `scale` true ones."""
    model = AGENTIC_MODELS[parameters.model].with_layers(parameters.layers)
    return BlockShape(model.layers, parameters.block_tokens, model.token_layer_bytes, scale)


def names(parameters: DualPathParameters, role: str) -> list[str]:
    """Names of the nodes of a role: prefill, decode or storage."""
    prefix, count = {
        "prefill": ("pe", parameters.prefill_nodes),
        "decode": ("de", parameters.decode_nodes),
        "storage": ("storage", parameters.storage_nodes),
    }[role]
    return [f"{prefix}{number}" for number in range(count)]


def plan_nodes(parameters: DualPathParameters) -> tuple[NodeOutline, ...]:
    """All nodes, agents first."""
    engines = [*names(parameters, "prefill"), *names(parameters, "decode")]
    return (
        NodeOutline(AGENTS_NODE, "client", "host", 512, ("front0",)),
        NodeOutline(
            SCHEDULER_NODE, "scheduler", "host", 512, ("front0", "cnic0"),
            tuple(ConnectionOutline("cnic0", name, "cnic0", CONTROL) for name in engines),
        ),
        *(_engine_node(parameters, name, "prefill") for name in names(parameters, "prefill")),
        *(_engine_node(parameters, name, "decode") for name in names(parameters, "decode")),
        *(_storage_node(parameters, name) for name in names(parameters, "storage")),
    )  # fmt: skip


def _engine_node(parameters: DualPathParameters, name: str, role: str) -> NodeOutline:
    prefill = role == "prefill"
    cnics = tuple(f"cnic{number}" for number in range(parameters.engines_per_node))
    snics = tuple(f"snic{number}" for number in range(parameters.storage_nics))
    # The smallest thing that has an image is a Layer Block.
    grain = shape_of(parameters, 1).layer_bytes
    buffer = parameters.prefill_buffer_bytes if prefill else parameters.decode_buffer_bytes
    hbm = parameters.prefill_hbm if prefill else parameters.hbm_kv_bytes
    regions = [RegionOutline(BUFFER, buffer, bulk=True, grain=grain, dram=True)]
    for engine in range(parameters.engines_per_node):
        regions.append(RegionOutline(hbm_region(engine), hbm, bulk=True, grain=grain))
        if exchanges(parameters):
            regions.append(RegionOutline(tokens_region(engine), _TOKENS_BYTES, bulk=True, grain=_TOKENS_GRAIN))
    if pool := pool_bytes(parameters):
        regions.append(RegionOutline(POOL, pool, bulk=True, grain=grain, dram=True))
    return NodeOutline(
        name,
        "prefill" if prefill else "decode",
        "hardware",
        1024,
        (*cnics, *snics),
        tuple(_connections(parameters, name, role, cnics, snics)),
        tuple(regions),
        pcie_bits_per_s=round(parameters.pcie_gbyte_s * GBYTE_PER_S),
        dram_bits_per_s=round(parameters.dram_gbyte_s * GBYTE_PER_S),
        host_design=parameters.host_design(_IN_CXL[parameters.cxl]),
    )


_IN_CXL: dict[str, tuple[str, ...]] = {"none": (), "buffers": (BUFFER,), "pool": (POOL,)}
"""Regions of an engine node by `cxl`."""


_TOKENS_BYTES = 1 << 30
"""True bytes for the parts of one collective: more than a batch of 8,192 tokens of 7,168 hidden values in FP8 to 8
experts each."""
_TOKENS_GRAIN = 4096


def pool_bytes(parameters: DualPathParameters) -> int:
    """True bytes of a node's part of the DRAM pool, less what squeezes it; 0 where there is none."""
    return max(0, parameters.dram_pool_bytes - parameters.dram_pool_squeeze_bytes)


def exchanges(parameters: DualPathParameters) -> bool:
    """Whether engines have collectives."""
    return parameters.collectives != "none" or parameters.tensor_parallel


def _connections(
    parameters: DualPathParameters, name: str, role: str, cnics: tuple[str, ...], snics: tuple[str, ...]
) -> Iterator[ConnectionOutline]:
    mine, others = names(parameters, role), names(parameters, "decode" if role == "prefill" else "prefill")
    yield ConnectionOutline("cnic0", SCHEDULER_NODE, "cnic0", CONTROL)
    for peer in (*mine, *others):
        if peer != name:
            yield ConnectionOutline("cnic0", peer, "cnic0", CONTROL)
    for own in cnics:
        yield ConnectionOutline(own, name, own, KV, messages=False)
        for peer in others:
            for far in cnics:
                yield ConnectionOutline(own, peer, far, KV, messages=False)
        if pool_bytes(parameters):
            for peer in mine:
                if peer != name:
                    yield ConnectionOutline(own, peer, own, KV, messages=False)
    if exchanges(parameters):
        for peer in mine if parameters.collectives == "role" else [name]:
            for own in cnics:
                for far in cnics:
                    if (peer, far) != (name, own):
                        yield ConnectionOutline(own, peer, far, COLLECTIVE)
    for peer in names(parameters, "storage"):
        for own in snics:
            yield ConnectionOutline(own, peer, "snic0", CONTROL)
            yield ConnectionOutline(own, peer, "snic0", KV, messages=False)


def _storage_node(parameters: DualPathParameters, name: str) -> NodeOutline:
    connections = []
    for peer in names(parameters, "storage"):
        if peer != name:
            connections.append(ConnectionOutline("snic0", peer, "snic0", CONTROL))
            connections.append(ConnectionOutline("snic0", peer, "snic0", KV, messages=False))
    for peer in (*names(parameters, "prefill"), *names(parameters, "decode")):
        for number in range(parameters.storage_nics):
            connections.append(ConnectionOutline("snic0", peer, f"snic{number}", CONTROL))
            connections.append(ConnectionOutline("snic0", peer, f"snic{number}", KV, messages=False))
    shape = shape_of(parameters, 1)
    staged = staging_bytes(shape, parameters.replicas, images=False)
    staging = RegionOutline(STAGING, staged, bulk=True, grain=shape.layer_bytes, dram=True)
    return NodeOutline(name, "storage", "host", 512, ("snic0",), tuple(connections), (staging,) if staged else ())
