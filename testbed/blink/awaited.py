"""The requests whose tokens are awaited, and which of them a metadata READ has news about.

A poll brings thousands of words of which few have changed. They are compared as arrays with what the last poll
brought, and only requests with a change are looked at one by one. It posts nothing and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from testbed.blink.request_tracker import TrackedRequest

Words = npt.NDArray[np.uint64]


class News(NamedTuple):
    """A request whose slot has changed."""

    tracked: TrackedRequest
    word: int
    progress: int


class Awaited:
    """Requests being served, in order of acceptance."""

    def __init__(self) -> None:
        self._requests: dict[int, TrackedRequest] = {}
        self._members: list[TrackedRequest] = []
        self._slots = np.zeros(0, np.int64)
        self._states = np.zeros(0, np.uint64)
        self._progress = np.zeros(0, np.uint64)
        self._stale = False
        self.backlog: dict[int, TrackedRequest] = {}
        """Requests with published tokens that nobody has fetched yet, by number."""
        self.unborn = 0
        """Requests without a first token."""

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[TrackedRequest]:
        return iter(list(self._requests.values()))

    def add(self, tracked: TrackedRequest) -> None:
        """Awaits the tokens of `tracked`."""
        self._requests[tracked.number] = tracked
        self.unborn += tracked.urgent
        self._stale = True

    def remove(self, tracked: TrackedRequest) -> None:
        """Awaits them no more."""
        del self._requests[tracked.number]
        self.backlog.pop(tracked.number, None)
        self.unborn -= tracked.urgent
        self._stale = True

    def take(self, tracked: TrackedRequest, tokens: int) -> None:
        """`tokens` more tokens of `tracked` have been read."""
        self.unborn -= tracked.urgent
        tracked.seen += tokens
        self.note(tracked)

    def note(self, tracked: TrackedRequest) -> None:
        """Keeps the backlog up to date after a change of `tracked`."""
        if tracked.unread > 0:
            self.backlog[tracked.number] = tracked
        else:
            self.backlog.pop(tracked.number, None)

    def news(self, mark: int, states: Words, progress: Words) -> list[News]:
        """Who has changed, by the metadata READ of `mark`. A READ older than a request's acceptance is no news."""
        if self._stale:
            self._watch_anew()
        new_states, new_progress = states[self._slots], progress[self._slots]
        changed = np.flatnonzero((new_states != self._states) | (new_progress != self._progress))
        found: list[News] = []
        for index in map(int, changed):
            tracked = self._members[index]
            if tracked.since >= mark:
                continue
            self._states[index] = new_states[index]
            self._progress[index] = new_progress[index]
            found.append(News(tracked, int(new_states[index]), int(new_progress[index])))
        return found

    def _watch_anew(self) -> None:
        """Membership has changed: everybody is looked at once. A slot in use never has the word 0."""
        self._stale = False
        self._members = list(self._requests.values())
        self._slots = np.asarray([tracked.slot for tracked in self._members], np.int64)
        self._states = np.zeros(len(self._members), np.uint64)
        self._progress = np.zeros(len(self._members), np.uint64)
