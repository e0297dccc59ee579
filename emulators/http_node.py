"""A whole life of a node whose software speaks HTTP: the asyncio counterpart of `emulators.node_life.run_node`.

    async def live(node: AsyncNode) -> None:
        node.run.attach(machines, accelerator, outside=…)
        if await node.barrier():
            await node.stopped()

    if __name__ == "__main__":
        raise SystemExit(run_http_node(live))        # --run RUNFOLDER --node NAME

How it ends, and with which exit code, is `emulators.node_life.live_to_the_end`'s.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from emulators.node import NodeRun
from emulators.node_asyncio import AsyncNode
from emulators.node_life import live_to_the_end

Live = Callable[[AsyncNode], Awaitable[None]]


def run_http_node(live: Live, arguments: Sequence[str] | None = None) -> int:
    """Opens the node's run, connects its NIC, lives, and logs how it ended. Returns the exit code."""
    return live_to_the_end(lambda run: live_with_http(run, live), arguments)


def live_with_http(run: NodeRun, live: Live) -> None:
    """Connects the NIC and lives in an asyncio loop."""
    run.connect()
    asyncio.run(_live(run, live))


async def stopped_or_failed(node: AsyncNode, failed: asyncio.Future[None]) -> None:
    """Waits for the end of the run. Raises what a machine raised in a turn, or what `failed` was given."""
    stopped = asyncio.ensure_future(node.stopped())
    try:
        await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
        for ended in (failed, stopped):
            if ended.done():
                ended.result()
    finally:
        stopped.cancel()


async def _live(run: NodeRun, live: Live) -> None:
    node = AsyncNode(run)
    try:
        await live(node)
    finally:
        node.close()
