"""The one order of events: (t, node, seq). Every fold, report and page that puts events in order uses this file.

Within a file `seq` and `t` rise together, so a merge of the files is a sort. While a run goes on, a reader has
seen everything up to the least of the nodes' latest `t` (nodes write a heartbeat every 100 ms of wall time,
architecture §6); `complete_up_to` says up to when, and `Reorderer` holds back what is later.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

from testbed.events.log import Record, log_files, read_log
from testbed.events.run_events import NodeStopped
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


def complete_up_to(heartbeats: Mapping[str, Nanoseconds | None]) -> Nanoseconds | None:
    """The moment before which every node has been heard in full, from the latest `t` seen of each node.

    A node that has not been heard at all is None, and so is the answer then; a node that has stopped is left out
    by the caller. Records with `t` strictly less than the answer are complete: a node may still write more at it.
    """
    moments = list(heartbeats.values())
    if not moments or None in moments:
        return None
    return min(moment for moment in moments if moment is not None)


class Reorderer:
    """Puts records that arrive file by file into the one order, and releases them once they are complete.

    `nodes` are the names that will write; a name that turns up besides is taken along from then on. A node that
    has logged `node.stopped` holds nothing back any more.
    """

    def __init__(self, nodes: Iterable[str] = ()) -> None:
        self._latest: dict[str, Nanoseconds | None] = dict.fromkeys(nodes)
        self._stopped: set[str] = set()
        self._heap: list[tuple[Place, int, Record]] = []
        self._taken = 0

    def add(self, records: Iterable[Record]) -> None:
        """Takes records; those of one node in their own order."""
        for record in records:
            self._latest[record.node] = record.t
            if isinstance(record.event, NodeStopped):
                self._stopped.add(record.node)
            heapq.heappush(self._heap, (order(record), self._taken, record))
            self._taken += 1

    def release(self) -> list[Record]:
        """The records that no record still to come can precede, in order."""
        waiting = {node: moment for node, moment in self._latest.items() if node not in self._stopped}
        if not waiting:
            return self.finish()
        complete = complete_up_to(waiting)
        ready: list[Record] = []
        while complete is not None and self._heap and self._heap[0][0][0] < complete:
            ready.append(heapq.heappop(self._heap)[2])
        return ready

    def finish(self) -> list[Record]:
        """All that is left, in order; for when every writer has ended."""
        rest = [record for _, _, record in sorted(self._heap, key=lambda item: item[:2])]
        self._heap = []
        return rest
