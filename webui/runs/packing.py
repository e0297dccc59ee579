"""The packed timeline: one file with all that the run page knows of a run once every event of it has been folded.

The page folds a log of some megabytes as it comes. Of a million tokens the log is half a gigabyte, nearly all of it
in five kinds of event that come for each token. A pack holds these as columns, already folded the way that
`webui/static/run` folds them, and every other event as it is, column by column, for the page to fold itself. So the
page's state from a pack is its state from the log, and a pack of the events before a cursor plus the events after it
is the whole (tests/webui/static/test_pack.py). docs/models/timeline.md has the layout.

This file knows lines of a log and bytes of a file; it does not know Django, nor what most events mean. It runs as a
process of its own: `python -m webui.runs.packing EVENTS TARGET`.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from testbed.events.log import Cursor
from webui.runs.pack_columns import Columns, Tables
from webui.runs.pack_source import Line, merged_lines
from webui.runs.pack_stories import Stories
from webui.runs.pack_tokens import ELIDED, TokenState

FORMAT = 1
"""Of the file. A pack of another format is not read, and made again."""
MAGIC = b"LPTL"
KEPT_LINES = 4000
"""How many of the newest lines the page's log keeps (static/run/journal.js); of these none may be missing."""
TELL_EVERY_S = 0.3


class Packer:
    """Takes a log's lines in the one order and makes the pack's bytes."""

    def __init__(self) -> None:
        self._tokens = TokenState()
        self._tables = Tables(KEPT_LINES)
        self._seqs: dict[str, list[int]] = {}
        self._events = 0
        self._now = 0
        self._elided: dict[str, int] = {}

    def take(self, line: Line) -> None:
        """The next event."""
        event = line.event
        kind = event["type"]
        self._events += 1
        if line.t > self._now:
            self._now = line.t
        seen = self._seqs.setdefault(line.node, [0, 0])
        if line.seq != seen[0]:
            seen[1] += abs(line.seq - seen[0])
        seen[0] = line.seq + 1
        self._tokens.take(line.t, line.node, kind, event)
        if kind in ELIDED:
            self._elided[kind] = self._elided.get(kind, 0) + 1
            self._tables.remember(line)
        else:
            self._tables.take(line)

    def data(self, cursor: Cursor, bad: int) -> bytes:
        """The file."""
        columns = Columns()
        head: dict[str, Any] = {
            "format": FORMAT,
            "cursor": str(cursor),
            "bad": bad,
            "events": self._events,
            "now": self._now,
            "elided": self._elided,
            "seqs": self._seqs,
            "tables": self._tables.write(columns),
            **self._tokens.write(columns),
        }
        head["columns"] = columns.places
        text = json.dumps(head, separators=(",", ":")).encode()
        start = len(MAGIC) + 4 + len(text)
        text += b" " * (-start % 8)
        return b"".join((MAGIC, len(text).to_bytes(4, "little"), text, *columns.parts))


def packed(events: Path, *, limit: int | None = None) -> bytes:
    """The pack of the first `limit` events of a folder of logs, of all where it is None."""
    packer = Packer()
    with merged_lines(events) as source:
        for place, line in enumerate(source):
            if place == limit:
                source.put_back(line)
                break
            packer.take(line)
        return packer.data(source.cursor, source.bad)


def make_pack(events: Path, target: Path, tell: Callable[[float], None]) -> None:
    """Writes the pack of `events` to `target`, and the requests' stories beside it; both appear whole or not at all.

    `tell` hears now and then which share of the log has been read.
    """
    packer, told = Packer(), time.monotonic()
    part, part_stories = target.with_suffix(".part"), target.with_suffix(".stories-part")
    try:
        with merged_lines(events) as source, Stories(part_stories) as stories:
            for line in source:
                packer.take(line)
                stories.take(line)
                if time.monotonic() - told > TELL_EVERY_S:
                    told = time.monotonic()
                    tell(source.share)
        part.write_bytes(packer.data(source.cursor, source.bad))
        os.replace(part_stories, target.with_suffix(".stories"))
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
        part_stories.unlink(missing_ok=True)


def main() -> None:
    """Makes one pack, unless another process is at it."""
    parser = argparse.ArgumentParser(prog="webui.runs.packing")
    parser.add_argument("events", type=Path, help="folder of the logs")
    parser.add_argument("target", type=Path, help="file to make")
    arguments = parser.parse_args()
    target: Path = arguments.target
    progress = target.with_suffix(".progress")
    with target.with_suffix(".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        if target.exists():
            return
        try:
            make_pack(arguments.events, target, lambda share: _note(progress, f"{share:.3f}"))
        except Exception as fault:
            _note(progress, f"failed: {type(fault).__name__}: {fault}")
            raise
        progress.unlink(missing_ok=True)


def _note(path: Path, text: str) -> None:
    fresh = path.with_suffix(".told")
    fresh.write_text(text)
    os.replace(fresh, path)


if __name__ == "__main__":
    os.nice(10)  # whoever measures on this machine comes first
    main()
