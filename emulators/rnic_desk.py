"""The soft RNIC's desk: the unix socket where software connects, lends memory and leaves.

One software at a time, as one driver has one device. A second one is declined, until the first has gone: the kernel
closes a dead process's socket, which is all the notice there is after `kill -9`.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
from collections.abc import Callable, Collection
from pathlib import Path

from emulators import control_socket
from emulators.control_socket import Agreed, BadControlMessage, ControlMessage, Declined, Hello, Reconnect, Register
from emulators.rnic_journal import Journal
from emulators.rnic_software import Software
from emulators.shared_memory import SharedMemory, SharedMemoryError
from emulators.verbs_ring import QueueError
from testbed.experiment.plan import NodePlan
from testbed.network.memory_region import Access, MemoryRegion, RegionTable

_ANSWER_TIMEOUT_S = 1.0


class PathTaken(Exception):
    """Another NIC listens at the path."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(f"another soft RNIC listens at {path}")


class Desk:
    """Who is connected to the NIC of one node."""

    def __init__(
        self,
        path: Path,
        node: NodePlan,
        regions: RegionTable,
        journal: Journal,
        waits: select.epoll,
        reconnect: Callable[[int, int], str],
    ) -> None:
        """Listens at `path`, replacing what a dead NIC left there. Raises `PathTaken`, OSError.

        What the NIC must wake for is kept registered with `waits`. `reconnect` takes a queue pair to its connection
        of that number and says why not, or nothing.
        """
        self._path = path
        self._node = node
        self._regions = regions
        self._journal = journal
        self._plans = {region.name: region for region in node.regions}
        self._memories: dict[str, SharedMemory] = {}
        self._listener = _listen(path)
        self._guest: socket.socket | None = None
        """Connected, and has not said hello."""
        self._generation = 0
        self.software: Software | None = None
        self._waits = waits
        self._reconnect = reconnect
        waits.register(self._listener, select.EPOLLIN)

    def prepare_sleep(self) -> bool:
        """Arms the software's doorbell. False if it has posted already: do not sleep."""
        software = self.software
        if software is None:
            return True
        software.doorbell.arm()
        return not software.has_posted()

    def awake(self, readable: Collection[int]) -> None:
        """After a sleep: takes the doorbell off, and serves whoever stands at the socket."""
        software = self.software
        if software is not None:
            software.doorbell.disarm()
            if software.doorbell.fd in readable and len(readable) == 1:
                return
        if not readable:
            return
        # Who leaves is seen before who comes: a software that died and was started again finds its place free.
        if software is not None and software.connection.fileno() in readable:
            self._hear(software.connection)
        if self._guest is not None and self._guest.fileno() in readable:
            self._hear(self._guest)
        if self._listener.fileno() in readable:
            self._welcome()

    def dismiss(self, reason: str) -> None:
        """Ends the connection of the software; its regions stay."""
        if self.software is not None:
            self._journal.say(f"software (pid {self.software.pid}) is dismissed: {reason}", "error")
            self._leave(self.software.connection)

    def close(self) -> None:
        """Closes everything and removes the path."""
        for connection in (self._guest, self.software.connection if self.software else None):
            if connection is not None:
                self._leave(connection)
        self._listener.close()
        self._path.unlink(missing_ok=True)
        for region in tuple(self._regions):
            self._regions.deregister(region.key)
        for memory in self._memories.values():
            memory.close()

    def _welcome(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        connection.settimeout(_ANSWER_TIMEOUT_S)
        if self._guest is not None:
            self._leave(self._guest)
        self._guest = connection
        self._waits.register(connection, select.EPOLLIN)

    def _hear(self, connection: socket.socket) -> None:
        descriptors: list[int] = []
        try:
            heard = control_socket.receive(connection)
            if heard is None:
                self._leave(connection)
                return
            message, descriptors = heard
            control_socket.send(connection, self._answer(connection, message, descriptors))
        except (OSError, BadControlMessage) as error:
            self._journal.say(f"software broke off: {error}", "warning")
            self._leave(connection)
        finally:
            # Whoever takes a descriptor over takes it off the list.
            for descriptor in descriptors:
                os.close(descriptor)

    def _answer(self, connection: socket.socket, message: ControlMessage, descriptors: list[int]) -> ControlMessage:
        try:
            match message:
                case Hello() if connection is self._guest:
                    return self._hello(connection, message, descriptors)
                case Register() if self.software is not None and connection is self.software.connection:
                    return self._register(message, descriptors)
                case Reconnect() if self.software is not None and connection is self.software.connection:
                    reason = self._reconnect(message.queue_pair, message.turn)
                    return Declined(reason) if reason else Agreed()
        except (QueueError, SharedMemoryError) as error:
            return Declined(str(error))
        return Declined(f"{type(message).__name__} is not what comes now")

    def _hello(self, connection: socket.socket, message: Hello, descriptors: list[int]) -> ControlMessage:
        if message.node != self._node.name:
            return Declined(f"this is the NIC of {self._node.name}, not of {message.node}")
        if self.software is not None:
            return Declined(f"{self._node.name} has software already (pid {self.software.pid})")
        if len(descriptors) != 3:
            return Declined(f"hello needs 3 descriptors, not {len(descriptors)}")
        memory, doorbell, notification = descriptors
        descriptors.clear()
        self._generation += 1
        self.software = Software(
            connection, message.sizes, (memory, doorbell, notification), generation=self._generation, pid=message.pid
        )
        self._guest = None
        # Edge-triggered: a ring need not be read off the eventfd, which saves a system call a doorbell.
        self._waits.register(doorbell, select.EPOLLIN | select.EPOLLET)
        self._journal.say(f"software connected (pid {message.pid})")
        return Agreed()

    def _register(self, message: Register, descriptors: list[int]) -> ControlMessage:
        plan = self._plans.get(message.region)
        if plan is None:
            return Declined(f"{self._node.name} has no region {message.region!r}; it has {', '.join(self._plans)}")
        if message.size != plan.size:
            return Declined(f"region {plan.name} has {plan.size} bytes in the plan, not {message.size}")
        if len(descriptors) != 1:
            return Declined(f"register needs 1 descriptor, not {len(descriptors)}")
        memory = SharedMemory.attach(descriptors.pop(), plan.size)
        previous = self._memories.pop(plan.name, None)
        if previous is not None:
            self._regions.deregister(plan.key)
            previous.close()
        self._memories[plan.name] = memory
        self._regions.register(
            MemoryRegion(plan.key, plan.address, plan.size, Access.REMOTE, memory, plan.bulk, plan.name)
        )
        return Agreed()

    def _leave(self, connection: socket.socket) -> None:
        # The other side may hold copies of these descriptors, so closing alone would leave them registered.
        if self.software is not None and connection is self.software.connection:
            self._journal.say(f"software is gone (pid {self.software.pid})")
            self._forget(self.software.doorbell.fd)
            self._forget(connection.fileno())
            self.software.close()
            self.software = None
        elif connection is self._guest:
            self._guest = None
            self._forget(connection.fileno())
            connection.close()

    def _forget(self, descriptor: int) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._waits.unregister(descriptor)


def _listen(path: Path) -> socket.socket:
    path.parent.mkdir(parents=True, exist_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        if path.exists():
            if _somebody_listens(path):
                raise PathTaken(path)
            path.unlink()
        listener.bind(str(path))
        # Containers' software may run as another user; who reaches the path is the bench's business.
        path.chmod(0o666)
        listener.listen(8)
    except BaseException:
        listener.close()
        raise
    return listener


def _somebody_listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(_ANSWER_TIMEOUT_S)
        with contextlib.suppress(OSError):
            probe.connect(str(path))
            return True
    return False
