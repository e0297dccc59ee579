"""An egress port: a queue a virtual lane, the arbiter, and one frame at a time on the link.

Knows frames by size only, no packets and no peers. The link is busy for exactly the frame's serialisation time; the
arbiter is asked when it falls free, as a real port does, so a frame that has started is never overtaken.
"""

from __future__ import annotations

from collections import deque
from typing import Generic, TypeVar

from testbed.network.arbiter import Arbiter
from testbed.network.lanes import LaneTable
from testbed.units import Nanoseconds, serialization_time

Item = TypeVar("Item")

ONE_LANE = LaneTable(max_vls=1, high_limit=255, vlarb_high="0:64", vlarb_low="0:64", sl2vl="0")
"""For a port without lanes: first come, first served."""


class EgressPort(Generic[Item]):
    """One direction of a link, fed by lanes.

    `offer` queues an item, `deadline` is when the frame on the link has left, `wake` hands it over and starts the
    next. `queue_frames` bounds each lane; what does not fit is dropped and counted.
    """

    def __init__(self, rate_bits_per_s: int, table: LaneTable | None = None, queue_frames: int = 5000) -> None:
        if rate_bits_per_s <= 0:
            raise ValueError(f"a port's rate is {rate_bits_per_s} bit/s; it must be above 0")
        table = table or ONE_LANE
        self.rate_bits_per_s = rate_bits_per_s
        self.table = table
        self._arbiter = Arbiter(table)
        self._queues: list[deque[tuple[int, Item]]] = [deque() for _ in range(table.max_vls)]
        self._queue_frames = queue_frames
        self._ready = 0
        self._sizes = [0] * table.max_vls
        self._sending: tuple[int, Item] | None = None
        self._free_at: Nanoseconds = 0
        self.sent_bytes = [0] * table.max_vls
        """Bytes put on the link, by lane; `sent_frames` likewise."""
        self.sent_frames = [0] * table.max_vls
        self.drops = [0] * table.max_vls

    def backlog(self, lane: int) -> int:
        """Frames of `lane` that wait; the one on the link does not count."""
        return len(self._queues[lane])

    def offer(self, now: Nanoseconds, lane: int, frame_bytes: int, item: Item) -> bool:
        """Queues a frame; starts it at once if the link is free. False if the lane is full and it was dropped."""
        queue = self._queues[lane]
        if len(queue) >= self._queue_frames:
            self.drops[lane] += 1
            return False
        queue.append((frame_bytes, item))
        if len(queue) == 1:
            self._ready |= 1 << lane
            self._sizes[lane] = frame_bytes
        if self._sending is None:
            self._start(max(now, self._free_at))
        return True

    def deadline(self) -> Nanoseconds | None:
        """When the frame on the link has left, or None if the link is idle."""
        return None if self._sending is None else self._free_at

    def wake(self, now: Nanoseconds) -> list[Item]:
        """The items whose frames have left by `now`, in order; the next frame starts when the last one left."""
        left: list[Item] = []
        while self._sending is not None and self._free_at <= now:
            left.append(self._sending[1])
            self._sending = None
            self._start(self._free_at)
        return left

    def _start(self, moment: Nanoseconds) -> None:
        lane = self._arbiter.next_lane(self._ready, self._sizes)
        if lane < 0:
            return
        queue = self._queues[lane]
        frame_bytes, item = queue.popleft()
        if queue:
            self._sizes[lane] = queue[0][0]
        else:
            self._ready &= ~(1 << lane)
        self._sending = lane, item
        self._free_at = moment + serialization_time(frame_bytes, self.rate_bits_per_s)
        self.sent_bytes[lane] += frame_bytes
        self.sent_frames[lane] += 1
