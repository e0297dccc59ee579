"""Lanes' row of the systems: prefill-like nodes that exchange tokens and a decode-like one that pushes KV into one.

For the experiment on isolation by virtual lanes (docs/models/isolation.md). It has no clients: the run ends when the
bursters have. Which service level the queue pairs have is the parameters' choice, which lane a level has the table's.
Nothing is decided here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.collectives import Collective, Member
from testbed.dualpath.foresight import what_ifs
from testbed.dualpath.isolation import (
    COPY_HOP,
    PAYLOAD,
    Burster,
    IsolationParameters,
    Pusher,
    moments,
    node_names,
)
from testbed.dualpath.mail import Mail
from testbed.dualpath.node_memory import BUFFER, hbm_region
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.traffic_manager import TrafficManager
from testbed.events.kv_events import PortForecast
from testbed.experiment.dualpath_nodes import on_flow_wire, tokens_region
from testbed.experiment.outlines import (
    ConnectionOutline,
    NodeAssembly,
    NodeOutline,
    RegionOutline,
    Surroundings,
    System,
)
from testbed.experiment.plan import NodePlan, Plan, RegionPlan
from testbed.machine import Machine, RemoteAddress
from testbed.network.connection import ConnectionSettings
from testbed.network.flow_wire import PACKET_OVERHEAD
from testbed.network.lanes import LaneTable
from testbed.network.port_forecast import Bulk, Bursts, burst_times, low_share
from testbed.units import GBYTE_PER_S, Nanoseconds, serialization_time
from testbed.workload.streams import stream

_PORT = "cnic0"
_HBM = hbm_region(0)
_KV_ROOM = 4 << 20
_FRAME = PAYLOAD + PACKET_OVERHEAD
"""A full packet's frame; the kernel's queues count so."""
_LETTER_FRAME = 120


def _plan_nodes(parameters: IsolationParameters) -> tuple[NodeOutline, ...]:
    members, pusher = node_names(parameters)
    collective, kv = parameters.levels
    # A member may be one collective ahead of another, so each sender has two places (`collectives`).
    tokens = 2 * parameters.members * parameters.burst_packets * PAYLOAD
    nodes = []
    for name in members:
        connections = [ConnectionOutline(_PORT, peer, _PORT, collective) for peer in members if peer != name]
        regions = [RegionOutline(tokens_region(group), tokens) for group in range(parameters.groups)]
        if name == members[-1]:
            connections.append(ConnectionOutline(_PORT, pusher, _PORT, kv, messages=False))
            regions.append(RegionOutline(_HBM, _KV_ROOM))
            if parameters.copies != "none":
                connections.append(ConnectionOutline(_PORT, name, _PORT, kv, messages=False))
                regions.append(RegionOutline(BUFFER, _KV_ROOM, dram=True))
        nodes.append(
            NodeOutline(
                name, "prefill", "hardware", 256, (_PORT,), tuple(connections), tuple(regions),
                pcie_bits_per_s=round(parameters.pcie_gbyte_s * GBYTE_PER_S),
                host_design=parameters.copying.host_design(),
            )
        )  # fmt: skip
    push = ConnectionOutline(_PORT, members[-1], _PORT, kv, messages=False)
    nodes.append(NodeOutline(pusher, "decode", "hardware", 256, (_PORT,), (push,), (RegionOutline(_HBM, _KV_ROOM),)))
    return tuple(nodes)


def _assemble(plan: Plan, parameters: IsolationParameters, node: NodePlan, surroundings: Surroundings) -> NodeAssembly:
    members, pusher = node_names(parameters)
    if node.name == pusher:
        return NodeAssembly(tuple(_push(plan, parameters, node, members[-1], surroundings)))
    place = members.index(node.name)
    due = moments(parameters, stream(plan.workload_seed, "bursts"))
    forecast = _forecast(plan, parameters, due) if place == len(members) - 1 else None
    machines: list[Machine] = [Mail()]
    for group in range(parameters.groups):
        regions = [_region(plan.node(name), tokens_region(group)) for name in members]
        group_members = [
            Member(name, group, _PORT, _address(region), region.size)
            for name, region in zip(members, regions, strict=True)
        ]
        memory = surroundings.memories[tokens_region(group)]
        machines.append(Collective(group_members, place, memory=memory, path_mtu=plan.path_mtu))
        machines.append(Burster(parameters, place, group, due, None if group else forecast))
    if node.name == members[-1] and parameters.copies != "none":
        machines += _copies(plan, parameters, node, surroundings)
    return NodeAssembly(tuple(machines))


def _copies(plan: Plan, parameters: IsolationParameters, node: NodePlan, surroundings: Surroundings) -> list[Machine]:
    """What copies from host to device at the last member."""
    region = _region(node, _HBM)
    return [
        TrafficManager(
            node.name,
            parameters.copying,
            shape=_shape(parameters),
            memories=surroundings.memories,
            regions=node.regions,
            pcie_on_wire=on_flow_wire(plan),
        ),
        Pusher(
            parameters,
            peer=f"{node.name}.{_PORT}",
            remote=_address(region),
            room=region.size,
            region=BUFFER,
            until=parameters.end(serialization_time(_FRAME, node.ports[0].rate_bits_per_s)),
            hop=COPY_HOP,
        ),
    ]


def _shape(parameters: IsolationParameters) -> BlockShape:
    return BlockShape(layers=1, tokens=1, token_layer_bytes=parameters.packets_of_kv * PAYLOAD)


def _push(
    plan: Plan, parameters: IsolationParameters, node: NodePlan, target: str, surroundings: Surroundings
) -> list[Machine]:
    if parameters.kv == "none":
        return [Mail()]
    region = _region(plan.node(target), _HBM)
    return [
        Mail(),
        TrafficManager(node.name, DualPathParameters(), shape=_shape(parameters), memories=surroundings.memories),
        Pusher(
            parameters,
            peer=f"{target}.{_PORT}",
            remote=_address(region),
            room=region.size,
            region=_HBM,
            until=parameters.end(serialization_time(_FRAME, node.ports[0].rate_bits_per_s)),
        ),
    ]


def _forecast(plan: Plan, parameters: IsolationParameters, due: Sequence[Nanoseconds]) -> PortForecast:
    """What the exact arbiter says of the port into the last member."""
    members, _ = node_names(parameters)
    (port,) = plan.node(members[-1]).ports
    table = next((fabric.lanes for fabric in plan.fabrics if fabric.name == port.fabric), None) or LaneTable()
    settings = ConnectionSettings()
    high, low = (table.lane_of(level) for level in parameters.levels)
    saturating = parameters.load == "saturating"
    bulk = Bulk(low, settings.window_packets, settings.ack_interval_packets, parameters.packets_of_kv)
    bursts = Bursts(high, parameters.burst_packets, _LETTER_FRAME, parameters.members - 1)
    # With the levels swapped a burst lasts longer than a period, so only the first one can be foretold.
    foretold = [] if saturating else due[:1] if parameters.kv == "wrong" else due
    times = sorted(
        burst_times(table, port.rate_bits_per_s, _FRAME, bursts, foretold, None if parameters.kv == "none" else bulk)
    )
    floor = low_share(table, low, {high: _FRAME, low: _FRAME}) if parameters.kv == "own" else 0.0
    return PortForecast(
        kv=parameters.kv,
        rate_bits_per_s=port.rate_bits_per_s,
        frame_bytes=_FRAME,
        window_packets=settings.window_packets,
        burst_p50=times[len(times) // 2] if times else 0,
        burst_p99=times[-(-len(times) * 99 // 100) - 1] if times else 0,
        floor_ppm=round(floor * 1_000_000),
        saturating=saturating,
    )


def _region(node: NodePlan, name: str) -> RegionPlan:
    return next(region for region in node.regions if region.name == name)


def _address(region: RegionPlan) -> RemoteAddress:
    return RemoteAddress(region.address, region.key)


def _check(parameters: IsolationParameters) -> None:
    """Raises ValueError for ways of copies that change nothing together."""
    parameters.copying.check_copies()


def _notes(parameters: IsolationParameters, _rates: Mapping[str, int]) -> list[str]:
    return [] if parameters.copies == "none" else what_ifs(parameters.copying)


LANES = System(
    kind="lanes",
    parameters=IsolationParameters,
    page="docs/models/isolation.md",
    plan_nodes=_plan_nodes,
    server=("", ""),
    assemble=_assemble,
    check=_check,
    notes=_notes,
)
"""The row."""
