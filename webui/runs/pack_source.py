"""The lines of a run's logs in the one order, decoded without the schema: as the page reads them.

A line that is no event is left out and counted, as the page does (static/run/chunk.js). Half a line at the end of a
file is not read.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import msgspec

from testbed.events.log import SUFFIX, Cursor, log_files

_decode = msgspec.json.Decoder().decode


class Line(NamedTuple):
    """One event and the bytes it was read from. Tuples compare by (t, node, seq)."""

    t: int
    node: str
    seq: int
    event: dict[str, Any]
    raw: bytes


class _File:
    """One node's log, a line at a time."""

    def __init__(self, path: Path, source: MergedLines) -> None:
        self.name = path.name.removesuffix(SUFFIX)
        self.offset = 0
        self._file: BinaryIO = path.open("rb", buffering=1 << 20)
        self._source = source
        self._end = 0
        self.head: Line | None = None
        self.advance()

    def advance(self) -> Line | None:
        """The next event becomes `head`; None at the end."""
        self.offset = self._end
        for raw in self._file:
            if not raw.endswith(b"\n"):
                break
            self._end += len(raw)
            try:
                event = _decode(raw)
                self.head = Line(event["t"], event["node"], event["seq"], event, raw)
                event["type"]
            except (msgspec.MsgspecError, UnicodeDecodeError, TypeError, KeyError):
                self._source.bad += 1
                self.offset = self._end
                continue
            return self.head
        self.head = None
        self.close()
        return None

    def close(self) -> None:
        """Closes the file; closing twice is harmless."""
        self._file.close()


class MergedLines(Iterator[Line]):
    """Iterates over the events of all files by (t, node, seq); knows how far it has come."""

    def __init__(self, folder: Path) -> None:
        self.bad = 0
        paths = log_files(folder)
        self._size = sum(path.stat().st_size for path in paths)
        self._files = [_File(path, self) for path in paths]
        self._heap = [(file.head[:3], place) for place, file in enumerate(self._files) if file.head is not None]
        heapq.heapify(self._heap)
        self._at: _File | None = None
        self._until: tuple[int, str, int] | None = None
        self._returned: Line | None = None

    @property
    def cursor(self) -> Cursor:
        """The place after the last event that was handed out."""
        return Cursor({file.name: file.offset for file in self._files if file.offset})

    @property
    def share(self) -> float:
        """Of the bytes, as far as they have been read."""
        return sum(file.offset for file in self._files) / max(1, self._size)

    def put_back(self, line: Line) -> None:
        """The last line was not wanted yet: the cursor stands before it."""
        assert self._at is not None
        self._at.offset -= len(line.raw)
        self._returned = line

    def close(self) -> None:
        """Closes all files."""
        for file in self._files:
            file.close()

    def __next__(self) -> Line:
        if self._returned is not None:
            line, self._returned = self._returned, None
            return line
        # A file whose next event is still before all others' goes on; only a change of file costs a look at the heap.
        file = self._at
        if file is not None and file.head is not None and not (self._until is None or file.head[:3] <= self._until):
            heapq.heappush(self._heap, (file.head[:3], self._files.index(file)))
            file = None
        if file is None or file.head is None:
            if not self._heap:
                raise StopIteration
            _, place = heapq.heappop(self._heap)
            file = self._at = self._files[place]
            self._until = self._heap[0][0] if self._heap else None
        found = file.head
        assert found is not None
        file.advance()
        return found


@contextmanager
def merged_lines(folder: Path) -> Iterator[MergedLines]:
    """The events of the logs in `folder`, in order; the files are closed at the end of the context."""
    source = MergedLines(folder)
    try:
        yield source
    finally:
        source.close()
