"""The one order of events: (t, node, seq). Every fold, report and page that puts events in order uses this file.

Within a file `seq` and `t` rise together, so a merge of the files is a sort. The live page, which has seen everything
only up to the least of the nodes' latest `t`, keeps the same order in webui/static/run/order.js.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TypeAlias

from testbed.events.log import Record, log_files, read_log
from testbed.units import Nanoseconds

Place: TypeAlias = tuple[Nanoseconds, str, int]


def order(record: Record) -> Place:
    """The sort key of a record."""
    return (record.t, record.node, record.seq)


def merge_records(*logs: Iterable[Record]) -> Iterator[Record]:
    """Logs that are each in order, as one in order."""
    return heapq.merge(*logs, key=order)


def merge(folder: Path | str) -> Iterator[Record]:
    """All records of the event files in `folder`, in order. Raises `testbed.events.log.BadRecord`."""
    return merge_records(*(read_log(path) for path in log_files(folder)))
