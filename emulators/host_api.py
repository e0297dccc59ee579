"""A host's first process: the OpenAI-compatible API before the machine "api", and the life of the other processes.

The same HTTP as a DPU's (`emulators.openai_api`), in the same order: 503 until all that serves is there and the run
has begun. What the machine says goes to streams; what it asks of the engine core goes to that process.
"""

from __future__ import annotations

import asyncio
import time

from emulators.host_process import PROCESS_CODEC, HostProcess
from emulators.http_node import stopped_or_failed
from emulators.node_asyncio import AsyncNode
from emulators.openai_api import listen, make_application
from emulators.pcie_link import PATIENCE_S, PcieFault
from emulators.process_links import OtherProcesses
from emulators.server_port import FrontEndPort
from emulators.serving_side import model_card, way_in
from testbed.experiment.assembly import provisions_of
from testbed.experiment.server_address import API_PORT, front_address
from testbed.machine import Deliver, MachineError
from testbed.serving.requests import Refused, Tokens
from testbed.serving.text_model import bundled_text
from testbed.serving.tokens import deepseek_vocabulary
from testbed.units import Nanoseconds

_LOOK_S = 0.005


async def serve(node: AsyncNode) -> None:
    """The life of the API process of a host. Raises ProcessDied when another process of the node has ended."""
    run = node.run
    failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def otherwise(_: Nanoseconds, deliver: Deliver) -> None:
        if not isinstance(deliver.message, Tokens | Refused):
            raise MachineError(f"the API cannot take a {type(deliver.message).__name__}")
        port.take(deliver.message)

    run.emit(provisions_of(run.plan))
    process = HostProcess(run, otherwise)
    others = OtherProcesses(run)
    try:
        # They load what they need while this one does.
        others.start("emulators.host", process.links, PROCESS_CODEC)
        vocabulary = deepseek_vocabulary(seen=bundled_text())
        port = FrontEndPort(model_card(run.plan), vocabulary, way_in(node, failed))
        application = make_application(port, dilation=run.plan.dilation)
        runner, _ = await listen(application, front_address(run.node), API_PORT)
        try:
            process.attach(vocabulary)
            if await _all_there(node, process, others) and await node.barrier():
                port.open()
                await stopped_or_failed(node, failed)
        finally:
            port.close()
            await runner.cleanup()
    finally:
        others.end()
        node.close()
        process.close()


async def _all_there(node: AsyncNode, process: HostProcess, others: OtherProcesses) -> bool:
    """Waits for links, processor and processes; False if the run is stopped first. Raises ProcessDied, PcieFault."""
    limit = time.monotonic() + PATIENCE_S
    while not (process.pcie.attempt() and process.calibrated() and others.ready()):
        others.look()
        node.run.look_for_epoch()  # also notices that the run is being stopped
        if node.run.stopping:
            return False
        if time.monotonic() > limit:
            missing = [*process.pcie.missing(), *others.missing()]
            raise PcieFault(f"after {PATIENCE_S:g} s {node.run.name} still waits for {', '.join(missing)}")
        await asyncio.sleep(_LOOK_S)
    return True
