"""Where a run's server listens: the address on the front network, the port of the OpenAI-compatible API, that of turns.

Follows architecture §7 (front network). The client, the server and the relay of `looplane serve` ask here, so that
they cannot disagree. It may not know HTTP, sockets or namespaces.
"""

from __future__ import annotations

from testbed.experiment.plan import NodePlan, Plan

API_PORT = 8000
"""Where an emulated server listens on its front port."""
TURNS_PORT = 8001
"""Where a server of turns listens there; the API's own port stays free for a front end that speaks text."""


def server_of(plan: Plan) -> NodePlan:
    """The node that serves: the first that is no client and has a port on the front network.

    Raises ValueError if there is none.
    """
    for node in plan.nodes:
        if node.role != "client" and any(port.fabric == "front" for port in node.ports):
            return node
    raise ValueError("the plan has no server with a port on the front network")


def front_address(node: NodePlan) -> str:
    """The node's address on the front network. Raises ValueError if it has none."""
    for port in node.ports:
        if port.fabric == "front":
            return port.address
    raise ValueError(f"{node.name} has no port on the front network")
