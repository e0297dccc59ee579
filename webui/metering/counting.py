"""Counting in this process: added up in memory, handed to the database every few seconds and before each scrape.

So several web processes count into the same series, a restart takes nothing back, and no request waits for a write.
What a process that is killed had not handed over is missing, at most FLUSH_S of it.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import defaultdict
from pathlib import Path

from django.db import DatabaseError, IntegrityError, transaction
from django.db.models import F
from django.utils import timezone

from testbed.events.log import SUFFIX
from webui.metering.models import Tally, Watch
from webui.metering.series import STREAM_LAG_SECONDS, Series

logger = logging.getLogger(__name__)

FLUSH_S = 5.0
SUM = "sum"
BEYOND = "+Inf"

Key = tuple[str, tuple[str, ...]]


class Counting:
    """One process's additions. Safe for many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._added: dict[Key, float] = defaultdict(float)
        self._viewers = 0
        self._due = time.monotonic() + FLUSH_S
        self.process = f"{socket.gethostname()[:40]}:{os.getpid()}"

    def count(self, series: Series, *labels: str, by: float = 1.0) -> None:
        """Adds to a counter."""
        with self._lock:
            self._added[series.name, labels] += by

    def observe(self, series: Series, value: float, *labels: str) -> None:
        """Adds a value to a histogram."""
        bound = next((f"{bound:g}" for bound in series.bounds if value <= bound), BEYOND)
        with self._lock:
            self._added[series.name, (*labels, bound)] += 1
            self._added[series.name, (*labels, SUM)] += value

    def viewers_change(self, by: int) -> None:
        """A live page was opened (+1) or has gone (-1)."""
        with self._lock:
            self._viewers += by

    def flush_if_due(self) -> None:
        """Hands over what has been added, once in FLUSH_S."""
        if time.monotonic() >= self._due:
            self.flush()

    def flush(self) -> None:
        """Hands over now. While the database is away it keeps what it has."""
        with self._writing:
            self._due = time.monotonic() + FLUSH_S
            with self._lock:
                added, self._added = self._added, defaultdict(float)
                viewers = self._viewers
            try:
                with transaction.atomic():
                    for (name, labels), value in sorted(added.items()):
                        _add(name, labels, value)
                    Watch.objects.update_or_create(
                        process=self.process, defaults={"viewers": viewers, "seen_at": timezone.now()}
                    )
            except DatabaseError:
                logger.warning("figures for /metrics are kept until the database answers")
                with self._lock:
                    for key, value in added.items():
                        self._added[key] += value


def _add(name: str, labels: tuple[str, ...], value: float) -> None:
    row = Tally.objects.filter(name=name, key="\t".join(labels))
    if row.update(value=F("value") + value):
        return
    try:
        with transaction.atomic():
            Tally.objects.create(name=name, key="\t".join(labels), labels=list(labels), value=value)
    except IntegrityError:  # another process was first
        row.update(value=F("value") + value)


here = Counting()
"""This process's."""


def note_lag(events: Path, nodes: list[str]) -> None:
    """These nodes' newest lines have just been handed to a viewer who had all before: how old the last write is."""
    moments = [path.stat().st_mtime for node in nodes if (path := events / f"{node}{SUFFIX}").exists()]
    if moments:
        here.observe(STREAM_LAG_SECONDS, max(time.time() - max(moments), 0.0))
