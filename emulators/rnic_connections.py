"""The soft RNIC's part of plan.json: a node's queue pairs with both their ends, and the settings that they share.

It opens nothing; what a plan asks for that no NIC can do is refused here.
"""

from __future__ import annotations

from testbed.experiment.plan import NodePlan, Plan
from testbed.network.connection import Connection, ConnectionSettings, local_ack_timeout

RETRANSMISSION_TIMEOUT = 4_096 << 15
"""134 ms: a virtual machine may stall its processes for longer than the usual 67 ms; given up after about 1 s."""
RNR_TIMER = 24
"""41 ms, seven times: software that is kept from its core for a quarter of a second has not lost its letters. The
usual 0.64 ms would end a connection after 4 ms."""


class BadPlan(Exception):
    """The plan asks for what no NIC can do."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"plan.json: {reason}")


def connections_of(plan: Plan, node: NodePlan) -> list[tuple[str, Connection]]:
    """The interface and the two ends of each queue pair of a node. Raises `BadPlan`."""
    roce = {fabric.name for fabric in plan.fabrics if fabric.roce}
    addresses = {port.interface: port.address for port in node.ports if port.fabric in roce}
    connections = []
    for pair in node.queue_pairs:
        where = f"node {node.name}: queue pair {pair.number:#x}"
        if pair.interface not in addresses:
            raise BadPlan(f"{where} is on {pair.interface}, no RoCE port")
        try:
            connection = Connection(
                peer=pair.peer,
                number=pair.number,
                peer_number=pair.peer_number,
                address=addresses[pair.interface],
                peer_address=pair.peer_address,
                initial_psn=pair.initial_psn,
                peer_psn=pair.peer_psn,
                service_level=pair.service_level,
            )
        except ValueError as error:
            raise BadPlan(f"{where}: {error}") from error
        connections.append((pair.interface, connection))
    return connections


def settings_of(plan: Plan) -> ConnectionSettings:
    """How the queue pairs of a run's soft RNICs wait and try again."""
    told = plan.ack_timeout
    timeout = RETRANSMISSION_TIMEOUT if told is None else local_ack_timeout(told)
    return ConnectionSettings(
        path_mtu=plan.path_mtu, retransmission_timeout=timeout, rnr_retry_limit=7, rnr_timer=RNR_TIMER
    )
