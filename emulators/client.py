"""The client node's process: sends the workload to the server over the front network and logs what comes back.

`python -m emulators.client --run RUNFOLDER --node NAME`. When and what is sent, and what counts as finished or
failed, is the machine's business (the same as in a simulation); this shell carries its messages to the server and the
answers back. An open-loop client (`testbed.workload.client`) speaks HTTP to the server's API, agents
(`testbed.workload.agents`) send turns over a link of frames (`emulators.front_link`): their traffic is counted, not
read. Times are read when bytes have been taken from the socket.

A request that fails is logged and never holds the others up; whatever the server does, the workload ends.
"""

from __future__ import annotations

import asyncio

from emulators.completions_client import CompletionsClient
from emulators.front_link import TurnClient
from emulators.http_node import live_with_http, stopped_or_failed
from emulators.node import NodeRun
from emulators.node_asyncio import AsyncNode
from emulators.node_life import live_in_turns, live_to_the_end
from testbed.experiment.assembly import SYSTEMS, assemble_node
from testbed.experiment.outlines import Surroundings
from testbed.experiment.server_address import API_PORT, front_address, server_of
from testbed.machine import Deliver, MachineError
from testbed.serving.requests import Abandon, Refused, Request, Submit, Tokens
from testbed.serving.tokens import deepseek_vocabulary
from testbed.units import Nanoseconds
from testbed.workload.agents import Agents
from testbed.workload.client import OpenLoopClient


class Courier:
    """Carries the machine's messages to the API and the answers back, one task a request."""

    def __init__(self, node: AsyncNode, machine: OpenLoopClient, api: CompletionsClient) -> None:
        self._node = node
        self._machine = machine
        self._api = api
        self._tasks: set[asyncio.Task[None]] = set()
        self._done = False
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Ends with what a task raised; that is our fault, since the server's are messages."""

    def carry(self, _: Nanoseconds, deliver: Deliver) -> None:
        """Takes what the machine sends. The request leaves in a task of its own, so the machine never waits."""
        match deliver.message:
            case Submit(request=request):
                task = asyncio.get_running_loop().create_task(self._send(request))
                self._tasks.add(task)
                task.add_done_callback(self._finished)
            case Abandon():
                pass
            case other:
                raise MachineError(f"the client has nobody to take a {type(other).__name__}")

    def look_whether_done(self) -> None:
        """Marks the workload's end, once."""
        if self._machine.done and not self._done:
            self._done = True
            self._node.run.mark_done()

    async def close(self) -> None:
        """Gives up what is still on its way."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self, request: Request) -> None:
        await self._api.send(request, self._take)

    def _take(self, message: Tokens | Refused) -> None:
        self._node.deliver(self._machine.name, message)
        self.look_whether_done()

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None and not self.failed.done():
            self.failed.set_exception(error)


def live(run: NodeRun) -> None:
    """The client's life, as the plan's system has its clients."""
    if SYSTEMS[run.plan.kind].clients == "agents":
        live_in_turns(run, play)
    else:
        live_with_http(run, send)


def play(run: NodeRun) -> None:
    """Agents send turns."""
    (machine,) = assemble_node(run.plan, run.name, Surroundings(run.memories)).machines
    if not isinstance(machine, Agents):
        raise MachineError(f"{run.name} of {run.plan.kind} has no agents")
    run.attach((machine,), outside=TurnClient(run, machine).carry)


async def send(node: AsyncNode) -> None:
    """An open-loop client sends prompts."""
    run = node.run
    (machine,) = assemble_node(run.plan, run.name, Surroundings(run.memories, deepseek_vocabulary())).machines
    if not isinstance(machine, OpenLoopClient):
        raise MachineError(f"{run.name} of {run.plan.kind} is no open-loop client")
    url = f"http://{front_address(server_of(run.plan))}:{API_PORT}"
    async with CompletionsClient(url, timeout_s=run.plan.time_limit_s) as api:
        courier = Courier(node, machine, api)
        run.attach((machine,), outside=courier.carry)
        try:
            if await node.barrier():
                courier.look_whether_done()
                await stopped_or_failed(node, courier.failed)
        finally:
            await courier.close()


if __name__ == "__main__":
    raise SystemExit(live_to_the_end(live))
