"""What the exact arbiter says of one switch port: the floor of a low lane, and how long bursts take beside a bulk.

Functions of plain numbers, so that a run can be held against them: every packet is served by `testbed.network.arbiter`,
lane by lane first in, first out. The bulk is one reliable connection with a window and acknowledgements at an interval
(platform.md §3: windowed background); the port's buffer must hold the window, or the forecast does not apply. Both
sides send at the link's rate; a packet is at the port when its sender's uplink has sent it whole. Not modelled: loss,
the time of acknowledgements, anything of software. Knows no machine, no lane's meaning.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from testbed.network.arbiter import Arbiter
from testbed.network.lanes import LaneTable
from testbed.units import Nanoseconds, serialization_time

FLOOR_PACKETS = 200_000
"""Packets over which a floor is counted: more than a hundred low ones with the paper's table."""


class Bulk(NamedTuple):
    """One connection that always has something to send."""

    lane: int
    window_packets: int
    ack_interval_packets: int
    message_packets: int


class Bursts(NamedTuple):
    """Senders that each send `packets` full packets and one short one at every moment."""

    lane: int
    packets: int
    last_bytes: int
    """Frame of the short one."""
    senders: int


def low_share(table: LaneTable, lane: int, frames: Mapping[int, int]) -> float:
    """Share of a port's bytes that `lane` has while all lanes of `frames` are backlogged with such frames."""
    arbiter = Arbiter(table)
    sent = dict.fromkeys(frames, 0)
    for _ in range(FLOOR_PACKETS):
        chosen = arbiter.choose(frames)
        if chosen < 0:
            break
        sent[chosen] += frames[chosen]
    total = sum(sent.values())
    return sent[lane] / total if total else 0.0


def burst_times(
    table: LaneTable,
    rate_bits_per_s: int,
    frame_bytes: int,
    bursts: Bursts,
    moments: Sequence[Nanoseconds],
    bulk: Bulk | None,
) -> list[Nanoseconds]:
    """How long each burst takes, from its moment until the last packet of its last sender has left the port.

    Bursts that are far apart meet the port in the same state, the bulk's window full: each group of close ones is
    counted with two windows before it, and what lies between two groups is left out.
    """
    frame = serialization_time(frame_bytes, rate_bits_per_s)
    lead = 2 * frame * (bulk.window_packets if bulk is not None else 1)
    room = lead + frame * bursts.senders * (bursts.packets + 1) * 2
    times: list[Nanoseconds] = []
    first = 0
    for place in range(1, len(moments) + 1):
        if place == len(moments) or moments[place] - moments[place - 1] > lead + room:
            start = max(0, moments[first] - lead)
            times += _Port(table, rate_bits_per_s, frame_bytes, bursts, bulk).run(moments[first:place], start)
            first = place
    return times


class _Port:
    """The port, its senders' uplinks and their packets, from one event to the next."""

    def __init__(
        self, table: LaneTable, rate_bits_per_s: int, frame_bytes: int, bursts: Bursts, bulk: Bulk | None
    ) -> None:
        self._arbiter = Arbiter(table)
        self._rate = rate_bits_per_s
        self._frame = frame_bytes
        self._bursts = bursts
        self._bulk = bulk
        self._queues: dict[int, deque[tuple[int, int]]] = {}
        """By lane: (bytes, number of the burst), -1 for the bulk's."""
        self._arrivals: list[tuple[Nanoseconds, int, int, int, int]] = []
        """(time, order, lane, bytes, number)."""
        self._order = 0
        self._sent = self._acknowledged = self._delivered = 0
        self._uplink_free = 0
        self._left: dict[int, int] = {}

    def run(self, moments: Sequence[Nanoseconds], start: Nanoseconds) -> list[Nanoseconds]:
        """See `burst_times`; the bulk begins at `start`."""
        ends: dict[int, Nanoseconds] = {}
        for number, moment in enumerate(moments):
            self._burst(number, moment)
        now = self._uplink_free = start
        while len(ends) < len(moments):
            self._fill_window(now)
            self._take_arrivals(now)
            sizes = {lane: queue[0][0] for lane, queue in self._queues.items() if queue}
            lane = self._arbiter.choose(sizes) if sizes else -1
            if lane < 0:
                now = self._arrivals[0][0]
                continue
            size, number = self._queues[lane].popleft()
            now += serialization_time(size, self._rate)
            if number < 0:
                self._deliver(now)
                continue
            self._left[number] -= 1
            if not self._left[number]:
                ends[number] = now
        return [ends[number] - moment for number, moment in enumerate(moments)]

    def _burst(self, number: int, moment: Nanoseconds) -> None:
        bursts = self._bursts
        self._left[number] = bursts.senders * (bursts.packets + 1)
        for _ in range(bursts.senders):
            at = moment
            for size in (*[self._frame] * bursts.packets, bursts.last_bytes):
                at += serialization_time(size, self._rate)
                self._arrive(at, bursts.lane, size, number)

    def _arrive(self, moment: Nanoseconds, lane: int, size: int, number: int) -> None:
        self._order += 1
        heapq.heappush(self._arrivals, (moment, self._order, lane, size, number))

    def _take_arrivals(self, now: Nanoseconds) -> None:
        while self._arrivals and self._arrivals[0][0] <= now:
            _, _, lane, size, number = heapq.heappop(self._arrivals)
            self._queues.setdefault(lane, deque()).append((size, number))

    def _fill_window(self, now: Nanoseconds) -> None:
        """Lets the bulk's uplink send what its window allows."""
        bulk = self._bulk
        if bulk is None:
            return
        while self._sent - self._acknowledged < bulk.window_packets:
            self._uplink_free = max(self._uplink_free, now) + serialization_time(self._frame, self._rate)
            self._sent += 1
            self._arrive(self._uplink_free, bulk.lane, self._frame, -1)

    def _deliver(self, now: Nanoseconds) -> None:
        bulk = self._bulk
        assert bulk is not None
        self._delivered += 1
        place = (self._delivered - 1) % bulk.message_packets + 1
        if place % bulk.ack_interval_packets == 0 or place == bulk.message_packets:
            self._acknowledged = self._delivered
            self._fill_window(now)
