"""Search of a whole run log, which the page does not hold: lines by level, node and text, newest first or in order.

Reads event files from their ends in blocks, so that the newest lines of a log of any length come at once, and stops at
a bound of bytes: the answer then says from where to go on. Knows event lines and nothing of what they mean.
"""

from __future__ import annotations

import heapq
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from testbed.events.log import LINE_LIMIT, log_files
from webui.runs.levels import ORDER, level_of

BLOCK = 1 << 18
MOST_BYTES = 128 << 20
"""Of all files together that one search reads."""
LONGEST_VALUE = 4000
"""Characters of a field that are shown; what is longer is cut with a mark (known fault F5)."""

Event = dict[str, Any]


class Place(NamedTuple):
    """A line's place in the one order (t, node, seq)."""

    t: int
    node: str
    seq: int

    @classmethod
    def parse(cls, text: str) -> Place:
        """Of `T:NODE:SEQ`. Raises ValueError."""
        t, _, rest = text.partition(":")
        node, _, seq = rest.rpartition(":")
        if not node:
            raise ValueError(f"{text[:60]!r} is no place of a line, as 1200:gpu0:17")
        return cls(int(t), node, int(seq))

    def __str__(self) -> str:
        return f"{self.t}:{self.node}:{self.seq}"


class Wanted(NamedTuple):
    """What a search is for."""

    level: str = "info"
    """The least; one of ORDER."""
    node: str = ""
    text: str = ""
    """In the kind, the node or any value; case does not matter."""


class Found(NamedTuple):
    """Lines, newest first."""

    events: list[Event]
    older: Place | None
    """Search on from before here; None when the beginning was reached."""


def search_log(events: Path, wanted: Wanted, *, before: Place | None = None, limit: int = 250) -> Found:
    """The newest `limit` lines that fit, of those before `before`."""
    budget = [MOST_BYTES]
    files = [path for path in log_files(events) if not wanted.node or path.stem == wanted.node]
    lines = heapq.merge(*(_newest(path, wanted, before, budget) for path in files), key=_place, reverse=True)
    found: list[Event] = []
    for place, event in lines:
        if event is None:  # a file whose share was used up; what came before in it is not known
            return Found(found, place)
        found.append(event)
        if len(found) == limit:
            return Found(found, place)
    return Found(found, None)


def _place(item: tuple[Place, Event | None]) -> Place:
    return item[0]


def _newest(
    path: Path, wanted: Wanted, before: Place | None, budget: list[int]
) -> Iterator[tuple[Place, Event | None]]:
    needle = _needle(wanted.text)
    line = b""
    with path.open("rb") as file:
        end = file.seek(0, 2) if before is None else _end_before(file, before)
        for line in _backwards(file, end, budget, needle):
            event = _event(line) if needle in line.lower() else None
            if event is None:
                continue
            place = place_of(event)
            if (before is None or place < before) and fits(event, wanted):
                yield place, shortened(event)
    stopped = _event(line) if budget[0] <= 0 else None
    if stopped is not None and stopped["seq"]:
        yield place_of(stopped), None


def place_of(event: Event) -> Place:
    """Where an event stands in the one order."""
    return Place(event["t"], event["node"], event["seq"])


def _end_before(file: BinaryIO, before: Place) -> int:
    """An offset in a file, at the end of a line: not far behind it all lines are at or after `before`."""
    low, high = 0, file.seek(0, 2)
    while high - low > BLOCK:
        middle = (low + high) // 2
        file.seek(middle)
        file.readline()
        event = _event(file.readline())
        if event is None or place_of(event) >= before:
            high = middle
        else:
            low = middle
    file.seek(high)
    file.readline()
    return file.tell()


def _needle(text: str) -> bytes:
    """As it stands in a line of JSON, lower case: what a line without it cannot match."""
    return json.dumps(text, ensure_ascii=False)[1:-1].lower().encode()


def _backwards(file: BinaryIO, place: int, budget: list[int], needle: bytes) -> Iterator[bytes]:
    """Whole lines from the one that ends at `place` to the first, until the budget is used up.

    Of a block without `needle` only the first line comes, which says how far the search is.
    """
    tail = b""
    while place > 0 and budget[0] > 0:
        length = min(BLOCK, place)
        place -= length
        budget[0] -= length
        file.seek(place)
        block = file.read(length) + tail
        if needle and needle not in block.lower() and block.count(b"\n", 0, LINE_LIMIT) > 1:
            first, oldest, _ = block.split(b"\n", 2)
            whole = [oldest]
        else:
            first, *whole = block.split(b"\n")
        tail = first if len(first) <= LINE_LIMIT else b""
        yield from (line for line in reversed(whole) if line)
    if place == 0 and tail:
        yield tail


def _event(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:  # half written, or damaged
        return None
    known = isinstance(event, dict) and isinstance(event.get("t"), int) and isinstance(event.get("node"), str)
    return event if known and isinstance(event.get("seq"), int) and isinstance(event.get("type"), str) else None


def fits(event: Event, wanted: Wanted) -> bool:
    """Whether a line is what is searched for."""
    if wanted.node and event["node"] != wanted.node:
        return False
    if ORDER.index(level_of(event)) < ORDER.index(wanted.level):
        return False
    text = wanted.text.lower()
    return not text or any(text in str(value).lower() for name, value in event.items() if name not in ("t", "seq"))


def shortened(event: Event) -> Event:
    """The event with its longest texts cut, and how much was cut said."""
    return {name: _cut(value) for name, value in event.items()}


def _cut(value: Any) -> Any:
    if not isinstance(value, str) or len(value) <= LONGEST_VALUE:
        return value
    return f"{value[:LONGEST_VALUE]} … ({len(value) - LONGEST_VALUE:,} characters more)"


def whole_log(events: Path, wanted: Wanted) -> Iterator[bytes]:
    """Every line that fits, as it was written, in the one order."""
    files = (_oldest(path) for path in log_files(events) if not wanted.node or path.stem == wanted.node)
    for _, line, event in heapq.merge(*files, key=lambda item: item[0]):
        if fits(event, wanted):
            yield line


def _oldest(path: Path) -> Iterator[tuple[Place, bytes, Event]]:
    with path.open("rb") as file:
        for line in file:
            event = _event(line)
            if event is not None:
                yield place_of(event), line, event
