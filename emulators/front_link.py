"""The front network for turns: agents and their server in processes of different nodes, over one TCP connection.

    link = TurnServer(run)                        # on the server's node, before the barrier
    run.attach(machines, accelerator, outside=link.carry)

    link = TurnClient(run, machine)               # on the agents' node
    run.attach((machine,), outside=link.carry)

Frames are those of `testbed.serving.turn_frames`; a machine's message for the other side goes to `carry`, and what
comes is delivered in the node's turns (`NodeRun.watch`), so nothing here waits. What a turn produced leaves at its
end, in one piece. A connection that is lost fails the turns that are open, each once, and those that follow: nothing
waits for ever. A peer that sends what is no frame is cut off. Nothing is decided here.
"""

from __future__ import annotations

import contextlib
import select
import socket

from emulators.node import NodeRun
from testbed.events.run_events import LineLogged
from testbed.experiment.server_address import TURNS_PORT, front_address, server_of
from testbed.machine import Deliver, MachineError
from testbed.serving.turn_frames import BadFrame, FrameReader, TurnMessage, frame
from testbed.serving.turns import SubmitTurn, TurnAdvanced, TurnFailed
from testbed.units import Nanoseconds
from testbed.workload.agents import Agents

CONNECT_S = 5.0
"""Wall time for the connection to stand; the server has listened since before the barrier."""
MOST_CLIENTS = 256
MOST_UNSENT = 64 << 20
"""Bytes for a peer that reads too slowly; more cuts it off."""
_PIECE = 1 << 18
_SILENCE_S = 30
"""Wall time after which a peer that acknowledges nothing is lost: its namespace may be gone without a word."""


class _Lost(Exception):
    """The connection is of no use any more; the text says why."""


class _Connection:
    """One end of a stream of frames that never waits."""

    def __init__(self, stream: socket.socket, poller: select.epoll) -> None:
        stream.setblocking(False)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENCE_S // 2)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENCE_S // 6)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _SILENCE_S * 1000)
        self.fd = stream.fileno()
        self._stream = stream
        self._poller = poller
        self._reader = FrameReader()
        self._unsent = bytearray()
        self._wanted = select.EPOLLIN
        poller.register(self.fd, self._wanted)

    def put(self, message: TurnMessage) -> None:
        """Takes `message` along at the next `flush`."""
        self._unsent += frame(message)

    def flush(self) -> None:
        """Sends what the socket takes. Raises `_Lost`."""
        try:
            while self._unsent:
                del self._unsent[: self._stream.send(memoryview(self._unsent)[:_PIECE].tobytes())]
        except BlockingIOError:
            pass
        except OSError as fault:
            raise _Lost(fault.strerror or str(fault)) from fault
        if len(self._unsent) > MOST_UNSENT:
            raise _Lost(f"{len(self._unsent)} bytes wait to be read")
        wanted = select.EPOLLIN | (select.EPOLLOUT if self._unsent else 0)
        if wanted != self._wanted:
            self._poller.modify(self.fd, wanted)
            self._wanted = wanted

    def take(self) -> list[TurnMessage]:
        """What has come, one piece at most. Raises `_Lost`."""
        try:
            data = self._stream.recv(_PIECE)
        except BlockingIOError:
            return []
        except OSError as fault:
            raise _Lost(fault.strerror or str(fault)) from fault
        if not data:
            raise _Lost("closed by the peer")
        try:
            return self._reader.take(data)
        except BadFrame as fault:
            raise _Lost(f"no frame: {fault}") from fault

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._poller.unregister(self.fd)
        self._stream.close()


class TurnServer:
    """The server's side: as many agents' nodes as come. `api` is the machine that takes turns."""

    def __init__(self, run: NodeRun, *, api: str = "api") -> None:
        """Listens on the node's front port. Raises OSError."""
        self._run = run
        self._api = api
        self._poller = select.epoll()
        self._listening = socket.create_server((front_address(run.node), TURNS_PORT), backlog=64)
        self._listening.setblocking(False)
        self._poller.register(self._listening.fileno(), select.EPOLLIN)
        self._connections: dict[int, _Connection] = {}
        self._asker: dict[str, _Connection | None] = {}
        run.watch(self._poller.fileno(), self.attend)

    def carry(self, now: Nanoseconds, deliver: Deliver) -> None:
        """Takes an answer to the agents who asked; one for agents who are gone is dropped. Raises MachineError."""
        message = deliver.message
        if not isinstance(message, TurnAdvanced | TurnFailed) or message.name not in self._asker:
            raise MachineError(f"{self._run.name} has no agents for {type(message).__name__} at {now}")
        connection = self._asker[message.name]
        if isinstance(message, TurnFailed) or message.done:
            del self._asker[message.name]
        if connection is not None:
            connection.put(message)

    def attend(self) -> None:
        """Takes what has come and sends what is to go."""
        for fd, _ in self._poller.poll(0):
            if fd == self._listening.fileno():
                self._accept()
            elif (connection := self._connections.get(fd)) is not None:
                self._take(connection)
        for connection in list(self._connections.values()):
            try:
                connection.flush()
            except _Lost as fault:
                self._drop(connection, str(fault))

    def close(self) -> None:
        """Ends all connections."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()
        self._listening.close()
        self._poller.close()

    def _accept(self) -> None:
        try:
            stream, _ = self._listening.accept()
        except OSError:
            # It went away before it was taken.
            return
        if len(self._connections) >= MOST_CLIENTS:
            stream.close()
            return
        connection = _Connection(stream, self._poller)
        self._connections[connection.fd] = connection

    def _take(self, connection: _Connection) -> None:
        try:
            for message in connection.take():
                if not isinstance(message, SubmitTurn) or message.turn.name in self._asker:
                    raise _Lost(f"an unexpected {type(message).__name__}")
                self._asker[message.turn.name] = connection
                self._run.deliver(self._api, message)
        except _Lost as fault:
            self._drop(connection, str(fault))

    def _drop(self, connection: _Connection, reason: str) -> None:
        del self._connections[connection.fd]
        connection.close()
        orphans = [name for name, asker in self._asker.items() if asker is connection]
        self._asker.update(dict.fromkeys(orphans))
        if orphans:
            text = f"agents lost with {len(orphans)} open turns: {reason}"
            self._run.emit(LineLogged(text, severity="warning"))


class TurnClient:
    """The agents' side. Connects in the first turn after the barrier; marks the node done when the agents are."""

    def __init__(self, run: NodeRun, agents: Agents) -> None:
        self._run = run
        self._agents = agents
        self._poller = select.epoll()
        self._connection: _Connection | None = None
        self._lost = ""
        self._unsent: list[SubmitTurn] = []
        self._open: dict[str, None] = {}
        self._done = False
        run.watch(self._poller.fileno(), self.attend)

    def carry(self, now: Nanoseconds, deliver: Deliver) -> None:
        """Takes a turn to the server. Raises MachineError."""
        message = deliver.message
        if not isinstance(message, SubmitTurn):
            raise MachineError(f"{self._run.name} has nobody to take a {type(message).__name__} at {now}")
        self._unsent.append(message)

    def attend(self) -> None:
        """Takes what has come and sends what is to go."""
        try:
            if self._connection is None and not self._lost:
                self._connection = self._connected()
            if self._connection is not None:
                self._exchange(self._connection)
        except _Lost as fault:
            self._lose(str(fault))
        if self._lost:
            self._fail_all()
        if self._agents.done and not self._done:
            self._done = True
            self._run.mark_done()

    def close(self) -> None:
        """Ends the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._poller.close()

    def _connected(self) -> _Connection:
        server = server_of(self._run.plan)
        try:
            stream = socket.create_connection((front_address(server), TURNS_PORT), timeout=CONNECT_S)
        except OSError as fault:
            raise _Lost(f"no connection: {fault.strerror or fault}") from fault
        return _Connection(stream, self._poller)

    def _exchange(self, connection: _Connection) -> None:
        if self._poller.poll(0):
            for message in connection.take():
                if isinstance(message, SubmitTurn) or message.name not in self._open:
                    raise _Lost(f"an unexpected {type(message).__name__}")
                if isinstance(message, TurnFailed) or message.done:
                    del self._open[message.name]
                self._run.deliver(self._agents.name, message)
        for message in self._unsent:
            self._open[message.turn.name] = None
            connection.put(message)
        self._unsent.clear()
        connection.flush()

    def _fail_all(self) -> None:
        names = [*self._open, *(message.turn.name for message in self._unsent)]
        self._open.clear()
        self._unsent.clear()
        for name in names:
            self._run.deliver(self._agents.name, TurnFailed(name, self._lost))

    def _lose(self, reason: str) -> None:
        """The server is gone: what is open fails, and so does what follows."""
        self._lost = f"the connection to {server_of(self._run.plan).name} is lost: {reason}"
        if not self._agents.done:
            self._run.emit(LineLogged(self._lost, severity="error"))
        if self._connection is not None:
            self._connection.close()
            self._connection = None
