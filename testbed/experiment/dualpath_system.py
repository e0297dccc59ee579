"""DualPath's row of the systems, and those that it is compared with: the machines of each node, put together.

Every one of them is the same machines with other parameters (`testbed.dualpath.parameters`), so what differs between
two runs is a parameter. Nothing is decided here; regions, ports and queue pairs are `dualpath_nodes`'.
"""

from __future__ import annotations

from collections.abc import Iterator

from testbed.baselines.pool_client import POOL, PooledStorage
from testbed.baselines.pool_scheduler import PooledScheduler
from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.chains import BadChains, chain_table
from testbed.dualpath.collectives import Collective, Member
from testbed.dualpath.engine_nodes import decode_machines, prefill_machines, staging_pages
from testbed.dualpath.foresight import foresight
from testbed.dualpath.local_messages import SCHEDULER
from testbed.dualpath.mail import Mail
from testbed.dualpath.modelled_disk import ModelledDisk
from testbed.dualpath.node_memory import NodeMemory
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.profiled import profiled
from testbed.dualpath.request_scheduler import RequestScheduler
from testbed.dualpath.storage import StorageServer
from testbed.dualpath.storage_client import StorageClient
from testbed.dualpath.traffic_manager import TrafficManager
from testbed.experiment.dualpath_nodes import (
    SCHEDULER_NODE,
    STAGING,
    exchanges,
    names,
    on_flow_wire,
    plan_nodes,
    pool_bytes,
    shape_of,
    tokens_region,
)
from testbed.experiment.outlines import NodeAssembly, Surroundings, System
from testbed.experiment.plan import NodePlan, Plan
from testbed.machine import Machine, RemoteAddress
from testbed.serving.step_times import StepTimes
from testbed.serving.timed_device import TimedDevice

_GBYTE = 10**9


def _assemble(plan: Plan, parameters: DualPathParameters, node: NodePlan, surroundings: Surroundings) -> NodeAssembly:
    """The machines of one node; its mail is the first."""
    if node.role == "scheduler":
        return NodeAssembly((Mail(), _scheduler(plan, parameters)))
    shape = shape_of(parameters, plan.byte_scale)
    traffic = TrafficManager(
        node.name,
        parameters,
        shape=shape,
        memories=surroundings.memories,
        regions=node.regions,
        pcie_on_wire=on_flow_wire(plan),
    )
    if node.role == "storage":
        server = _server(plan, parameters, node, surroundings)
        disk = ModelledDisk(shape, bytes_per_s=round(parameters.disk_gbyte_s * _GBYTE), latency=parameters.disk_latency)
        return NodeAssembly((Mail(), traffic, server), disk)
    memory = NodeMemory(node.name, surroundings.memories, _addresses(plan))
    engines = prefill_machines if node.role == "prefill" else decode_machines
    times = StepTimes.of(parameters.model, parameters.layers, parameters.compute_scale)
    machines: tuple[Machine, ...] = (
        Mail(),
        traffic,
        _storage_client(parameters, node, memory, shape),
        *engines(
            memory,
            parameters,
            shape=shape,
            times=times,
            scheduler=SCHEDULER_NODE,
            group=step_group(parameters, node.role, node.name),
        ),
        *_collectives(plan, parameters, node, memory),
    )
    return NodeAssembly(machines, TimedDevice(parameters.engines_per_node))


def step_group(parameters: DualPathParameters, role: str, node: str) -> list[str]:
    """Nodes whose engines take their steps together with those of `node`, the head first."""
    return names(parameters, role) if parameters.collectives == "role" else [node]


def _scheduler(plan: Plan, parameters: DualPathParameters) -> RequestScheduler:
    rates = [port.rate_bits_per_s for node in plan.nodes for port in node.ports if port.fabric == "storage"]
    known = profiled(parameters, min(rates))
    prefill, decode = names(parameters, "prefill"), names(parameters, "decode")
    if not parameters.dram_pool_bytes:
        return RequestScheduler(parameters, known, prefill, decode)
    shape = shape_of(parameters, plan.byte_scale)
    slots = {
        node.name: min(pool_bytes(parameters) // shape.full_bytes, region.size // shape.full_image)
        for node in plan.nodes
        for region in node.regions
        if region.name == POOL
    }
    return PooledScheduler(parameters, known, prefill, decode, slots)


def _server(plan: Plan, parameters: DualPathParameters, node: NodePlan, surroundings: Surroundings) -> StorageServer:
    staging = next((region for region in node.regions if region.name == STAGING), None)
    return StorageServer(
        node.name,
        shape_of(parameters, plan.byte_scale),
        nodes=names(parameters, "storage"),
        replicas=parameters.replicas,
        staging=None if staging is None else surroundings.memories[STAGING],
        where=RemoteAddress(0, 0) if staging is None else RemoteAddress(staging.address, staging.key),
    )


def _storage_client(
    parameters: DualPathParameters, node: NodePlan, memory: NodeMemory, shape: BlockShape
) -> StorageClient | PooledStorage:
    client = StorageClient(
        node.name,
        shape,
        nodes=names(parameters, "storage"),
        replicas=parameters.replicas,
        regions={region.name: RemoteAddress(region.address, region.key) for region in node.regions},
        memories=memory.memories,
        overhead=parameters.retrieval_overhead,
    )
    if not pool_bytes(parameters):
        return client
    return PooledStorage(
        client,
        memory,
        shape=shape,
        nodes=[*names(parameters, "prefill"), *names(parameters, "decode")],
        engines=parameters.engines_per_node,
        scheduler=SCHEDULER_NODE,
    )


def _collectives(plan: Plan, parameters: DualPathParameters, node: NodePlan, memory: NodeMemory) -> Iterator[Machine]:
    """A machine for each engine that exchanges tokens with others: those of its node, or of its role."""
    if not exchanges(parameters):
        return
    group = step_group(parameters, node.role, node.name)
    engines = [(name, engine) for name in group for engine in range(parameters.engines_per_node)]
    rooms = {f"{each.name}.{region.name}": region.size for each in plan.nodes for region in each.regions}
    members = [
        Member(
            name,
            engine,
            f"cnic{engine}",
            memory.address(name, tokens_region(engine)),
            rooms[f"{name}.{tokens_region(engine)}"],
        )
        for name, engine in engines
    ]
    for engine in range(parameters.engines_per_node):
        yield Collective(
            members,
            engines.index((node.name, engine)),
            memory=memory.memories[tokens_region(engine)],
            path_mtu=plan.path_mtu,
            scale=plan.byte_scale,
            true_bytes=on_flow_wire(plan),
        )


def _addresses(plan: Plan) -> dict[str, RemoteAddress]:
    """Where every region of every node begins, as de0.buffer or pe1.hbm3."""
    return {
        f"{node.name}.{region.name}": RemoteAddress(region.address, region.key)
        for node in plan.nodes
        for region in node.regions
    }


def _check(parameters: DualPathParameters) -> None:
    """Raises ValueError for parameters that do not go together."""
    try:
        chain_table(names(parameters, "storage"), parameters.replicas)
    except BadChains as fault:
        raise ValueError(str(fault)) from fault
    _check_memory(parameters)
    if parameters.placement == "affinity" and not parameters.dram_pool_bytes:
        raise ValueError("placement is affinity and there is no pool to be near to; it needs dram_pool_bytes")
    _check_what_ifs(parameters)


def _check_what_ifs(parameters: DualPathParameters) -> None:
    """Raises ValueError for what-ifs that change nothing together."""
    parameters.check_copies()
    if parameters.cxl == "pool" and not parameters.dram_pool_bytes:
        raise ValueError("cxl is pool and there is no pool to lie there; it needs dram_pool_bytes")
    if parameters.cxl != "none" and parameters.read_path == "bypass":
        raise ValueError(f"cxl is {parameters.cxl} and read_path is bypass, which moves no KV through any memory")


def _check_memory(parameters: DualPathParameters) -> None:
    """Raises ValueError for memory without a single block; a turn that does not fit in more fails when it comes."""
    block = shape_of(parameters, 1).full_bytes
    persisting = parameters.engines_per_node * staging_pages(parameters, parameters.decode_buffer_bytes // block)
    for name, kept in (
        ("hbm_kv_bytes", 0),
        ("prefill_hbm_kv_bytes", 0),
        ("prefill_buffer_bytes", 0),
        ("decode_buffer_bytes", persisting),
    ):
        size = getattr(parameters, name)
        if size is not None and size // block <= kept:
            beside = f", beside the {kept} that are kept for persisting" if kept else ""
            raise ValueError(f"{name}: {size}: room for at least one block of {block} bytes{beside}")


DUALPATH = System(
    kind="dualpath",
    parameters=DualPathParameters,
    page="docs/models/dualpath.md",
    plan_nodes=plan_nodes,
    server=(SCHEDULER_NODE, SCHEDULER),
    assemble=_assemble,
    check=_check,
    notes=foresight,
    clients="agents",
)
"""The row."""
