"""The events of each request by themselves, compressed, so that one request's story needs no search of the log.

A file of zlib streams; behind them, as JSON, where those of each request lie, and in the last eight bytes where that
begins. A request is known by the server's number (`r12`) and by its client's name (`nreq-12`). Events of a whole
launch name many requests and are in no story; when a token was published is in the pack.
"""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from types import TracebackType
from typing import Any

from webui.runs.pack_source import Line

PIECE = 64 * 1024
"""Bytes of one request that are gathered before they are compressed: bounds the memory of requests in flight."""
HELD = 64 << 20
"""Bytes that are held in all; above it the largest gathering is written."""
_NAMED = frozenset(
    ("request.sent", "request.finished", "request.failed", "token.received", "request.arrived", "request.refused")
)


class StoryFault(Exception):
    """A file of stories that cannot be read."""


def keys_of(event: dict[str, Any]) -> list[str]:
    """Whose stories an event belongs to."""
    keys = []
    request = event.get("request")
    if type(request) is int:
        keys.append(f"r{request}")
    turn = event.get("turn")
    name = turn if isinstance(turn, str) else event.get("name") if event["type"] in _NAMED else None
    if isinstance(name, str) and name:
        keys.append(f"n{name}")
    if event["type"] == "forward.finished" and event.get("kind") == "prefill":
        keys += [f"n{name}" for name in event.get("turns", ())]
    return keys


class Stories:
    """Writes the file; to be used as a context, whose end completes it."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._waiting: dict[str, list[bytes]] = {}
        self._sizes: dict[str, int] = {}
        self._held = 0
        self._places: dict[str, list[tuple[int, int]]] = {}
        self._at = 0

    def take(self, line: Line) -> None:
        """The next event of the log."""
        for key in keys_of(line.event):
            self._waiting.setdefault(key, []).append(line.raw)
            size = self._sizes[key] = self._sizes.get(key, 0) + len(line.raw)
            self._held += len(line.raw)
            if size >= PIECE:
                self._write(key)
        while self._held > HELD:
            self._write(max(self._sizes, key=self._sizes.__getitem__))

    def _write(self, key: str) -> None:
        data = zlib.compress(b"".join(self._waiting.pop(key)), 1)
        self._held -= self._sizes.pop(key)
        self._places.setdefault(key, []).append((self._at, len(data)))
        self._file.write(data)
        self._at += len(data)

    def __enter__(self) -> Stories:
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, at: TracebackType | None) -> None:
        if kind is None:
            for key in list(self._waiting):
                self._write(key)
            self._file.write(json.dumps(self._places).encode())
            self._file.write(self._at.to_bytes(8, "little"))
        self._file.close()


def story_lines(path: Path, keys: list[str]) -> list[bytes]:
    """The lines of the stories of `keys`, in the order of each. Raises StoryFault, OSError."""
    with path.open("rb") as file:
        try:
            file.seek(-8, 2)
            end = file.tell()
            start = int.from_bytes(file.read(8), "little")
            file.seek(start)
            places = json.loads(file.read(end - start))
            lines: list[bytes] = []
            for key in keys:
                for at, length in places.get(key, ()):
                    file.seek(at)
                    lines += zlib.decompress(file.read(length)).splitlines(keepends=True)
        except (ValueError, zlib.error, OSError) as fault:
            raise StoryFault(f"{path.name} cannot be read: {fault}") from fault
    return lines
