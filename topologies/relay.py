"""A TCP relay from loopback in the host's own namespace to a server inside a run's (architecture §7, front network).

It listens first, then moves itself into the run's namespace for good: sockets keep the namespace in which they were
made, so its listening side stays outside and every connection that it opens starts inside. No veth, no address and no
firewall rule of the host is touched. Bytes are passed on as they come; an end of one side is passed on to the other,
so that a client that leaves is seen by the server.

    python -m topologies.relay --network PID --target ADDRESS:PORT --ready FILE [--port N]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from topologies.namespaces import enter_network

_CHUNK = 65_536
_CONNECT_PATIENCE_S = 10.0


class Relay:
    """Passes connections on to one target."""

    def __init__(self, listener: socket.socket, target: tuple[str, int]) -> None:
        self._listener = listener
        self._target = target
        self._tasks: set[asyncio.Task[None]] = set()

    async def serve(self) -> None:
        """Until cancelled."""
        server = await asyncio.start_server(self._accept, sock=self._listener)
        async with server:
            await server.serve_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            onward = asyncio.open_connection(*self._target)
            far_reader, far_writer = await asyncio.wait_for(onward, _CONNECT_PATIENCE_S)
        except (OSError, TimeoutError):
            writer.transport.abort()  # the client sees a reset, as from a server that is not there
            return
        try:
            for side in (writer, far_writer):
                side.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                side.transport.set_write_buffer_limits(high=_CHUNK)
            await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))
        except OSError:  # one side broke off, perhaps before a byte was passed on: so does the other
            far_writer.transport.abort()
            writer.transport.abort()
        finally:
            for side in (writer, far_writer):
                side.close()


async def _pass_on(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(_CHUNK):
        sink.write(data)
        await sink.drain()
    with suppress(OSError):
        sink.write_eof()


def listen(port: int = 0) -> socket.socket:
    """A listening socket on loopback, in the namespace of the caller."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    return listener


def main(arguments: Sequence[str] | None = None) -> int:
    """Relays until SIGTERM."""
    parser = argparse.ArgumentParser(description="Relay from loopback into a run's network namespace.")
    parser.add_argument("--network", type=int, required=True, metavar="PID", help="a process in the namespace")
    parser.add_argument("--target", required=True, metavar="ADDRESS:PORT", help="the server, as seen from there")
    parser.add_argument("--ready", type=Path, required=True, metavar="FILE", help="gets {\"port\": N} once it listens")
    parser.add_argument("--port", type=int, default=0, help="port on 127.0.0.1; 0: any that is free")
    options = parser.parse_args(arguments)
    address, _, port = options.target.rpartition(":")
    try:
        listener = listen(options.port)
        there = os.open(f"/proc/{options.network}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        enter_network(there)
        os.close(there)
    except OSError as fault:
        print(f"relay: {fault}", file=sys.stderr)
        return 4
    temporary = options.ready.with_suffix(".new")
    temporary.write_text(json.dumps({"port": listener.getsockname()[1]}) + "\n")
    temporary.replace(options.ready)
    signal.signal(signal.SIGTERM, _leave)
    with suppress(KeyboardInterrupt):
        asyncio.run(Relay(listener, (address, int(port))).serve())
    return 0


def _leave(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
