"""The reads of a storage server: apportioned queries (CRAQ, Terrace and Freedman 2009), then disk, then RDMA WRITE.

Any node of a chain may be asked. One that has nothing but committed versions answers at once; one that has a draft
which may be committed further down asks the tail first, and serves what the tail says is committed. Nothing is cached:
each read is a read of the disk (3FS has no DRAM cache, DualPath 1.11). The image goes straight into the reader's
memory, and never after the moment that the reader has named.
"""

from __future__ import annotations

from collections import deque
from functools import partial

import msgspec

from testbed.dualpath.chains import chunk_name
from testbed.dualpath.chunk_letters import AskVersion, ChunksRead, ReadChunks, TellVersion
from testbed.dualpath.chunk_writes import ChunkWrites
from testbed.dualpath.disk import ABSENT, DAMAGED, DiskDone, DiskRead
from testbed.dualpath.local_messages import SERVER, TRAFFIC, Move, Moved
from testbed.dualpath.shelf import Batch, Shelf
from testbed.events.kv_events import BlockRejected, ChunkServed
from testbed.machine import Compute, Deliver, Effect, Emit, RemoteAddress
from testbed.units import Nanoseconds

EXPIRED = "expired"
"""Reason of a refusal: the reader's moment has passed."""
_UNDER_WAY = 32
"""Reads that are with the disk, the NIC or the tail at once. Our choice: enough to hide the disk's latency."""
_SNIC = "snic0"


class _Read(msgspec.Struct, frozen=True):
    """One chunk of one batch."""

    letter: ReadChunks
    place: int
    batch: Batch

    @property
    def block(self) -> int:
        return self.letter.chunks[self.place].block


class ChunkReads:
    """See the head of this file."""

    def __init__(self, shelf: Shelf, writes: ChunkWrites) -> None:
        self._shelf = shelf
        self._writes = writes
        self._queue: deque[_Read] = deque()
        self._under_way = 0
        self._asked: dict[int, tuple[str, list[_Read | str]]] = {}
        """By block: the tail that was asked, and the reads and nodes that wait for its answer."""

    def take(self, now: Nanoseconds, letter: ReadChunks) -> list[Effect]:
        """A client's batch."""
        batch = Batch(letter.node, letter.batch, len(letter.chunks), ChunksRead)
        self._queue.extend(_Read(letter, place, batch) for place in range(len(letter.chunks)))
        return self._pump(now)

    def asked(self, now: Nanoseconds, letter: AskVersion) -> list[Effect]:
        """Another node of the chain takes us for the tail. If we do not, our own tail must be asked."""
        if self._writes.dirty(letter.block):
            return self._ask(now, letter.block, letter.node)
        return [self._tell(letter.node, letter.block)]

    def told(self, now: Nanoseconds, letter: TellVersion) -> list[Effect]:
        """The tail's answer; nothing happens if nobody waits for it any more."""
        self._shelf.silence.heard(now, letter.node)
        if letter.block not in self._asked:
            return []
        effects = self._writes.commit_up_to(now, letter.block, letter.version)
        return [*effects, *self._decided(letter.block), *self._pump(now)]

    def lost(self, now: Nanoseconds, node: str) -> list[Effect]:
        """`node` is in no chain any more; `ChunkWrites.lost` comes first."""
        effects: list[Effect] = []
        for block in [block for block, (tail, _) in self._asked.items() if tail == node]:
            _, waiting = self._asked.pop(block)
            if self._writes.dirty(block):
                for asker in waiting:
                    effects += self._ask(now, block, asker)
            else:
                self._asked[block] = ("", waiting)
                effects += self._decided(block)
        return [*effects, *self._pump(now)]

    # --- inside ---

    def _pump(self, now: Nanoseconds) -> list[Effect]:
        effects: list[Effect] = []
        while self._queue and self._under_way < _UNDER_WAY:
            read = self._queue.popleft()
            self._under_way += 1
            if now >= read.letter.until:
                effects += self._refuse(read, EXPIRED)
            elif self._writes.dirty(read.block):
                effects += self._ask(now, read.block, read)
            else:
                effects += self._read_disk(read)
        return effects

    def _ask(self, now: Nanoseconds, block: int, asker: _Read | str) -> list[Effect]:
        if block in self._asked:
            self._asked[block][1].append(asker)
            return []
        tail = self._shelf.view.after(block, self._shelf.node)[-1]
        self._asked[block] = (tail, [asker])
        self._shelf.silence.asked(now, tail)
        return [self._shelf.post(tail, AskVersion(self._shelf.node, block))]

    def _decided(self, block: int) -> list[Effect]:
        effects: list[Effect] = []
        for asker in self._asked.pop(block)[1]:
            effects += [self._tell(asker, block)] if isinstance(asker, str) else self._read_disk(asker)
        return effects

    def _tell(self, node: str, block: int) -> Effect:
        return self._shelf.post(node, TellVersion(self._shelf.node, block, self._writes.decided(block)))

    def _read_disk(self, read: _Read) -> list[Effect]:
        # A commit that is under way was given to the disk before this read and is done before it.
        if read.block in self._shelf.damaged:
            return self._refuse(read, DAMAGED)
        if not self._writes.decided(read.block):
            return self._refuse(read, ABSENT)
        return [Compute(DiskRead(SERVER, self._shelf.expect(partial(self._was_read, read)), read.block))]

    def _was_read(self, read: _Read, now: Nanoseconds, done: DiskDone) -> list[Effect]:
        name = chunk_name(read.block)
        if done.failure:
            rejected: list[Effect] = []
            if done.failure != ABSENT:
                self._shelf.damaged.add(read.block)
                rejected.append(Emit(BlockRejected(name, self._shelf.node, done.failure)))
            return [*rejected, *self._refuse(read, done.failure), *self._pump(now)]
        served = Emit(ChunkServed("read", name, done.version, self._shelf.shape.true_bytes(len(done.data)), done.time))
        if now >= read.letter.until:
            return [served, *self._refuse(read, EXPIRED), *self._pump(now)]
        letter, chunk = read.letter, read.letter.chunks[read.place]
        move = Move(
            owner=SERVER,
            ticket=self._shelf.expect(partial(self._moved, read)),
            hop=letter.hop,
            request=letter.request,
            interface=_SNIC,
            peer=f"{letter.node}.{letter.port}",
            remote=RemoteAddress(chunk.address, letter.key),
            data=done.data,
        )
        return [served, Deliver(TRAFFIC, move)]

    def _moved(self, read: _Read, now: Nanoseconds, moved: Moved) -> list[Effect]:
        if moved.failure:
            return [*self._refuse(read, f"not delivered: {moved.failure}"), *self._pump(now)]
        self._under_way -= 1
        return [*read.batch.done(self._shelf.node, read.place), *self._pump(now)]

    def _refuse(self, read: _Read, reason: str) -> list[Effect]:
        self._under_way -= 1
        return read.batch.refuse(self._shelf.node, read.place, reason)
