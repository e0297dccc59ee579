"""The storage client of a node that has a part of the DRAM pool: DRAM first, storage for the rest (Mooncake Store).

It stands where the storage client stands and asks that one for what is nowhere in DRAM. For each read it asks the
directory (`pool_scheduler`) where blocks lie: those of its own part are copied by CNIC loop-back, those of another
node are READ from its memory over the compute network, without that node's software. Every block is checked like one
from storage. Blocks that were read, and new blocks that are persisted, are kept in its own part as far as the
directory has room: a copy within host memory, which is stated here and not timed.

It knows blocks and places, no engine, no turn and no directory.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, cycle

from testbed.baselines.dram_pool import NOWHERE
from testbed.dualpath.blocks import BadBlock, BlockShape, check_full
from testbed.dualpath.chains import chunk_name
from testbed.dualpath.local_messages import (
    SCHEDULER,
    STORAGE,
    TRAFFIC,
    BlockArrived,
    BlocksRead,
    BlocksWritten,
    Move,
    Moved,
    Piece,
    Pull,
    Pulled,
    ReadBlocks,
    WriteBlocks,
)
from testbed.dualpath.mail import MAIL, PeerLost, Post
from testbed.dualpath.node_memory import NodeMemory
from testbed.dualpath.pool_letters import PoolDone, PoolLookup, PoolPlace, PoolPlaces
from testbed.dualpath.storage_client import StorageClient
from testbed.events.kv_events import BlockRejected
from testbed.machine import Deliver, Effect, Effects, Emit, Message
from testbed.units import Nanoseconds

POOL = "pool"
"""Region of a node's part of the pool."""
BLOCKS_A_LETTER = 128
"""Blocks of one question, so that it and its answer stay far below a receive's room of 4,096 bytes."""


class _Task:
    """A `ReadBlocks` or `WriteBlocks`, and how many of its parts are open."""

    def __init__(self, ask: ReadBlocks | WriteBlocks) -> None:
        self.ask = ask
        self.open = 0
        self.failed: list[int] = []


class _Part:
    """Blocks of a task about which one question is asked."""

    def __init__(self, task: _Task, first: int, size: int) -> None:
        self.task = task
        self.first = first
        self.size = size
        self.left = size
        """Blocks that are not in place yet."""
        self.slots: dict[int, int] = {}
        """Slot that is kept for a block, by its place in the task."""
        self.asked = True
        """The directory has not answered yet."""

    @property
    def blocks(self) -> tuple[int, ...]:
        return self.task.ask.blocks[self.first : self.first + self.size]


class PooledStorage:
    """See the head of this file. `inner` reads and writes storage; `nodes` are all that have a part, as the directory
    numbers them.
    """

    name = STORAGE

    def __init__(
        self,
        inner: StorageClient,
        memory: NodeMemory,
        *,
        shape: BlockShape,
        nodes: Sequence[str],
        engines: int,
        scheduler: str,
    ) -> None:
        self._inner = inner
        self._node = memory.node
        self._memory = memory
        self._shape = shape
        self._nodes = tuple(nodes)
        self._scheduler = scheduler
        self._ports = cycle(f"cnic{engine}" for engine in range(engines))
        self._numbers = count()
        self._parts: dict[int, _Part] = {}
        """By the number of their question."""
        self._copies: dict[int, tuple[int, int, bool]] = {}
        """(question, place in the task, by READ) of each transfer out of the pool, by ticket."""
        self._reads: dict[int, tuple[int, tuple[int, ...]]] = {}
        """(question, places in the task) of what the inner client reads."""
        self._writes: dict[int, _Task] = {}
        """What the inner client writes."""

    @property
    def unfinished(self) -> int:
        """Questions and writes that are not over."""
        return len(self._parts) + len(self._writes)

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes what the storage client takes, the directory's letters and the traffic manager's answers."""
        match message:
            case ReadBlocks():
                return self._begin(message)
            case WriteBlocks():
                return self._begin_write(now, message)
            case PoolPlaces():
                return self._placed(now, message.number, message.places)
            case Moved() | Pulled() if message.ticket in self._copies:
                return self._copied(now, message)
            case BlockArrived() if message.ticket in self._reads:
                ask = self._parts[self._reads[message.ticket][0]].task.ask
                return [Deliver(ask.owner, BlockArrived(ask.ticket, message.blocks))]
            case BlocksRead() if message.ticket in self._reads:
                return self._read(message)
            case BlocksWritten() if message.ticket in self._writes:
                task = self._writes.pop(message.ticket)
                task.failed += message.failed
                return self._close(task)
            case PeerLost(letter=PoolLookup(number=number)):
                # Without a directory everything is in storage.
                nothing = PoolPlace(NOWHERE, NOWHERE, NOWHERE)
                return self._placed(now, number, (nothing,) * self._parts[number].size)
            case PeerLost(letter=PoolDone()):
                return []
            case _:
                return self._inner.receive(now, message)

    def wake(self, now: Nanoseconds) -> Effects:
        """The inner client's."""
        return self._inner.wake(now)

    def deadline(self) -> Nanoseconds | None:
        """The inner client's."""
        return self._inner.deadline()

    # --- questions --------------------------------------------------------------------------------------------------

    def _begin(self, ask: ReadBlocks) -> list[Effect]:
        task = _Task(ask)
        effects = list(self._questions(task))
        return effects or self._answer(task)

    def _begin_write(self, now: Nanoseconds, ask: WriteBlocks) -> list[Effect]:
        task = _Task(ask)
        task.open = 1
        ticket = next(self._numbers)
        self._writes[ticket] = task
        inner = WriteBlocks(
            owner=self.name,
            ticket=ticket,
            request=ask.request,
            blocks=ask.blocks,
            parents=ask.parents,
            region=ask.region,
            offsets=ask.offsets,
            interface=ask.interface,
        )
        return [*self._questions(task), *self._inner.receive(now, inner)]

    def _questions(self, task: _Task) -> Iterator[Effect]:
        for first in range(0, len(task.ask.blocks), BLOCKS_A_LETTER):
            number = next(self._numbers)
            part = _Part(task, first, min(BLOCKS_A_LETTER, len(task.ask.blocks) - first))
            self._parts[number] = part
            task.open += 1
            read = isinstance(task.ask, ReadBlocks)
            yield self._post(PoolLookup(self._node, number, part.blocks, read))

    def _placed(self, now: Nanoseconds, number: int, places: Sequence[PoolPlace]) -> list[Effect]:
        part = self._parts[number]
        part.asked = False
        ask = part.task.ask
        for at, place in enumerate(places, part.first):
            if place.keep != NOWHERE:
                part.slots[at] = place.keep
        if isinstance(ask, WriteBlocks):
            part.left = 0
            return self._over(number, part)
        effects: list[Effect] = []
        elsewhere: list[int] = []
        for at, place in enumerate(places, part.first):
            if place.holder == NOWHERE:
                elsewhere.append(at)
            else:
                effects.append(self._fetch(number, ask, at, self._nodes[place.holder], place.slot))
        return [*effects, *self._from_storage(now, number, ask, tuple(elsewhere))]

    # --- blocks come ------------------------------------------------------------------------------------------------

    def _fetch(self, number: int, ask: ReadBlocks, at: int, holder: str, slot: int) -> Effect:
        ticket, port, size = next(self._numbers), next(self._ports), self._shape.full_image
        near = holder == self._node
        self._copies[ticket] = (number, at, not near)
        if near:
            target = self._memory.address(self._node, ask.region).at(ask.offsets[at])
            piece = Piece(POOL, slot * size, size)
            move = Move(
                owner=self.name, ticket=ticket, hop="pool-local", request=ask.request, interface=port,
                peer=f"{holder}.{port}", remote=target, pieces=(piece,),
            )  # fmt: skip
            return Deliver(TRAFFIC, move)
        source = self._memory.address(holder, POOL).at(slot * size)
        pull = Pull(
            owner=self.name, ticket=ticket, hop="pool-remote", request=ask.request, interface=port,
            peer=f"{holder}.{port}", remote=source, length=size,
        )  # fmt: skip
        return Deliver(TRAFFIC, pull)

    def _copied(self, now: Nanoseconds, message: Moved | Pulled) -> list[Effect]:
        number, at, read = self._copies.pop(message.ticket)
        part = self._parts[number]
        ask = part.task.ask
        assert isinstance(ask, ReadBlocks)
        if read and isinstance(message, Pulled) and not message.failure:
            self._image(ask.region, ask.offsets[at])[:] = message.data
        failure = message.failure or self._wrong(ask, at)
        if failure:
            rejected = Emit(BlockRejected(chunk_name(ask.blocks[at]), f"{self._node}.{POOL}", failure))
            return [rejected, *self._from_storage(now, number, ask, (at,))]
        part.left -= 1
        return [Deliver(ask.owner, BlockArrived(ask.ticket, 1)), *self._over(number, part)]

    def _from_storage(self, now: Nanoseconds, number: int, ask: ReadBlocks, places: tuple[int, ...]) -> list[Effect]:
        if not places:
            return []
        ticket = next(self._numbers)
        self._reads[ticket] = (number, places)
        inner = ReadBlocks(
            owner=self.name,
            ticket=ticket,
            request=ask.request,
            hop=ask.hop,
            blocks=tuple(ask.blocks[at] for at in places),
            region=ask.region,
            offsets=tuple(ask.offsets[at] for at in places),
            interface=ask.interface,
        )
        return list(self._inner.receive(now, inner))

    def _read(self, message: BlocksRead) -> list[Effect]:
        number, places = self._reads.pop(message.ticket)
        part = self._parts[number]
        part.task.failed += message.failed
        part.left -= len(places)
        return self._over(number, part)

    def _wrong(self, ask: ReadBlocks, at: int) -> str:
        try:
            check_full(self._shape, self._image(ask.region, ask.offsets[at]), ask.blocks[at])
        except BadBlock as fault:
            return str(fault)
        return ""

    # --- the end ----------------------------------------------------------------------------------------------------

    def _over(self, number: int, part: _Part) -> list[Effect]:
        """All blocks of a question are in place, or will never be: the good ones are kept."""
        if part.left:
            return []
        del self._parts[number]
        ask, failed = part.task.ask, set(part.task.failed)
        kept = []
        for at, slot in part.slots.items():
            if ask.blocks[at] not in failed:
                self._image(POOL, slot * self._shape.full_image)[:] = self._image(ask.region, ask.offsets[at])
                kept.append(ask.blocks[at])
        return [self._post(PoolDone(self._node, number, tuple(kept))), *self._close(part.task)]

    def _close(self, task: _Task) -> list[Effect]:
        task.open -= 1
        return [] if task.open else self._answer(task)

    def _answer(self, task: _Task) -> list[Effect]:
        ask, failed = task.ask, tuple(task.failed)
        if isinstance(ask, ReadBlocks):
            return [Deliver(ask.owner, BlocksRead(ask.ticket, failed))]
        return [Deliver(ask.owner, BlocksWritten(ask.ticket, failed))]

    def _image(self, region: str, offset: int) -> memoryview:
        return self._memory.memories[region].view[offset : offset + self._shape.full_image]

    def _post(self, letter: PoolLookup | PoolDone) -> Effect:
        return Deliver(MAIL, Post(self._scheduler, SCHEDULER, letter, writer=self.name))
