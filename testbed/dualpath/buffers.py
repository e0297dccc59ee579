"""Accounting of KV memory: a DRAM buffer or the HBM of an engine, in pages, given whole and given back whole.

Pages come as extents (runs of pages that lie side by side), so that one WRITE can cover many blocks. Whoever finds no
room waits first come, first served; what could never fit is refused before it waits. Pages that were given are never
moved nor taken away, so a transfer under way always has its target (known faults 26, 31, 32). The pool knows pages,
true bytes and names, no turn's contents and no time.
"""

from __future__ import annotations

from collections import deque
from typing import TypeAlias

from testbed.events.kv_events import BufferMeasured
from testbed.machine import MachineError

Extents: TypeAlias = tuple[tuple[int, int], ...]
"""(first page, pages) of each run."""
MOST_EXTENTS = 64
"""Runs of one allocation: a letter that names them stays below 4,096 bytes. Beyond that it waits until there are
larger ones, which is when others have ended."""


class Pages:
    """`total` pages with ids 0 to `total` - 1."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self._runs: list[tuple[int, int]] = [(0, total)] if total else []

    def allocate(self, count: int) -> Extents | None:
        """`count` pages in as few runs as there are: the smallest that holds all, else the largest first.

        None, and nothing changes, where there are not so many, or only in more than `MOST_EXTENTS` runs.
        """
        if count > self.free:
            return None
        whole = min((run for run in self._runs if run[1] >= count), key=lambda run: (run[1], run[0]), default=None)
        if count == 0 or whole is not None:
            return () if whole is None or count == 0 else self._take(((whole[0], count),))
        taken: list[tuple[int, int]] = []
        for first, size in sorted(self._runs, key=lambda run: (-run[1], run[0]))[:MOST_EXTENTS]:
            taken.append((first, min(size, count)))
            count -= taken[-1][1]
            if count == 0:
                return self._take(tuple(taken))
        return None

    def release(self, extents: Extents) -> None:
        """Gives pages back. Raises MachineError for pages that are free already, and changes nothing."""
        runs = sorted((*self._runs, *extents))
        merged: list[tuple[int, int]] = []
        for first, count in runs:
            if first < 0 or first + count > self.total or (merged and first < merged[-1][0] + merged[-1][1]):
                raise MachineError(f"pages {first} to {first + count - 1} are not held")
            if merged and first == merged[-1][0] + merged[-1][1]:
                merged[-1] = (merged[-1][0], merged[-1][1] + count)
            else:
                merged.append((first, count))
        self._runs = merged
        self.free += sum(count for _, count in extents)

    def _take(self, extents: Extents) -> Extents:
        for first, count in extents:
            index = next(i for i, run in enumerate(self._runs) if run[0] == first)
            _, size = self._runs[index]
            self._runs[index : index + 1] = [(first + count, size - count)] if size > count else []
            self.free -= count
        return extents


class Room:
    """Pages, who waits for some, and what the log says of it."""

    def __init__(self, what: str, pages: int, page_bytes: int) -> None:
        self.what = what
        self._pages = Pages(pages)
        self._page_bytes = page_bytes
        self._waiting: deque[tuple[str, int]] = deque()

    @property
    def free(self) -> int:
        """Pages that nobody holds."""
        return self._pages.free

    @property
    def held_bytes(self) -> int:
        """True bytes of the pages that are held."""
        return (self._pages.total - self._pages.free) * self._page_bytes

    def can_ever(self, count: int) -> bool:
        """Whether so many pages fit when nobody else holds any (known fault 25)."""
        return count <= self._pages.total

    def ask(self, name: str, count: int) -> Extents | None:
        """Pages for `name`; None where it has to wait, behind those that wait already.

        Raises ValueError for more than there are at all.
        """
        if not self.can_ever(count):
            raise ValueError(f"{name} asks for {count} pages of {self.what}, which has {self._pages.total}")
        extents = None if self._waiting else self._pages.allocate(count)
        if extents is None:
            self._waiting.append((name, count))
        return extents

    def at_once(self, count: int) -> Extents | None:
        """Pages for somebody who does not wait."""
        return self._pages.allocate(count)

    def withdraw(self, name: str) -> list[tuple[str, Extents]]:
        """`name` waits no longer; those behind it that fit now, with their pages."""
        self._waiting = deque(each for each in self._waiting if each[0] != name)
        return self._grant()

    def release(self, extents: Extents) -> list[tuple[str, Extents]]:
        """Gives pages back; those who waited and fit now, with their pages. Raises MachineError as `Pages`."""
        self._pages.release(extents)
        return self._grant()

    def measured(self) -> BufferMeasured:
        """For the log."""
        total = self._pages.total * self._page_bytes
        return BufferMeasured(self.what, self.held_bytes, total, len(self._waiting))

    def _grant(self) -> list[tuple[str, Extents]]:
        granted: list[tuple[str, Extents]] = []
        while self._waiting:
            name, count = self._waiting[0]
            extents = self._pages.allocate(count)
            if extents is None:
                break
            self._waiting.popleft()
            granted.append((name, extents))
        return granted
