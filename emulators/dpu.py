"""The DPU's process: the OpenAI-compatible API on the front network before the front-end machine.

`python -m emulators.dpu --run RUNFOLDER --node NAME`. HTTP is answered from the start, with 503 until the host has
provisioned the device and the run has begun. Requests go to the machine as messages, its messages go out as
server-sent events; prompts and tokens travel between this node and the GPU by RDMA through the node's soft RNIC.
"""

from __future__ import annotations

import asyncio

from emulators.http_node import run_http_node, stopped_or_failed
from emulators.node import NodeRun
from emulators.node_asyncio import AsyncNode
from emulators.openai_api import listen, make_application
from emulators.promptness import DPU_TURN, ask_for_turns
from emulators.provisioning import read_provisions
from emulators.server_port import FrontEndPort
from emulators.serving_side import model_card, way_in
from testbed.experiment.assembly import assemble_node, parameters_of
from testbed.experiment.outlines import Surroundings
from testbed.experiment.server_address import API_PORT, front_address
from testbed.machine import Deliver, MachineError
from testbed.serving.requests import Refused, Tokens
from testbed.serving.text_model import bundled_text
from testbed.serving.tokens import Vocabulary, deepseek_vocabulary
from testbed.units import Nanoseconds

_LOOK_S = 0.002


async def live(node: AsyncNode) -> None:
    """The DPU's life."""
    run = node.run
    ask_for_turns(DPU_TURN)
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    vocabulary = deepseek_vocabulary(seen=bundled_text(), tokeniser=parameters_of(run.plan).tokeniser)
    port = attach_front_end(node, vocabulary, failed)
    application = make_application(port, dilation=run.plan.dilation)
    runner, _ = await listen(application, front_address(run.node), API_PORT)
    try:
        if await _provisioned(run) and await node.barrier():
            port.open()
            await stopped_or_failed(node, failed)
    finally:
        port.close()
        await runner.cleanup()


def attach_front_end(node: AsyncNode, vocabulary: Vocabulary, failed: asyncio.Future[None]) -> FrontEndPort:
    """Assembles the node's machines; the port through which the API reaches the one that serves.

    `failed` gets what a machine raised on a request: nothing that it holds can be relied on after that.
    """
    run = node.run
    port = FrontEndPort(model_card(run.plan), vocabulary, way_in(node, failed))

    def outside(_: Nanoseconds, deliver: Deliver) -> None:
        if not isinstance(deliver.message, Tokens | Refused):
            raise MachineError(f"the API cannot take a {type(deliver.message).__name__}")
        port.take(deliver.message)

    assembly = assemble_node(run.plan, run.name, Surroundings(run.memories, vocabulary))
    run.attach(assembly.machines, assembly.accelerator, outside=outside)
    return port


async def _provisioned(run: NodeRun) -> bool:
    """True once the host has provisioned the device; False if the run is stopped first."""
    while read_provisions(run.folder, run.plan) is None:
        run.look_for_epoch()  # also notices that the run is being stopped
        if run.stopping:
            return False
        await asyncio.sleep(_LOOK_S)
    return True


if __name__ == "__main__":
    raise SystemExit(run_http_node(live))
