"""Messages for named machines over a stream socket, as frames: between processes of a node, or of nodes over PCIe.

A frame is a length of four bytes, the name of the machine that it is for (after its own length in one byte), and the
message as its codec writes it. Neither end ever waits: what the socket does not take is kept and sent later. It knows
neither machines nor what their messages mean.
"""

from __future__ import annotations

import select
import socket
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from testbed.machine import Message

MOST_UNSENT = 64 << 20
"""Bytes that may wait for a peer that reads too slowly."""
_PIECE = 1 << 18
_LENGTH = 4
_MOST_FRAME = 1 << 26


class Codec(NamedTuple):
    """How the messages of one kind of link become bytes."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Message]
    """Raises msgspec.MsgspecError."""


class StreamLost(Exception):
    """The peer is gone, or what came from it is no frame; the text says which."""


class MessageStream:
    """One end."""

    def __init__(self, words: str, stream: socket.socket, codec: Codec) -> None:
        stream.setblocking(False)
        self.words = words
        """Who is at the other end, for people."""
        self.fd = stream.fileno()
        self.unsent = bytearray()
        """What the socket has not taken yet."""
        self._stream = stream
        self._codec = codec
        self._received = bytearray()

    def send(self, to: str, message: Message) -> None:
        """Sends `message` for the machine `to` at the other end, or keeps it. Raises `StreamLost`."""
        name, data = to.encode(), self._codec.encode(message)
        length = 1 + len(name) + len(data)
        self.unsent += b"".join((length.to_bytes(_LENGTH, "little"), bytes((len(name),)), name, data))
        self.flush()

    def flush(self) -> None:
        """Sends what the socket takes of what was kept. Raises `StreamLost`."""
        try:
            while self.unsent:
                del self.unsent[: self._stream.send(memoryview(self.unsent)[:_PIECE].tobytes())]
        except BlockingIOError:
            if len(self.unsent) > MOST_UNSENT:
                raise StreamLost(f"{self.words} leaves {len(self.unsent)} bytes unread") from None
        except OSError as fault:
            raise StreamLost(f"{self.words}: {fault.strerror or fault}") from None

    def receive(self) -> Iterator[tuple[str, Message]]:
        """What has come, as (machine, message). Raises `StreamLost` after the last of it if the peer is gone."""
        ended = self._read()
        place = 0
        while len(self._received) - place >= _LENGTH:
            length = int.from_bytes(self._received[place : place + _LENGTH], "little")
            if not 1 <= length <= _MOST_FRAME:
                raise StreamLost(f"{self.words} sent a frame of {length} bytes")
            end = place + _LENGTH + length
            if len(self._received) < end:
                break
            frame = bytes(self._received[place + _LENGTH : end])
            place = end
            body = 1 + frame[0]
            yield frame[1:body].decode(), self._codec.decode(frame[body:])
        del self._received[:place]
        if ended:
            raise StreamLost(ended)

    def close(self) -> None:
        """Closes the socket."""
        self._stream.close()

    def _read(self) -> str:
        """Takes in what is there; why nothing more will come, if so."""
        try:
            while data := self._stream.recv(_PIECE):
                self._received += data
        except BlockingIOError:
            return ""
        except OSError as fault:
            return f"{self.words}: {fault.strerror or fault}"
        return f"{self.words} has ended"


def wanted(stream: MessageStream) -> int:
    """The events of epoll that `stream` waits for."""
    return select.EPOLLIN | (select.EPOLLOUT if stream.unsent else 0)
