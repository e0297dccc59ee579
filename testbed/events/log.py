"""The event log of a run: one append-only file of JSON lines for each node, and a reader's place in all of them.

A record is `{"t", "node", "seq", "type", …the event's fields}`; the header stands first, so that a line can be cut
behind it and the rest read strictly by the schema. `seq` counts from 0 without gaps, one writer a file. A file may
end in half a line while its writer is at work: readers leave that half for later. The console forwards whole
lines as bytes, so `tail_bytes` parses nothing.

This file knows files and lines; it does not know what any event means. Architecture §6.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

import msgspec

from testbed.events.schema import AnyEvent
from testbed.machine import Event
from testbed.units import MIB, Nanoseconds

SUFFIX = ".jsonl"
LINE_LIMIT = MIB
"""Longest line in bytes, its newline included; a longer event has its longest texts cut (fault F5)."""
CUT_MARK = "…[cut]"
_FLUSH_BYTES = 256 * 1024
_HEADER_END = b',"type":'
"""Ends the header: a node's name is a JSON string, in which these quotes could only stand escaped."""

_encode = msgspec.json.Encoder().encode
_decode_event = msgspec.json.Decoder(AnyEvent).decode


class LogError(Exception):
    """Base of what can be wrong with an event log."""


class BadRecord(LogError):
    """A whole line that is no record of the schema."""

    def __init__(self, where: str, line: int, reason: str) -> None:
        self.where = where
        self.line = line
        self.reason = reason
        super().__init__(f"{where}: line {line}: {reason}")


class LineTooLong(LogError):
    """An event that is longer than a line may be and has no text that could be cut."""

    def __init__(self, event: Event, length: int) -> None:
        self.event = event
        self.length = length
        super().__init__(f"{tag_of(event)} takes {length} bytes, a line has at most {LINE_LIMIT}")


class TimeWentBack(LogError):
    """A writer was given an event that is older than its last one; our fault, never the peer's."""

    def __init__(self, node: str, t: Nanoseconds, latest: Nanoseconds) -> None:
        self.node = node
        self.t = t
        self.latest = latest
        super().__init__(f"{node}: an event at {t} after one at {latest}")


class BadCursor(LogError):
    """A cursor that no reader handed out."""

    def __init__(self, text: str) -> None:
        self.text = text
        super().__init__(f"cursor {text[:80]!r} is not one that a reader of this log has handed out")


class Record(NamedTuple):
    """One event and its place. Tuples compare by (t, node, seq); see `testbed.events.ordering`."""

    t: Nanoseconds
    node: str
    seq: int
    event: Event


class _Header(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    t: Nanoseconds
    node: str
    seq: int


_decode_header = msgspec.json.Decoder(_Header).decode


def encode_record(t: Nanoseconds, node: str, seq: int, event: Event) -> bytes:
    """The line of one record, newline included, at most `LINE_LIMIT` bytes."""
    body = _encode(event)
    line = b'{"t":%d,"node":%s,"seq":%d,%s\n' % (t, _encode(node), seq, body[1:])
    if len(line) > LINE_LIMIT:
        return encode_record(t, node, seq, _shortened(event, len(line)))
    return line


def decode_record(line: bytes) -> Record:
    """The record in `line`. Raises msgspec.ValidationError or DecodeError if it is none of the schema."""
    end = line.find(_HEADER_END)
    if end < 0:
        raise msgspec.ValidationError("a record has t, node and seq before its type")
    header = _decode_header(line[:end] + b"}")
    return Record(header.t, header.node, header.seq, _decode_event(b"{" + line[end + 1 :]))


def tag_of(event: Event) -> str:
    """The tag of an event, e.g. `slot.moved`."""
    return str(event.__struct_config__.tag)


def _shortened(event: Event, line_length: int) -> Event:
    """`event` with its longest text, or list of texts, cut. Raises `LineTooLong` where there is none to cut."""
    texts = {name: value for name in event.__struct_fields__ if _is_text(value := getattr(event, name))}
    if not texts:
        raise LineTooLong(event, line_length)
    name = max(texts, key=lambda field: len(_encode(texts[field])))
    value = texts[name]
    # The share that may stay, with room for the mark and for characters whose escapes are unevenly spread.
    share = 1.0 - (line_length - LINE_LIMIT + 4096) / len(_encode(value))
    keep = int(len(value) * max(share, 0.0))
    if keep == 0 and len(value) <= 1:
        raise LineTooLong(event, line_length)
    cut = value[:keep] + CUT_MARK if isinstance(value, str) else (*value[:keep], CUT_MARK)
    return msgspec.structs.replace(event, **{name: cut})


def _is_text(value: object) -> bool:
    return isinstance(value, str) or (
        isinstance(value, tuple) and bool(value) and all(isinstance(item, str) for item in value)
    )


class EventWriter:
    """Appends one node's events to one file. Lines are buffered whole; `flush` hands them over in one write.

    A writer may be opened on a file that exists: it goes on at the next `seq`, after cutting off half a line that
    a killed writer left.
    """

    def __init__(self, path: Path | str, node: str) -> None:
        self.node = node
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._buffer: list[bytes] = []
        self._buffered = 0
        last = _repair(self.path)
        self._seq = 0 if last is None else last.seq + 1
        self._latest: Nanoseconds | None = None if last is None else last.t
        self._fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)

    @property
    def seq(self) -> int:
        """Number of the next record."""
        return self._seq

    def write(self, t: Nanoseconds, event: Event) -> None:
        """Takes one event that happened at `t`; on disk after the next `flush`, or when much has gathered.

        Raises `TimeWentBack` and takes nothing if `t` is before the last event's.
        """
        if self._latest is not None and t < self._latest:
            raise TimeWentBack(self.node, t, self._latest)
        line = encode_record(t, self.node, self._seq, event)
        self._seq += 1
        self._latest = t
        self._buffer.append(line)
        self._buffered += len(line)
        if self._buffered >= _FLUSH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Appends what is buffered, in one write. Raises OSError (disk full, …) and keeps what is not written."""
        if not self._buffer:
            return
        rest = memoryview(b"".join(self._buffer))
        self._buffer = []
        self._buffered = 0
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            self._buffer = [bytes(rest)]
            self._buffered = len(rest)
            raise

    def close(self) -> None:
        """Flushes and closes; closing twice is harmless."""
        if self._fd < 0:
            return
        try:
            self.flush()
        finally:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> EventWriter:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _repair(path: Path) -> Record | None:
    """Cuts half a line off the end of `path`, if there is one; returns the last whole record."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)
    if whole == 0:
        return None
    return decode_record(data[data.rfind(b"\n", 0, whole - 1) + 1 : whole])


def read_log(path: Path | str) -> Iterator[Record]:
    """The records of one file, in the order written; half a line at the end is left out.

    Raises `BadRecord` with file and line at the first whole line that is none.
    """
    with Path(path).open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.endswith(b"\n"):
                return
            try:
                yield decode_record(line)
            except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
                raise BadRecord(str(path), number, str(fault)) from fault


def check_log(path: Path | str) -> int:
    """Reads `path` whole and checks what a writer promises: one node, `seq` from 0 without gaps, `t` never back.

    Returns the number of records. Raises `BadRecord`.
    """
    expected, node, latest = 0, None, None
    for record in read_log(path):
        line = expected + 1
        if record.seq != expected:
            raise BadRecord(str(path), line, f"seq is {record.seq}, after {expected - 1} comes {expected}")
        if node is not None and record.node != node:
            raise BadRecord(str(path), line, f"node is {record.node!r} in the file of {node!r}")
        if latest is not None and record.t < latest:
            raise BadRecord(str(path), line, f"t goes back from {latest} to {record.t}")
        node, latest = record.node, record.t
        expected += 1
    return expected


def log_files(folder: Path | str) -> list[Path]:
    """The event files in `folder`, by name.

    Regular files alone: a link in a run folder from elsewhere would hand out what it points to.
    """
    folder = Path(folder)
    if folder.is_symlink():
        return []
    return sorted(path for path in folder.glob("*" + SUFFIX) if S_ISREG(path.lstat().st_mode))


class Cursor(msgspec.Struct, frozen=True):
    """A reader's place in a folder of event files: for each node, the byte after the last line it has had.

    Its text form (`str`, `Cursor.parse`) is opaque to whoever carries it.
    """

    offsets: Mapping[str, int] = {}

    def __str__(self) -> str:
        return ",".join(f"{node}:{offset}" for node, offset in sorted(self.offsets.items()))

    @classmethod
    def parse(cls, text: str) -> Cursor:
        """The cursor whose text form is `text`; the empty text is the beginning. Raises `BadCursor`."""
        offsets: dict[str, int] = {}
        for part in text.split(",") if text else ():
            node, colon, offset = part.rpartition(":")
            # isdecimal alone would take other scripts' digits; 18 digits fit any file.
            if not (colon and node and offset.isascii() and offset.isdecimal() and len(offset) <= 18):
                raise BadCursor(text)
            if node in offsets:
                raise BadCursor(text)
            offsets[node] = int(offset)
        return cls(offsets)


START = Cursor()


def tail_bytes(
    folder: Path | str, cursor: Cursor = START, limit: int = 4 * MIB
) -> tuple[list[tuple[str, bytes]], Cursor]:
    """Whole lines after `cursor`: (node, lines) for each file that has some, about `limit` bytes in all.

    The limit is shared out among the files that have news, so that none starves; a single line that is longer
    than a share is still handed out whole. The second value is where to go on.
    """
    waiting = _news(Path(folder), cursor)
    found: list[tuple[str, bytes]] = []
    offsets = dict(cursor.offsets)
    for place, (node, path, offset, size) in enumerate(waiting):
        share = max(limit // (len(waiting) - place), 1)
        lines = _whole_lines(path, offset, min(share, size - offset))
        limit -= len(lines)
        if lines:
            found.append((node, lines))
            offsets[node] = offset + len(lines)
        if limit <= 0:
            break
    return found, Cursor(offsets)


def tail(folder: Path | str, cursor: Cursor = START, limit: int = 4 * MIB) -> tuple[list[Record], Cursor]:
    """As `tail_bytes`, but decoded: file by file, each in its own order (`ordering.order` sorts).

    Raises `BadRecord`.
    """
    found, after = tail_bytes(folder, cursor, limit)
    records: list[Record] = []
    for node, lines in found:
        for number, line in enumerate(lines.split(b"\n")[:-1], 1):
            try:
                records.append(decode_record(line))
            except (msgspec.MsgspecError, UnicodeDecodeError) as fault:
                where = f"{node}{SUFFIX} from byte {cursor.offsets.get(node, 0)}"
                raise BadRecord(where, number, str(fault)) from fault
    return records, after


def _news(folder: Path, cursor: Cursor) -> list[tuple[str, Path, int, int]]:
    """(node, path, offset, size) of every file that has grown, those with the least news first."""
    news = []
    for path in log_files(folder):
        node = path.name.removesuffix(SUFFIX)
        offset = cursor.offsets.get(node, 0)
        size = path.stat().st_size
        if size > offset:
            news.append((node, path, offset, size))
    news.sort(key=lambda item: (item[3] - item[2], item[0]))
    return news


def _whole_lines(path: Path, offset: int, length: int) -> bytes:
    """Whole lines from `offset`, about `length` bytes of them; one whole line if the first is longer."""
    with path.open("rb") as file:
        file.seek(offset)
        data = file.read(length)
        end = data.rfind(b"\n") + 1
        if end:
            return data[:end]
        file.seek(offset)
        line = file.readline(2 * LINE_LIMIT)
        return line if line.endswith(b"\n") else b""
