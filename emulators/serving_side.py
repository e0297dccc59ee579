"""What a node that serves text has beside its machines: the model as the API shows it, and the way in to the machine.

For every process with the API before a machine: a DPU's, a host's, and one that has all nodes in itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from emulators.node_asyncio import AsyncNode
from emulators.server_port import ModelCard
from testbed.experiment.assembly import SYSTEMS, parameters_of
from testbed.experiment.plan import Plan
from testbed.machine import Message


def model_card(plan: Plan) -> ModelCard:
    """What `/v1/models` says of the plan's system."""
    parameters = parameters_of(plan)
    model = parameters.served_model()
    return ModelCard(id=model.name, root=model.name, max_model_len=parameters.context(), created=int(time.time()))


def way_in(node: AsyncNode, failed: asyncio.Future[None]) -> Callable[[Message], None]:
    """Hands the API's messages to the machine that serves.

    `failed` gets what the machine raised on one: nothing that it holds can be relied on after that.
    """
    _, machine = SYSTEMS[node.run.plan.kind].server

    def deliver(message: Message) -> None:
        try:
            node.deliver(machine, message)
        except Exception as error:
            if not failed.done():
                failed.set_exception(error)
            raise

    return deliver
