"""What a node and the process of its accelerator say to each other: a JSON object a line, over a unix stream socket.

    node                                            device
    {"type": "open", "version": 1, "model": …}  →
                                                ←   {"type": "opened", "device": "…", "facts": ["…"]}
    {"type": "compute", "launch": 7, …}         →
                                                ←   {"type": "done", "launch": 7, "ns": 1834000}
                                                or  {"type": "failed", "launch": 7, "reason": "…"}
    {"type": "cancel"}                          →   (what has not begun is answered `failed`, reason `cancelled`)

The device computes one graph after the other, in order, and answers each `compute` exactly once. `ns` is what the
device itself measured for the graph alone, without queueing and without the socket. It knows no run and no clock.
"""

from __future__ import annotations

import socket
from typing import TypeAlias

import msgspec

VERSION = 1
LONGEST_LINE = 1 << 20


class Open(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="open"):
    """The node's first line."""

    version: int
    model: str
    """Name of the served model, as in the experiment."""
    batch: int
    """Most sequences of one decode step."""
    tokens: int
    """Most tokens of one sequence, prompt and answer together."""


class Compute(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="compute"):
    """One graph."""

    launch: int
    """Chosen by the node, unique among those under way."""
    kind: str
    """prefill or decode."""
    batch: int
    """Sequences that the graph was captured for."""
    sequence: int
    """Tokens a sequence that it was captured for."""
    contexts: tuple[int, ...]
    """For each sequence the tokens of KV that it reads; for a prefill, its prompt."""


class Cancel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="cancel"):
    """Everything that has not begun is given up."""


class Opened(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="opened"):
    """The device's answer to `open`."""

    device: str
    """What it is, for people."""
    facts: tuple[str, ...] = ()
    """What a reader of a result must know, as `driver 570.1`."""


class Done(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="done"):
    """A graph has been computed."""

    launch: int
    ns: int
    """Measured on the device."""


class Failed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="failed"):
    """A graph was not computed; to `open`, with launch 0: this device cannot serve it."""

    launch: int
    reason: str


ToDevice: TypeAlias = Open | Compute | Cancel
FromDevice: TypeAlias = Opened | Done | Failed


class BadLine(Exception):
    """The other side does not keep the protocol."""


class Gone(Exception):
    """The other side has closed the connection."""


class Lines:
    """One side's connection: whole lines out, whole lines in. Blocking or not, as the socket is."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._pending = b""

    def send(self, message: ToDevice | FromDevice) -> None:
        """Sends one line. Raises `Gone`, and BlockingIOError where the other side does not read."""
        try:
            self.socket.sendall(msgspec.json.encode(message) + b"\n")
        except (BrokenPipeError, ConnectionResetError) as fault:
            raise Gone("it closed the connection") from fault

    def receive(self) -> list[bytes]:
        """The lines that one `recv` completes; none where the socket would block. Raises `Gone`, `BadLine`."""
        try:
            data = self.socket.recv(1 << 16)
        except BlockingIOError:
            return []
        except ConnectionResetError as fault:
            raise Gone("it closed the connection") from fault
        if not data:
            raise Gone("it closed the connection")
        *lines, self._pending = (self._pending + data).split(b"\n")
        if len(self._pending) > LONGEST_LINE:
            raise BadLine(f"a line of more than {LONGEST_LINE} bytes")
        return lines


def from_device(line: bytes) -> FromDevice:
    """A line of the device. Raises `BadLine`."""
    try:
        return msgspec.json.decode(line, type=FromDevice)
    except msgspec.DecodeError as fault:
        raise BadLine(f"{line[:80]!r}: {fault}") from fault


def to_device(line: bytes) -> ToDevice:
    """A line of the node. Raises `BadLine`."""
    try:
        return msgspec.json.decode(line, type=ToDevice)
    except msgspec.DecodeError as fault:
        raise BadLine(f"{line[:80]!r}: {fault}") from fault
