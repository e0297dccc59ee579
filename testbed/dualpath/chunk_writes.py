"""The writes of a storage server: chain replication with versions (van Renesse and Schneider 2004; CRAQ 2009).

The head READs the image from the writer's memory, gives it the next version, puts it on disk as a draft and tells the
next of the chain, which READs it from the head, and so on. The tail's copy is committed as it is written; the word goes
back up the chain, and each node commits its draft. A node that is lost is left out: its predecessor tells the one
behind it, and a node with nobody behind it is the tail. So what was committed anywhere is on disk at every live node
of the chain, committed or as a draft, and no version is committed that some live node does not have.

Images that wait for the next node lie in a staging region with room of its own for each place in the chain: a node
waits only for nodes further down, so two full nodes never wait for each other.
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from functools import partial

from testbed.dualpath.blocks import BadBlock, check_full
from testbed.dualpath.chains import chunk_name
from testbed.dualpath.chunk_letters import ChunkStored, ChunksWritten, ForwardChunk, WriteChunks
from testbed.dualpath.disk import DiskCommit, DiskDone, DiskDrop, DiskWrite
from testbed.dualpath.local_messages import SERVER, TRAFFIC, Pull, Pulled
from testbed.dualpath.shelf import Batch, Shelf
from testbed.events.kv_events import BlockRejected, ChunkServed
from testbed.machine import Compute, Deliver, Effect, Emit, RemoteAddress
from testbed.network.memory_region import LocalMemory
from testbed.units import Nanoseconds

STAGED = 16
"""Images that each place in a chain has room for. Our choice."""
_SNIC = "snic0"
"""Storage nodes have one port."""


class Step(Enum):
    """How far a write is at this node."""

    QUEUED = "queued"
    PULLING = "pulling"
    WRITING = "writing"
    WAITING = "waiting"
    COMMITTING = "committing"
    ENDED = "ended"


class Does(Enum):
    """What happens to it."""

    START = "start"
    PULLED = "pulled"
    FORWARD = "forward"
    COMMIT = "commit"
    END = "end"
    FAIL = "fail"


STEPS: dict[tuple[Step, Does], Step] = {
    (Step.QUEUED, Does.START): Step.PULLING,
    (Step.PULLING, Does.START): Step.PULLING,  # from another place, when the first one was lost
    (Step.PULLING, Does.PULLED): Step.WRITING,
    (Step.PULLING, Does.FAIL): Step.ENDED,
    (Step.WRITING, Does.FORWARD): Step.WAITING,
    (Step.WRITING, Does.COMMIT): Step.COMMITTING,
    (Step.WRITING, Does.END): Step.ENDED,
    (Step.WRITING, Does.FAIL): Step.ENDED,
    (Step.WAITING, Does.FORWARD): Step.WAITING,  # to the one behind a lost node
    (Step.WAITING, Does.COMMIT): Step.COMMITTING,
    (Step.WAITING, Does.END): Step.ENDED,  # a higher version was committed before
    (Step.WAITING, Does.FAIL): Step.ENDED,
    (Step.COMMITTING, Does.END): Step.ENDED,
    (Step.COMMITTING, Does.FAIL): Step.ENDED,
}
"""What is not here raises KeyError and changes nothing."""


class _Place:
    """Where an image can be READ."""

    __slots__ = ("peer", "remote")

    def __init__(self, peer: str, remote: RemoteAddress) -> None:
        self.peer = peer
        self.remote = remote


class _Write:
    """One version of one chunk on its way through this node."""

    __slots__ = (
        "batch", "block", "final", "hop", "number", "places", "position", "predecessors", "request", "slot", "step",
        "successor", "version",
    )  # fmt: skip

    def __init__(self, block: int, version: int, request: str, position: int, hop: str, place: _Place) -> None:
        self.block = block
        self.version = version
        self.request = request
        self.position = position
        self.hop = hop
        self.places = [place]
        self.step = Step.QUEUED
        self.slot = -1
        self.successor = ""
        self.final = False
        self.predecessors: list[str] = []
        """Nodes that wait for `ChunkStored`."""
        self.batch: Batch | None = None
        self.number = 0
        """Place in the client's batch."""

    def move(self, does: Does) -> None:
        """The next step. Raises KeyError."""
        self.step = STEPS[self.step, does]


class ChunkWrites:
    """See the head of this file. `staging` is the node's region for it, None where chains have one node."""

    def __init__(
        self, shelf: Shelf, replicas: int, staging: LocalMemory | None, where: RemoteAddress, slots: int = STAGED
    ) -> None:
        """Raises ValueError for a region without the room of `slots` images for each place but the tail's."""
        need = slots * (replicas - 1) * shelf.shape.full_image
        if need and (staging is None or staging.size < need):
            raise ValueError(f"{shelf.node}: a staging region of {need} bytes is needed for chains of {replicas}")
        self._shelf = shelf
        self._staging = staging
        self._where = where
        self._slots = slots
        self._free = [list(range(slots)) for _ in range(replicas)]
        self._queues: list[deque[_Write]] = [deque() for _ in range(replicas)]
        self._open: dict[int, dict[int, _Write]] = {}
        """By block and version."""
        self._used: dict[int, int] = {}
        """Highest version that was given to a write that failed."""

    # --- what reads ask ---

    def dirty(self, block: int) -> bool:
        """Whether a version is here that may be committed further down, or may not."""
        return any(write.step is Step.WAITING for write in self._open.get(block, {}).values())

    def decided(self, block: int) -> int:
        """Highest version that is known here to be committed; 0 for none."""
        open_ = self._open.get(block, {})
        committing = [version for version, write in open_.items() if write.step is Step.COMMITTING]
        return max([self._shelf.committed.get(block, 0), *committing])

    # --- from outside ---

    def take(self, now: Nanoseconds, letter: WriteChunks) -> list[Effect]:
        """A client's batch; this node is the head for all of its chunks."""
        batch = Batch(letter.node, letter.batch, len(letter.chunks), ChunksWritten)
        effects: list[Effect] = []
        for number, chunk in enumerate(letter.chunks):
            position = self._position(chunk.block)
            if position is None:
                effects += batch.refuse(self._shelf.node, number, f"{self._shelf.node} is not in its chain")
                continue
            place = _Place(f"{letter.node}.{letter.port}", RemoteAddress(chunk.address, letter.key))
            write = _Write(chunk.block, self._next(chunk.block), letter.request, position, "persist-write", place)
            write.batch, write.number = batch, number
            effects += self._admit(now, write)
        return effects

    def forwarded(self, now: Nanoseconds, letter: ForwardChunk) -> list[Effect]:
        """The predecessor in the chain has a version for us; it may ask twice, and another one may have before."""
        position = self._position(letter.block)
        if position is None or self._shelf.committed.get(letter.block, 0) >= letter.version:
            failure = "" if position is not None else f"{self._shelf.node} is not in its chain"
            return [self._stored(letter.node, letter.block, letter.version, failure)]
        place = _Place(f"{letter.node}.{_SNIC}", RemoteAddress(letter.address, letter.key))
        known = self._open.get(letter.block, {}).get(letter.version)
        if known is not None:
            known.places.append(place)
            if letter.node not in known.predecessors:
                known.predecessors.append(letter.node)
            return []
        write = _Write(letter.block, letter.version, letter.request, position, "replicate", place)
        write.predecessors.append(letter.node)
        return self._admit(now, write)

    def stored(self, now: Nanoseconds, letter: ChunkStored) -> list[Effect]:
        """Word from further down the chain."""
        self._shelf.silence.heard(now, letter.node)
        write = self._open.get(letter.block, {}).get(letter.version)
        if write is None or write.step is not Step.WAITING:
            return []
        if not letter.failure:
            return self._acknowledged(now, write)
        return self._fail(now, write, letter.failure) if letter.node == write.successor else []

    def commit_up_to(self, now: Nanoseconds, block: int, version: int) -> list[Effect]:
        """The tail has said that `version` is committed."""
        waiting = [write for write in self._open.get(block, {}).values() if write.step is Step.WAITING]
        return [effect for write in waiting if write.version <= version for effect in self._acknowledged(now, write)]

    def lost(self, now: Nanoseconds, node: str) -> list[Effect]:
        """`node` is in no chain any more: what waited for it goes to the one behind it."""
        waiting = [
            write
            for versions in self._open.values()
            for write in versions.values()
            if write.step is Step.WAITING and write.successor == node
        ]
        return [effect for write in waiting for effect in self._forward(now, write)]

    # --- one write, step by step ---

    def _position(self, block: int) -> int | None:
        planned = self._shelf.view.planned(block)
        return planned.index(self._shelf.node) if self._shelf.node in planned else None

    def _next(self, block: int) -> int:
        known: list[int] = [self._shelf.committed.get(block, 0), self._used.get(block, 0), *self._open.get(block, ())]
        return 1 + max(known)

    def _admit(self, now: Nanoseconds, write: _Write) -> list[Effect]:
        self._open.setdefault(write.block, {})[write.version] = write
        self._queues[write.position].append(write)
        return self._start_queued(now, write.position)

    def _start_queued(self, now: Nanoseconds, position: int) -> list[Effect]:
        effects: list[Effect] = []
        queue, free = self._queues[position], self._free[position]
        while queue and free:
            write = queue.popleft()
            write.slot = free.pop()
            effects += self._pull(now, write)
        return effects

    def _pull(self, now: Nanoseconds, write: _Write) -> list[Effect]:  # noqa: ARG002  # steps are alike
        write.move(Does.START)
        place = write.places.pop(0)
        ticket = self._shelf.expect(partial(self._pulled, write))
        pull = Pull(
            owner=SERVER,
            ticket=ticket,
            hop=write.hop,
            request=write.request,
            interface=_SNIC,
            peer=place.peer,
            remote=place.remote,
            length=self._shelf.shape.full_image,
        )
        return [Deliver(TRAFFIC, pull)]

    def _pulled(self, write: _Write, now: Nanoseconds, pulled: Pulled) -> list[Effect]:
        if pulled.failure:
            if write.places:
                return self._pull(now, write)
            return self._fail(now, write, f"unreadable: {pulled.failure}")
        try:
            check_full(self._shelf.shape, pulled.data, write.block)
        except BadBlock as fault:
            rejected = Emit(BlockRejected(chunk_name(write.block), self._shelf.node, str(fault)))
            return [rejected, *self._fail(now, write, "corrupt")]
        write.move(Does.PULLED)
        write.final = not self._shelf.view.after(write.block, self._shelf.node)
        if not write.final:
            assert self._staging is not None
            at = self._staged_at(write)
            self._staging.view[at : at + len(pulled.data)] = pulled.data
        ticket = self._shelf.expect(partial(self._written, write))
        return [Compute(DiskWrite(SERVER, ticket, write.block, write.version, pulled.data, write.final))]

    def _written(self, write: _Write, now: Nanoseconds, done: DiskDone) -> list[Effect]:
        if done.failure:
            return self._fail(now, write, done.failure)
        served = self._served("write", write, done)
        if not write.final:
            return [served, *self._forward(now, write)]
        self._now_committed(write)
        return [served, *self._end(now, write)]

    def _forward(self, now: Nanoseconds, write: _Write) -> list[Effect]:
        behind = self._shelf.view.after(write.block, self._shelf.node)
        if not behind:
            return self._commit(write)
        write.move(Does.FORWARD)
        write.successor = behind[0]
        self._shelf.silence.asked(now, write.successor)
        address = self._where.at(self._staged_at(write))
        letter = ForwardChunk(self._shelf.node, write.request, write.block, write.version, address.address, address.key)
        return [self._shelf.post(write.successor, letter)]

    def _acknowledged(self, now: Nanoseconds, write: _Write) -> list[Effect]:
        if write.version > self._shelf.committed.get(write.block, 0):
            return self._commit(write)
        return [self._drop(write), *self._end(now, write)]

    def _commit(self, write: _Write) -> list[Effect]:
        write.move(Does.COMMIT)
        ticket = self._shelf.expect(partial(self._committed, write))
        return [Compute(DiskCommit(SERVER, ticket, write.block, write.version))]

    def _committed(self, write: _Write, now: Nanoseconds, done: DiskDone) -> list[Effect]:
        if done.failure:
            return self._fail(now, write, done.failure)
        self._now_committed(write)
        return [self._served("commit", write, done), *self._end(now, write)]

    def _now_committed(self, write: _Write) -> None:
        committed = self._shelf.committed
        if write.version > committed.get(write.block, 0):
            committed[write.block] = write.version
            self._shelf.damaged.discard(write.block)

    def _end(self, now: Nanoseconds, write: _Write, failure: str = "") -> list[Effect]:
        write.move(Does.FAIL if failure else Does.END)
        versions = self._open[write.block]
        del versions[write.version]
        if not versions:
            del self._open[write.block]
        self._free[write.position].append(write.slot)
        effects = [self._stored(node, write.block, write.version, failure) for node in write.predecessors]
        if write.batch is not None:
            own, number = self._shelf.node, write.number
            effects += write.batch.refuse(own, number, failure) if failure else write.batch.done(own, number)
        return [*effects, *self._start_queued(now, write.position)]

    def _fail(self, now: Nanoseconds, write: _Write, failure: str) -> list[Effect]:
        self._used[write.block] = max(self._used.get(write.block, 0), write.version)
        drafted = write.step in (Step.WAITING, Step.COMMITTING)
        drop = [self._drop(write)] if drafted else []
        return [*drop, *self._end(now, write, failure)]

    def _drop(self, write: _Write) -> Effect:
        ticket = self._shelf.expect(lambda _now, _done: [])
        return Compute(DiskDrop(SERVER, ticket, write.block, write.version))

    def _stored(self, node: str, block: int, version: int, failure: str) -> Effect:
        return self._shelf.post(node, ChunkStored(self._shelf.node, block, version, failure[:60]))

    def _staged_at(self, write: _Write) -> int:
        return (write.position * self._slots + write.slot) * self._shelf.shape.full_image

    def _served(self, operation: str, write: _Write, done: DiskDone) -> Effect:
        size = self._shelf.shape.full_bytes if operation == "write" else 0
        return Emit(ChunkServed(operation, chunk_name(write.block), write.version, size, done.time))
