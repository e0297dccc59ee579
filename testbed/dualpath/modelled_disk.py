"""A storage node's disk under the simulated clock: chunks in a dictionary, and a modelled time for each operation.

Modelled: one device of a fixed bandwidth for reads and writes together and a fixed latency that overlaps, as flash
behind many queues has them. No page cache, as 3FS has none (DualPath 1.11): each read takes its time, the second one of
a chunk as well. Not modelled: seeks, garbage collection, wear, the time of a file system's own records, which is why a
commit and a drop take the latency alone.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.disk import ABSENT, FULL, DiskCommit, DiskDone, DiskDrop, DiskRead, DiskWrite
from testbed.machine import NOTHING, Deliver, Effects
from testbed.units import SECOND, Nanoseconds


class ModelledDisk:
    """The `Accelerator` of a storage node; see the head of this file."""

    def __init__(
        self, shape: BlockShape, *, bytes_per_s: int, latency: Nanoseconds, capacity_bytes: int | None = None
    ) -> None:
        """`bytes_per_s` and `capacity_bytes` are true ones; None: no limit. Raises ValueError without a bandwidth."""
        if bytes_per_s < 1 or latency < 0:
            raise ValueError(f"a disk of {bytes_per_s} bytes/s and {latency} ns is none")
        self._shape = shape
        self._rate = bytes_per_s
        self._latency = latency
        self._capacity = capacity_bytes
        self._free_at: Nanoseconds = 0
        self._answers: deque[tuple[Nanoseconds, str, DiskDone]] = deque()
        self.chunks: dict[int, tuple[int, bytes]] = {}
        """Committed version and image, by block."""
        self.drafts: dict[tuple[int, int], bytes] = {}
        """Images by block and version."""
        self.held = 0
        """True bytes of all of them."""
        self.busy: Nanoseconds = 0
        """Time in which bytes were moved so far, work under way included."""

    def committed(self) -> dict[int, int]:
        """Version of each chunk, as a server that starts finds them."""
        return {block: version for block, (version, _) in self.chunks.items()}

    def submit(self, now: Nanoseconds, work: Any) -> Effects:
        """Does one `DiskWork`; its answer comes when its time is over. Raises TypeError for anything else."""
        moved, done = self._do(work)
        began = max(now, self._free_at)
        duration = -(-self._shape.true_bytes(moved) * SECOND // self._rate)
        self._free_at = began + duration
        self.busy += duration
        done = DiskDone(done.ticket, done.version, done.data, done.failure, duration + self._latency)
        self._answers.append((self._free_at + self._latency, work.owner, done))
        return NOTHING

    def wake(self, now: Nanoseconds) -> Effects:
        """Answers what is over."""
        effects = []
        while self._answers and self._answers[0][0] <= now:
            _, owner, done = self._answers.popleft()
            effects.append(Deliver(owner, done))
        return effects

    def deadline(self) -> Nanoseconds | None:
        """When the next answer is due."""
        return self._answers[0][0] if self._answers else None

    def _do(self, work: Any) -> tuple[int, DiskDone]:
        """Bytes of images that the device moves, and the answer. All changes are made in the order of asking."""
        match work:
            case DiskRead():
                version, data = self.chunks.get(work.block, (0, b""))
                return len(data), DiskDone(work.ticket, version, data, failure="" if version else ABSENT)
            case DiskWrite():
                if self._capacity is not None and self.held + self._shape.true_bytes(len(work.data)) > self._capacity:
                    return 0, DiskDone(work.ticket, work.version, failure=FULL)
                self._keep(work.block, work.version, work.data)
                if work.final:
                    self._commit(work.block, work.version)
                return len(work.data), DiskDone(work.ticket, work.version)
            case DiskCommit():
                self._commit(work.block, work.version)
                return 0, DiskDone(work.ticket, work.version)
            case DiskDrop():
                self._drop(work.block, work.version)
                return 0, DiskDone(work.ticket, work.version)
            case _:
                raise TypeError(f"a disk does no {type(work).__name__}")

    def _keep(self, block: int, version: int, data: bytes) -> None:
        self._drop(block, version)
        self.drafts[block, version] = data
        self.held += self._shape.true_bytes(len(data))

    def _drop(self, block: int, version: int) -> None:
        data = self.drafts.pop((block, version), None)
        if data is not None:
            self.held -= self._shape.true_bytes(len(data))

    def _commit(self, block: int, version: int) -> None:
        there, old = self.chunks.get(block, (0, b""))
        if version <= there or (block, version) not in self.drafts:
            self._drop(block, version)
            return
        self.chunks[block] = (version, self.drafts.pop((block, version)))
        self.held -= self._shape.true_bytes(len(old))
