"""The placed servers' row: the machines of the host-driven servers at the places that the parameters say.

Nodes, queue pairs and names of neighbours follow from the routes of `testbed.baselines.placements`; nothing is decided
here. Where a leg crosses the network, the machine at its far end has a courier on this side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from testbed.baselines.host_driven_api import ApiServer
from testbed.baselines.host_driven_core import EngineCore
from testbed.baselines.host_driven_device import LaunchedDevice
from testbed.baselines.host_driven_worker import Worker
from testbed.baselines.host_messages import AddRequest, RequestsFailed, StepOutput, WithdrawRequest
from testbed.baselines.placed_parameters import PlacedCosts, PlacedParameters
from testbed.baselines.placed_payload import TOKEN_BYTES, HostRelay, PromptWriter, StoredInput
from testbed.baselines.placed_wires import Courier, Mail
from testbed.baselines.placements import (
    API,
    CORE,
    DEVICE,
    EMULATED,
    GPU,
    POINTS,
    RELAY,
    SERVER,
    STORED,
    WORKER,
    WRITER,
    Placement,
    travels_over_pcie,
    wired,
)
from testbed.experiment.outlines import (
    ConnectionOutline,
    NodeAssembly,
    NodeOutline,
    RegionOutline,
    Surroundings,
    System,
)
from testbed.experiment.plan import NodePlan, Plan
from testbed.experiment.surroundings import modelled_processor
from testbed.machine import Machine, Message, RemoteAddress
from testbed.serving.device_messages import StepDone, StepFailed
from testbed.serving.engine import Engine
from testbed.serving.host_work import ModelledProcessor
from testbed.serving.provisioning import provision
from testbed.serving.text_model import bundled_text_model
from testbed.units import GBIT_PER_S

PROMPTS = "prompts"
"""Name of the region of GPU memory that prompts are written into."""
_PORT = "cnic0"
_COURIERS = 40
"""Bits of a courier's tickets below its own number."""


def _nodes(parameters: PlacedParameters) -> tuple[NodeOutline, ...]:
    placement, route = parameters.placement(), parameters.route()
    pairs = wired(placement, route)
    beside = _attached(parameters)
    return (
        NodeOutline("client0", "client", "host", 512, ("front0",)),
        *(_outline(parameters, node, pairs, beside) for node in placement.nodes()),
    )


def _outline(
    parameters: PlacedParameters, node: str, pairs: Sequence[tuple[str, str]], beside: Mapping[str, str]
) -> NodeOutline:
    placement = parameters.placement()
    side = placement.side_of(node)
    peers = [peer for pair in pairs if node in pair for peer in pair if peer != node]
    ports = (*(("front0",) if node == SERVER else ()), *((_PORT,) if peers else ()))
    writes = node == GPU and WRITER in parameters.route().requests
    processes: tuple[tuple[str, ...], ...] = ()
    if side == "host":
        own = [one for one in parameters.route().machines() if placement.place_of(one) == node]
        grouped = [tuple(one for one in group if one in own) for group in PlacedCosts(parameters).processes()]
        rest = [(one,) for one in own if not any(one in group for group in grouped)]
        processes = tuple(group for group in (*grouped, *rest) if group)
    return NodeOutline(
        node,
        side,
        "host" if side == "host" else "hardware",
        2048 if processes else 512 if side == "host" else 768,
        ports,
        tuple(ConnectionOutline(_PORT, peer, _PORT) for peer in peers),
        (RegionOutline(PROMPTS, parameters.prompt_arena_tokens * TOKEN_BYTES),) if writes else (),
        attached=(beside[node],) if node in beside else (),
        processes=processes,
    )


def _attached(parameters: PlacedParameters) -> dict[str, str]:
    """The host and its device, where something passes between them over PCIe."""
    placement, route = parameters.placement(), parameters.route()
    for one, other, of_device in route.legs():
        here, there = placement.place_of(one), placement.place_of(other)
        if here != there and travels_over_pcie(placement, here, there, of_device=of_device):
            return {placement.host: GPU, GPU: placement.host}
    return {}


def _assemble(plan: Plan, parameters: PlacedParameters, node: NodePlan, surroundings: Surroundings) -> NodeAssembly:
    if surroundings.vocabulary is None:
        raise ValueError(f"{node.name} speaks text and has no vocabulary")
    placement = parameters.placement()
    machines = (*_couriers(parameters, node.name), *_machines(plan, parameters, node.name, surroundings))
    if placement.side_of(node.name) == "host":
        return NodeAssembly(machines, surroundings.processor or modelled_processor(plan, node))
    return NodeAssembly(machines, ModelledProcessor() if machines else None)


def _machines(plan: Plan, parameters: PlacedParameters, node: str, surroundings: Surroundings) -> Iterator[Machine]:
    """Those of the route that are on `node`, each with the names of the next ones as `node` knows them."""
    placement, route, costs = parameters.placement(), parameters.route(), PlacedCosts(parameters)
    vocabulary = surroundings.vocabulary
    assert vocabulary is not None

    def after(machine: str, path: Sequence[str]) -> str:
        follower = path[path.index(machine) + 1]
        return _called(placement, node, follower)

    for machine in route.machines():
        if placement.place_of(machine) != node:
            continue
        match machine:
            case "api":
                yield ApiServer(parameters, costs.api(), vocabulary=vocabulary, core=after(API, route.requests))
            case "core":
                blocks = provision(parameters).kv_blocks
                yield EngineCore(
                    parameters, costs.control(), kv_blocks=blocks, eos=vocabulary.eos, api=after(CORE, route.answers)
                )
            case "worker":
                yield Worker(parameters, costs.control(), device=after(WORKER, route.launches))
            case "device":
                engine = Engine(parameters.cost_model(), bundled_text_model(vocabulary))
                owner = after(DEVICE, route.ends)
                yield LaunchedDevice(parameters.graphs(), engine, executor=surroundings.executor, owner=owner)
            case "writer":
                (region,) = (one for one in plan.node(GPU).regions if one.name == PROMPTS)
                yield PromptWriter(
                    arena=RemoteAddress(region.address, region.key), tokens=parameters.prompt_arena_tokens, peer=GPU,
                    core=after(WRITER, route.requests), api=after(WRITER, route.answers),
                )  # fmt: skip
            case "relay":
                yield HostRelay(_relayed(parameters, after), costs.copy())
            case "stored":
                yield StoredInput(
                    work=costs.fetch(), size_bytes=parameters.stored_kib << 10,
                    rate_bits_per_s=parameters.store_gbit_per_s * GBIT_PER_S, core=after(STORED, route.requests),
                )  # fmt: skip


def _relayed(parameters: PlacedParameters, after: Callable[[str, Sequence[str]], str]) -> dict[type[Message], str]:
    """Who is next for each kind of message that passes the relay."""
    route = parameters.route()
    kinds: tuple[tuple[Sequence[str], tuple[type[Message], ...]], ...] = (
        (route.requests, (AddRequest, WithdrawRequest)),
        (route.answers, (StepOutput, RequestsFailed)),
        (route.ends, (StepDone, StepFailed)),
    )
    return {kind: after(RELAY, path) for path, those in kinds if RELAY in path for kind in those}


def _couriers(parameters: PlacedParameters, node: str) -> Iterator[Machine]:
    """The mail first, then one for each machine elsewhere that this node's machines have messages for."""
    placement, route = parameters.placement(), parameters.route()
    if not any(node in pair for pair in wired(placement, route)):
        return
    yield Mail()
    written = WRITER in route.requests
    known: set[str] = set()
    for one, other, of_device in route.legs():
        there = placement.place_of(other)
        if placement.place_of(one) != node or there == node or other in known:
            continue
        if travels_over_pcie(placement, node, there, of_device=of_device):
            continue
        known.add(other)
        behind = written and one in route.requests and route.requests.index(one) >= route.requests.index(WRITER)
        yield Courier(there, other, tickets=len(known) << _COURIERS, written=behind, api=API if node == SERVER else "")


def _called(placement: Placement, node: str, machine: str) -> str:
    """The name by which machines of `node` know `machine`."""
    place = placement.place_of(machine)
    return machine if place == node else f"{place}/{machine}"


def _notes(parameters: PlacedParameters, _rates: Mapping[str, int]) -> list[str]:
    placement = parameters.placement()
    axes = ", ".join(f"{axis} {getattr(placement, axis)}" for axis in placement.__struct_fields__)
    known = ", ".join(parameters.names()) or "of no published system"
    notes = [f"{axes} ({known}); {PlacedCosts(parameters).words()}; host loop of {parameters.loop_shape()}"]
    for name in parameters.names():
        point = POINTS[name]
        told = "an extrapolation, for it never ran token loops" if point.extrapolated else "as published"
        notes.append(f"the placement of {name}, {told}: {point.source}")
    return notes


def _simulated_only(parameters: PlacedParameters) -> list[str]:
    """Axes that no emulated node has."""
    placement = parameters.placement()
    if placement in EMULATED and not parameters.stored_kib:
        return []
    if parameters.stored_kib:
        return ["stored_kib"]
    return [f"{axis} = {getattr(placement, axis)}" for axis in placement.__struct_fields__]


PLACED = System(
    kind="placed",
    parameters=PlacedParameters,
    page="docs/models/placements.md",
    plan_nodes=_nodes,
    server=(SERVER, ApiServer.name),
    assemble=_assemble,
    provision=provision,
    notes=_notes,
    simulated_only=_simulated_only,
)
"""The row."""
