"""Drives a `NodeRun` from an asyncio loop, for nodes that speak HTTP; otherwise as `emulators.node`'s blocking loop.

    node = AsyncNode(run)                  # run is connected and attached
    await node.barrier()                   # False if the run was stopped first
    node.deliver("front_end", message)     # from a request handler
    await node.stopped()                   # returns at control/stop or SIGTERM; raises what a machine raised

Deadlines are kept by a timerfd, since asyncio's own timers round to whole milliseconds (platform.md §5). It does
not spin: the handlers of other requests need the core.
"""

from __future__ import annotations

import asyncio
import signal

from emulators.node import NodeRun
from emulators.promptness import settle
from emulators.timers import DeadlineTimer
from testbed.machine import Message

_BARRIER_POLL_S = 0.002


class AsyncNode:
    """The wall clock of one node inside a running asyncio loop."""

    def __init__(self, run: NodeRun) -> None:
        self.run = run
        self._loop = asyncio.get_running_loop()
        self._timer = DeadlineTimer()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self.run.stop)

    async def barrier(self) -> bool:
        """Announces the node and waits until the barrier opens; False if the run was stopped before."""
        self.run.announce()
        while (epoch := self.run.look_for_epoch()) is None:
            if self.run.stopping:
                return False
            await asyncio.sleep(_BARRIER_POLL_S)
        settle()
        self.run.start(epoch)
        self._loop.add_reader(self.run.wake_fd, self._take_turn)
        self._loop.add_reader(self._timer.fileno(), self._take_turn)
        if self.run.verbs is not None:
            self._loop.add_reader(self.run.verbs.completion_fd, self._take_turn)
        for fd in self.run.watched:
            self._loop.add_reader(fd, self._take_turn)
        self._take_turn()
        return True

    def deliver(self, to: str, message: Message) -> None:
        """Hands a message to a machine of the node; raises what the machine raises."""
        self.run.deliver(to, message)
        self._timer.set(self.run.next_turn() if self.run.prepare_sleep() else 0)

    async def stopped(self) -> None:
        """Waits for the end of the run. Raises what a machine raised in a turn."""
        try:
            await asyncio.shield(self._ended)
        finally:
            self.close()

    def close(self) -> None:
        """Takes the node out of the loop; `run.finish` stays the caller's."""
        if self._timer.fileno() < 0:
            return
        self._loop.remove_reader(self._timer.fileno())
        self._loop.remove_reader(self.run.wake_fd)
        if self.run.verbs is not None:
            self._loop.remove_reader(self.run.verbs.completion_fd)
        for fd in self.run.watched:
            self._loop.remove_reader(fd)
        self._timer.close()

    def _take_turn(self) -> None:
        if self._ended.done():
            return
        try:
            self._timer.clear()
            moment = self.run.turn()
            while not self.run.prepare_sleep() and not self.run.stopping:
                moment = self.run.turn()
            self._timer.set(moment)
        except Exception as error:  # noqa: BLE001  # handed to whoever awaits the end
            self._ended.set_exception(error)
            return
        if self.run.stopping:
            self._ended.set_result(None)
