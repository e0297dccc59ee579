"""A whole life of a node whose software speaks HTTP: the asyncio counterpart of `emulators.node.run_node`.

    async def live(node: AsyncNode) -> None:
        node.run.attach(machines, accelerator, outside=…)
        if await node.barrier():
            await node.stopped()

    if __name__ == "__main__":
        raise SystemExit(run_http_node(live))        # --run RUNFOLDER --node NAME

A crash leaves its traceback in the node's log and exit code 4; a run folder that cannot be read is exit code 2.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence

from emulators.barrier import BadRunFolder
from emulators.node import EXIT_BAD_INPUT, EXIT_ERRORED, NodeRun, parse_arguments
from emulators.node_asyncio import AsyncNode

Live = Callable[[AsyncNode], Awaitable[None]]


def run_http_node(live: Live, arguments: Sequence[str] | None = None) -> int:
    """Opens the node's run, connects its NIC, lives, and logs how it ended. Returns the exit code."""
    folder, name = parse_arguments(arguments)
    try:
        run = NodeRun(folder, name)
    except BadRunFolder as error:
        print(error, file=sys.stderr)
        return EXIT_BAD_INPUT
    try:
        run.connect()
        asyncio.run(_live(run, live))
    except Exception as error:  # noqa: BLE001  # whatever it was, the log must have it
        run.record_crash(error)
        run.finish(EXIT_ERRORED, f"{type(error).__name__}: {error}")
        traceback.print_exc()
        return EXIT_ERRORED
    run.finish(0)
    return 0


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
