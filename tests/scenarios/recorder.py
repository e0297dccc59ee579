"""A TCP relay on loopback that keeps what clients said, byte for byte: one entry a request."""

from __future__ import annotations

import asyncio
import threading
from types import TracebackType


class Recorder:
    """Relays to a port of loopback while it is entered; `requests` are the heads and bodies of what was sent."""

    def __init__(self, target: int) -> None:
        self.port = 0
        self.requests: list[bytes] = []
        self._target = target
        self._ready = threading.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Recorder:
        self._thread.start()
        assert self._ready.wait(10)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._loop.call_soon_threadsafe(self._end.set)
        self._thread.join(10)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self._end = asyncio.Event()
        server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=1 << 24)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._end.wait()
        server.close()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        back = asyncio.ensure_future(_pass_back(far_reader, writer))
        try:
            while True:
                said = await _one_request(reader)
                self.requests.append(said)
                far_writer.write(said)
                await far_writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            far_writer.close()
            back.cancel()
            writer.close()


async def _one_request(reader: asyncio.StreamReader) -> bytes:
    """The bytes of one HTTP/1.1 request whose body, if any, has a Content-Length."""
    head = await reader.readuntil(b"\r\n\r\n")
    for line in head.split(b"\r\n"):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return head + await reader.readexactly(int(value))
    return head


async def _pass_back(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
    except ConnectionError:
        pass
    writer.close()
