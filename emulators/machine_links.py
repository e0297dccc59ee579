"""One process's ways to machines that are not in it: of the same node's other processes, and of nodes over PCIe.

    links = MachineLinks(run)                     # before the barrier
    links.join(stream, ("core",))                 # ways to machines behind a connection
    run.attach(machines, accelerator, outside=links.carry)

A message for a machine elsewhere leaves at once; what comes is delivered in the node's turns (`NodeRun.watch`), so
nothing here waits. A peer that is gone is logged, and what is for it falls on the floor: why it is gone is its own
log's matter, and the bench's (fault A13). Nothing is decided here.
"""

from __future__ import annotations

import select
from collections.abc import Callable, Collection

from emulators.message_stream import MessageStream, StreamLost, wanted
from emulators.node import NodeRun
from testbed.events.run_events import LineLogged
from testbed.machine import Deliver, MachineError
from testbed.units import Nanoseconds


class MachineLinks:
    """The ways of one process. `otherwise` takes what is for nobody that is known here."""

    def __init__(self, run: NodeRun, otherwise: Callable[[Nanoseconds, Deliver], None] | None = None) -> None:
        self._run = run
        self._otherwise = otherwise
        self._poller = select.epoll()
        self._streams: dict[int, MessageStream] = {}
        self._ways: dict[str, MessageStream] = {}
        run.watch(self._poller.fileno(), self.attend)

    def join(self, stream: MessageStream, machines: Collection[str], node: str = "") -> None:
        """`machines` are reached through `stream`; those of another `node` are called "node/machine" here.

        No machines: all of the other node are.
        """
        self._streams[stream.fd] = stream
        self._poller.register(stream.fd, wanted(stream))
        for machine in machines:
            self._ways[f"{node}/{machine}" if node else machine] = stream
        if node and not machines:
            self._ways[node] = stream

    def carry(self, now: Nanoseconds, deliver: Deliver) -> None:
        """Takes a message for a machine elsewhere. Raises MachineError for one that there is no way to."""
        node, _, machine = deliver.to.rpartition("/")
        stream = self._ways.get(deliver.to) or self._ways.get(node)
        if stream is None:
            if self._otherwise is None:
                raise MachineError(f"{self._run.log_name} knows no way to {deliver.to!r} at {now}")
            self._otherwise(now, deliver)
            return
        if stream.fd not in self._streams:
            return
        try:
            stream.send(machine, deliver.message)
        except StreamLost as lost:
            self._lose(stream, lost)
        else:
            if stream.unsent:
                self._poller.modify(stream.fd, wanted(stream))

    def attend(self) -> None:
        """Delivers what has come and sends what has waited; in the node's turns."""
        for fd, _ in self._poller.poll(0):
            stream = self._streams[fd]
            try:
                for machine, message in stream.receive():
                    self._run.deliver(machine, message)
                if stream.unsent:
                    stream.flush()
            except StreamLost as lost:
                self._lose(stream, lost)
            else:
                self._poller.modify(fd, wanted(stream))

    def close(self) -> None:
        """Closes every connection."""
        for stream in self._streams.values():
            stream.close()
        self._streams.clear()
        self._poller.close()

    def _lose(self, stream: MessageStream, lost: StreamLost) -> None:
        if self._streams.pop(stream.fd, None) is None:
            return
        self._poller.unregister(stream.fd)
        stream.close()
        self._run.look_for_epoch()  # also notices that the run is being stopped, and then an end is no loss
        if not self._run.stopping:
            self._run.emit(LineLogged(text=f"{self._run.log_name}: {lost}", severity="error"))
