"""What two ends would otherwise have to agree on: addresses of ports, queue-pair numbers, sequence numbers, keys.

Everything follows from the trial's seed and label, so a plan can be made again. It decides no rates and no nodes.
"""

from __future__ import annotations

from testbed.experiment.fabrics import FABRICS, SMALL_FABRIC, members
from testbed.experiment.outlines import ConnectionOutline, NodeOutline
from testbed.experiment.packet_budget import kernel_rate
from testbed.experiment.plan import PortPlan, QueuePairPlan, RegionPlan
from testbed.units import image_bytes
from testbed.workload.streams import derived_seed

_QP_FLOOR = 0x000100
"""Queue-pair numbers 0 and 1 are management's (IBA 3.5.3); we leave some more free."""


class Ports:
    """Addresses of every port, by node and fabric."""

    def __init__(
        self,
        outlines: tuple[NodeOutline, ...],
        rates: dict[str, int],
        label: str,
        byte_scale: int,
        dilation: float,
    ) -> None:
        self._ports: dict[tuple[str, str], PortPlan] = {}
        number = 0
        for name, prefix, _ in FABRICS:
            for place, (node, interface) in enumerate(members(name, outlines), 1):
                number += 1
                high, low = divmod(place - 1, SMALL_FABRIC)
                self._ports[node, interface] = PortPlan(
                    interface=interface,
                    fabric=name,
                    address=f"{prefix}.{high}.{low + 1}",
                    # Locally administered; the label keeps two runs apart in captures.
                    mac=f"02:{label[0:2]}:{label[2:4]}:{label[4:6]}:{number >> 8:02x}:{number & 255:02x}",
                    rate_bits_per_s=rates[name],
                    kernel_rate_bits_per_s=kernel_rate(rates[name], byte_scale, dilation),
                )

    def of(self, node: str) -> tuple[PortPlan, ...]:
        """All ports of a node, in the order of the fabrics."""
        return tuple(port for (owner, _), port in self._ports.items() if owner == node)

    def on(self, node: str, interface: str) -> PortPlan:
        """One port of `node`."""
        return self._ports[node, interface]


class Pairs:
    """The queue pairs of every node: each connection of the outlines is one end of one."""

    def __init__(self, outlines: tuple[NodeOutline, ...], ports: Ports, seed: int) -> None:
        self._ports = ports
        self._seed = seed
        self._starts = {outline.name: derived_seed(seed, "queue pairs", outline.name) for outline in outlines}
        self._places = {
            outline.name: {connection: place for place, connection in enumerate(outline.connections)}
            for outline in outlines
        }

    def of(self, node: str) -> tuple[QueuePairPlan, ...]:
        """Those of `node`, in the order of its connections. Raises KeyError for one that the peer does not outline."""
        return tuple(self._pair(node, connection) for connection in self._places[node])

    def _pair(self, node: str, connection: ConnectionOutline) -> QueuePairPlan:
        other = connection._replace(interface=connection.peer_interface, peer=node, peer_interface=connection.interface)
        return QueuePairPlan(
            peer=connection.peer,
            interface=connection.interface,
            number=self._number(node, connection),
            peer_number=self._number(connection.peer, other),
            peer_address=self._ports.on(connection.peer, connection.peer_interface).address,
            initial_psn=_psn(self._seed, node, connection),
            peer_psn=_psn(self._seed, connection.peer, other),
            service_level=connection.service_level,
            peer_interface=connection.peer_interface,
            messages=connection.messages,
        )

    def _number(self, node: str, connection: ConnectionOutline) -> int:
        """24 bits, unique on the node: a random start and the connection's place among the node's own."""
        span = (1 << 24) - _QP_FLOOR
        return _QP_FLOOR + (self._starts[node] + self._places[node][connection]) % span


def _psn(seed: int, node: str, connection: ConnectionOutline) -> int:
    place = (connection.interface, connection.peer, connection.peer_interface, connection.service_level)
    return derived_seed(seed, "psn", node, *place) & 0xFFFFFF


def regions(outline: NodeOutline, seed: int, byte_scale: int) -> tuple[RegionPlan, ...]:
    """Places and keys of a node's regions; bulk ones have the size of their images."""
    planned: list[RegionPlan] = []
    # Pages of a 47-bit address space, as a process of the modelled host would have; the next region begins behind.
    address = (0x100 + derived_seed(seed, "addresses", outline.name) % 0x4000) << 32
    for place, region in enumerate(outline.regions):
        base = derived_seed(seed, "keys", outline.name) % (2**32 - 2**16 - 1) + 1
        size = region.size // region.grain * image_bytes(region.grain, byte_scale) if region.bulk else region.size
        planned.append(RegionPlan(region.name, size, address, base + place, bulk=region.bulk, dram=region.dram))
        address += -(-size >> 21) + 1 << 21
    return tuple(planned)
