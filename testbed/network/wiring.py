"""What a simulated wire takes from a plan: ports, reliable connections and registered memory, by node.

A plan's type lives above this package (`testbed.experiment.plan`), so it is described here by what is read of it.
Knows no packets, no rates over time and no effects.
"""
# ruff: noqa: D102  # the fields of these protocols are explained in testbed.experiment.plan

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from testbed.machine import CompareSwap, FetchAdd, MachineError, Read, Send, Verb, Write
from testbed.network.connection import Connection
from testbed.network.host_design import HostDesign
from testbed.network.lanes import LaneTable
from testbed.network.memory_region import Access, LocalMemory, MemoryRegion, RegionTable
from testbed.network.routes import Routes
from testbed.units import Nanoseconds


class PlannedPort(Protocol):
    """`PortPlan`, as far as a wire reads it."""

    @property
    def interface(self) -> str: ...
    @property
    def fabric(self) -> str: ...
    @property
    def address(self) -> str: ...
    @property
    def rate_bits_per_s(self) -> int: ...


class PlannedFabric(Protocol):
    """`FabricPlan`, as far as a wire reads it."""

    @property
    def name(self) -> str: ...
    @property
    def roce(self) -> bool: ...
    @property
    def lanes(self) -> LaneTable | None: ...


class PlannedQueuePair(Protocol):
    """`QueuePairPlan`."""

    @property
    def peer(self) -> str: ...
    @property
    def interface(self) -> str: ...
    @property
    def number(self) -> int: ...
    @property
    def peer_number(self) -> int: ...
    @property
    def peer_address(self) -> str: ...
    @property
    def initial_psn(self) -> int: ...
    @property
    def peer_psn(self) -> int: ...
    @property
    def service_level(self) -> int: ...
    @property
    def peer_interface(self) -> str: ...


class PlannedRegion(Protocol):
    """`RegionPlan`."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    @property
    def address(self) -> int: ...
    @property
    def key(self) -> int: ...
    @property
    def bulk(self) -> bool: ...
    @property
    def dram(self) -> bool: ...


class PlannedNode(Protocol):
    """`NodePlan`, as far as a wire reads it."""

    @property
    def name(self) -> str: ...
    @property
    def ports(self) -> Sequence[PlannedPort]: ...
    @property
    def queue_pairs(self) -> Sequence[PlannedQueuePair]: ...
    @property
    def regions(self) -> Sequence[PlannedRegion]: ...
    @property
    def pcie_bits_per_s(self) -> int: ...
    @property
    def dram_bits_per_s(self) -> int: ...
    @property
    def host_design(self) -> HostDesign: ...


class WirePlan(Protocol):
    """`Plan`, as far as a wire reads it."""

    @property
    def path_mtu(self) -> int: ...
    @property
    def byte_scale(self) -> int: ...
    @property
    def fabrics(self) -> Sequence[PlannedFabric]: ...
    @property
    def nodes(self) -> Sequence[PlannedNode]: ...


class WireSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a simulated wire behaves beyond the plan's rates."""

    latency: Nanoseconds = 1_000
    """One way from NIC to NIC without serialisation: NICs, cables and one switch. Modelled: published ping-pong tests
    of ConnectX-6 class NICs give one to two microseconds for half a round trip; no measurement of ours."""
    retransmission_timeout: Nanoseconds = 4_096 << 14
    """As `ConnectionSettings`."""
    retry_limit: int = 7
    rnr_retry_limit: int = 6
    rnr_timer: int = 12
    receives: int = 64
    """SENDs that each queue pair has room for; a receive is posted anew as soon as its message is handed over."""
    receive_bytes: int = 1 << 20
    """Room of one receive."""


class WiringError(MachineError):
    """The plan and what is asked of it do not fit; our fault."""


class NoQueuePair(WiringError):
    """A verb for a peer to which the node has no reliable connection."""

    def __init__(self, node: str, peer: str, peers: Sequence[str]) -> None:
        self.node = node
        self.peer = peer
        super().__init__(f"{node} has no queue pair to {peer!r}; it has some to {', '.join(peers) or 'nobody'}")


class MissingMemory(WiringError):
    """The plan has a region that no memory was given for."""

    def __init__(self, node: str, region: str) -> None:
        self.node = node
        self.region = region
        super().__init__(f"the plan gives {node} a region {region!r}, but no memory was handed to the wire for it")


class DanglingQueuePair(WiringError):
    """A queue pair whose ends do not meet: `reason` says where it hangs."""

    def __init__(self, node: str, number: int, reason: str) -> None:
        self.node = node
        self.number = number
        super().__init__(f"queue pair {number:#x} of {node} {reason}")


class PortWiring(msgspec.Struct, frozen=True):
    """One RoCE port of a node."""

    node: str
    interface: str
    address: str
    rate_bits_per_s: int
    lanes: LaneTable | None


class Wiring:
    """A plan's RoCE ports, connections and regions, checked and indexed."""

    def __init__(self, plan: WirePlan, memories: Mapping[tuple[str, str], LocalMemory]) -> None:
        fabrics = {fabric.name: fabric for fabric in plan.fabrics if fabric.roce}
        self.path_mtu = plan.path_mtu
        self.ports: dict[str, PortWiring] = {}
        """By IPv4 address."""
        self.regions: dict[str, RegionTable] = {}
        """By node."""
        self.connections: dict[tuple[str, int], Connection] = {}
        """By node and own number."""
        self._routes = {node.name: Routes(node.queue_pairs) for node in plan.nodes}
        for node in plan.nodes:
            for port in node.ports:
                if port.fabric in fabrics:
                    self.ports[port.address] = PortWiring(
                        node.name, port.interface, port.address, port.rate_bits_per_s, fabrics[port.fabric].lanes
                    )
            self.regions[node.name] = RegionTable(_region(node.name, region, memories) for region in node.regions)
        for node in plan.nodes:
            self._add_connections(node)
        for (name, number), connection in self.connections.items():
            self._check_other_end(name, number, connection)

    def _add_connections(self, node: PlannedNode) -> None:
        addresses = {port.interface: port.address for port in node.ports if port.address in self.ports}
        for pair in node.queue_pairs:
            if pair.interface not in addresses:
                roce = ", ".join(addresses) or "none"
                raise DanglingQueuePair(node.name, pair.number, f"is on {pair.interface}; RoCE ports are {roce}")
            self.connections[node.name, pair.number] = Connection(
                pair.peer, pair.number, pair.peer_number, addresses[pair.interface], pair.peer_address,
                pair.initial_psn, pair.peer_psn, pair.service_level,
            )  # fmt: skip

    def _check_other_end(self, node: str, number: int, connection: Connection) -> None:
        """Both ends must name each other, or packets would be dropped until the retries are spent (fault D7)."""
        other = self.connections.get((connection.peer, connection.peer_number))
        if other is None:
            where = f"ends at {connection.peer_number:#x} of {connection.peer}, which has none such"
            raise DanglingQueuePair(node, number, where)
        ours = (node, number, connection.address, connection.peer_address, connection.initial_psn, connection.peer_psn)
        theirs = (other.peer, other.peer_number, other.peer_address, other.address, other.peer_psn, other.initial_psn)
        for field, own, named in zip(
            ("node", "number", "address", "peer address", "initial PSN", "peer PSN"), ours, theirs, strict=True
        ):
            if own != named:
                raise DanglingQueuePair(node, number, f"has {field} {own}, but its other end says {named}")

    def number_for(self, node: str, verb: Verb) -> int:
        """Own number of the queue pair that carries `verb`: that of its service level, else the first to its peer.

        Raises NoQueuePair.
        """
        routes = self._routes.get(node)
        number = routes.number(verb) if routes is not None else None
        if number is None:
            raise NoQueuePair(node, verb.peer, routes.peers if routes is not None else [])
        return number


def _region(node: str, region: PlannedRegion, memories: Mapping[tuple[str, str], LocalMemory]) -> MemoryRegion:
    memory = memories.get((node, region.name))
    if memory is None:
        raise MissingMemory(node, region.name)
    return MemoryRegion(region.key, region.address, region.size, Access.REMOTE, memory, region.bulk, region.name)


def take_data(verb: Verb) -> Verb:
    """The verb with its data copied if they could change: a wire takes a WRITE's bytes when it is posted, as the
    staging area of an emulated node does.
    """
    if isinstance(verb, Write) and not isinstance(verb.data, bytes):
        return msgspec.structs.replace(verb, data=bytes(verb.data))
    return verb


def message_bytes(verb: Verb) -> int:
    """Payload of the message that carries `verb`'s data; 8 for atomics."""
    match verb:
        case Write() | Send():
            return memoryview(verb.data).nbytes
        case Read():
            return verb.length
        case CompareSwap() | FetchAdd():
            return 8
        case _:
            raise TypeError(f"{type(verb).__name__} is no verb that a wire carries")
