"""The token reader: when to poll, whose tokens to fetch, and how to fetch them in few READs.

One metadata READ (states and progress, 64 KiB) a poll. Requests without a first token are urgent and come first, a
cycle's work is capped, the polling interval adapts between two bounds, and token reads of one urgency that lie close
together become one (summary, "token reader"; intervals, caps and sizes are not stated there). This file posts nothing
and streams nothing; it answers the front end's questions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from testbed.blink.parameters import BlinkParameters
from testbed.blink.request_tracker import TrackedRequest
from testbed.blink.ring import TOKEN, RingLayout
from testbed.events.schema import ReaderMeasured
from testbed.units import Nanoseconds


class Fetch(NamedTuple):
    """New tokens of one request."""

    tracked: TrackedRequest
    first: int
    amount: int
    offset: int
    """Of the first word to read, in the region."""
    urgent: bool
    header: int = 0
    """Words in front of the tokens that come with them, from `offset` on."""

    @property
    def words(self) -> int:
        """Words to read."""
        return self.header + self.amount


class TokenRead(NamedTuple):
    """One READ that brings the tokens of one or more requests."""

    offset: int
    length: int
    parts: tuple[Fetch, ...]


def coalesce(fetches: Iterable[Fetch], gap: int) -> list[TokenRead]:
    """As few READs as fetches at most `gap` bytes apart allow, in order of address."""
    reads: list[TokenRead] = []
    for fetch in sorted(fetches, key=lambda fetch: fetch.offset):
        end = fetch.offset + fetch.words * TOKEN
        if reads:
            offset, length, parts = reads[-1]
            if fetch.offset - (offset + length) <= gap:
                reads[-1] = TokenRead(offset, end - offset, (*parts, fetch))
                continue
        reads.append(TokenRead(fetch.offset, end - fetch.offset, (fetch,)))
    return reads


class TokenReader:
    """Pace and plan of the polling."""

    def __init__(self, parameters: BlinkParameters, layout: RingLayout) -> None:
        self._parameters = parameters
        self._layout = layout
        self.interval = parameters.poll_interval_min
        self.reading = False
        """A metadata READ is in flight."""
        self._since: Nanoseconds | None = None
        self._after = 0
        self._measured_at: Nanoseconds | None = None
        self._polls = self._bytes = self._reads = self._refreshes = 0

    @property
    def due(self) -> Nanoseconds | None:
        """When the next metadata READ is to be posted; None while one is in flight or nothing is awaited."""
        return None if self.reading or self._since is None else self._since + self.interval

    def start(self, now: Nanoseconds) -> None:
        """Something is awaited: polls begin, or quicken, because a new request is urgent."""
        self.interval = self._parameters.poll_interval_min
        if self._since is None:
            self._since = now

    def stop(self) -> None:
        """Nothing is awaited."""
        self._since = None

    def posted(self, now: Nanoseconds) -> None:
        """A metadata READ goes out at `now`."""
        self.reading = True
        self._since = now
        self._polls += 1
        self._bytes += self._layout.metadata_size
        if self._measured_at is None:
            self._measured_at = now

    def plan(self, backlog: Iterable[TrackedRequest], unborn: int) -> list[TokenRead]:
        """The READs of this cycle in order of posting: the urgent requests' first, then those of the others from where
        the last cycle stopped; within each of the two by address.

        `backlog` are those with tokens to fetch; `unborn` counts requests that have no token at all.
        """
        waiting = list(backlog)
        urgent = [tracked for tracked in waiting if tracked.urgent]
        others = [tracked for tracked in waiting if not tracked.urgent]
        others.sort(key=lambda tracked: (tracked.number <= self._after, tracked.number))
        chosen = (urgent + others)[: self._parameters.poll_work_cap]
        if chosen and not chosen[-1].urgent:
            self._after = chosen[-1].number
        self._pace(found=bool(chosen), pressed=len(chosen) < len(waiting) or unborn > 0)
        gap = self._parameters.coalesce_gap_bytes
        fetches = [self._fetch(tracked) for tracked in chosen]
        # Apart, since READs of one connection come back in the order of posting: no first token waits for another's.
        reads = coalesce((fetch for fetch in fetches if fetch.urgent), gap)
        reads += coalesce((fetch for fetch in fetches if not fetch.urgent), gap)
        self._reads += len(reads)
        return reads

    def slow_down(self, now: Nanoseconds) -> None:
        """The GPU did not answer: back off, up to the outage interval."""
        self.interval = min(2 * self.interval, self._parameters.poll_outage_interval)
        self._since = now

    def measured(self, now: Nanoseconds, refreshes: int) -> ReaderMeasured | None:
        """What was done since the last answer, once the measuring interval is over.

        `refreshes` is how often the slot tracker has read the state plane by itself, since the beginning.
        """
        if self._measured_at is None or now - self._measured_at < self._parameters.measure_interval:
            return None
        event = ReaderMeasured(self._polls, self.interval, self._bytes, self._reads, refreshes - self._refreshes)
        self._polls = self._bytes = self._reads = 0
        self._refreshes = refreshes
        self._measured_at = now
        return event

    def _fetch(self, tracked: TrackedRequest) -> Fetch:
        header = 0 if tracked.seen else self._parameters.answer_header
        offset = self._layout.answer(tracked.answer_start + tracked.seen - header)
        return Fetch(tracked, tracked.seen, tracked.unread, offset, tracked.urgent, header)

    def _pace(self, *, found: bool, pressed: bool) -> None:
        """Quick while a first token is awaited or work is left over; else quicker after a find, slower after none."""
        low, high = self._parameters.poll_interval_min, self._parameters.poll_interval_max
        if pressed:
            self.interval = low
        elif found:
            self.interval = max(low, min(self.interval, high) // 2)
        else:
            self.interval = min(high, self.interval * 3 // 2)
