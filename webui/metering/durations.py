"""Histograms over finished runs, from their rows: how long they waited and how long they took.

A finished run never changes, so each is read once and kept as a count; only the youngest are read at every scrape,
since their rows may still be on their way. Every process comes to the same figures, whenever it was started.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.db.models import Q
from django.utils import timezone

from webui.runs.models import Origin, Run
from webui.runs.states import State

SETTLED = timedelta(minutes=2)
"""Rows that say they ended longer ago than this are all there: transactions are short and clocks agree better."""
WAIT_BOUNDS = (0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0)
RUN_BOUNDS = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)


class Histogram:
    """Counts by bucket, not yet cumulative; the last bucket has no bound."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        """One value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def copy(self) -> Histogram:
        """One that can go its own way."""
        twin = Histogram(self.bounds)
        twin.counts, twin.sum = list(self.counts), self.sum
        return twin

    def buckets(self) -> list[tuple[str, float]]:
        """As Prometheus has them: (upper bound, how many at or below)."""
        found, below = [], 0
        for bound, count in zip([f"{bound:g}" for bound in self.bounds] + ["+Inf"], self.counts, strict=True):
            below += count
            found.append((bound, float(below)))
        return found


Both = tuple[dict[str, Histogram], dict[str, Histogram]]


class Durations:
    """What this process has read so far."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._mark: datetime | None = None
        self._waits: dict[str, Histogram] = {}
        self._lengths: dict[str, Histogram] = {}

    def now(self) -> Both:
        """Seconds in the queue and seconds under way, by backend, of all runs of the console that have ended."""
        with self._lock:
            until = timezone.now() - SETTLED
            settled = Q(finished_at__lte=until)
            if self._mark is not None:
                settled &= Q(finished_at__gt=self._mark)
            _fold(_rows(settled), self._waits, self._lengths)
            self._mark = until
            waits = {name: histogram.copy() for name, histogram in self._waits.items()}
            lengths = {name: histogram.copy() for name, histogram in self._lengths.items()}
        _fold(_rows(Q(finished_at__gt=until)), waits, lengths)
        return waits, lengths


Row = tuple[str, datetime, datetime | None, datetime]


def _rows(condition: Q) -> Iterable[Row]:
    ended = Run.objects.filter(condition, state=State.FINISHED, origin=Origin.CONSOLE, finished_at__isnull=False)
    columns = ended.order_by().values_list("backend", "created_at", "started_at", "finished_at")
    return columns.iterator(chunk_size=5000)  # type: ignore[return-value]


def _fold(rows: Iterable[Row], waits: dict[str, Histogram], lengths: dict[str, Histogram]) -> None:
    for backend, created, started, finished in rows:
        waited = max(((started or finished) - created).total_seconds(), 0.0)
        waits.setdefault(backend, Histogram(WAIT_BOUNDS)).add(waited)
        if started is not None:
            lengths.setdefault(backend, Histogram(RUN_BOUNDS)).add(max((finished - started).total_seconds(), 0.0))


here = Durations()
"""This process's."""
