"""The storage client of an engine's node: brings Full Blocks into its memory and has them kept (3FS-like).

Reads are spread over the replicas of each block by what is outstanding at each storage node, and so much is asked of
a node at once as keeps its port busy. Every block that arrives is checked as a whole before anybody hears of it; one
that is damaged, refused or of a lost node is read from another replica. Writes go to the head of a block's chain; what
this client has had kept before is not written again, since a block's id says all of its content.

A storage node that this client has found lost is not asked again. It knows no engine and no turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from testbed.dualpath.blocks import BadBlock, BlockShape, check_full
from testbed.dualpath.chains import ChainView, chunk_name
from testbed.dualpath.chunk_letters import ChunkPlace, ChunksRead, ChunksWritten, Knock, ReadChunks, WriteChunks
from testbed.dualpath.chunk_reads import EXPIRED
from testbed.dualpath.letters import AnyLetter
from testbed.dualpath.local_messages import (
    SERVER,
    STORAGE,
    BlockArrived,
    BlocksRead,
    BlocksWritten,
    ReadBlocks,
    WriteBlocks,
)
from testbed.dualpath.mail import MAIL, PeerLost, Post
from testbed.dualpath.silence import PATIENCE, Silence
from testbed.dualpath.trie import TrieOfBlocks
from testbed.events.kv_events import BlockRejected, NodeLost
from testbed.machine import Deliver, Effect, Effects, Emit, Message, RemoteAddress, UnexpectedMessage
from testbed.network.memory_region import LocalMemory
from testbed.units import MIB, Nanoseconds

CHUNKS_A_LETTER = 32
"""At most 20 bytes each, so that a letter stays far below a receive's room of 4,096 bytes."""
WINDOW_BYTES = 64 * MIB
"""True bytes that are outstanding at one storage node; one chunk always is. Our choice: 1.3 ms of a 400 Gbit/s port,
which is many times the disk's latency."""
_GRACE = PATIENCE // 10
"""Between the last moment of a WRITE's start and the moment at which a silent node is given up: time for it to land."""
_ATTEMPTS = 3
"""Reads of one block from one replica that had no time for it."""


class _Task:
    """A `ReadBlocks` or `WriteBlocks`, and what of it is still open."""

    __slots__ = ("ask", "failed", "left")

    def __init__(self, ask: ReadBlocks | WriteBlocks, left: int) -> None:
        self.ask = ask
        self.left = left
        self.failed: list[int] = []


class _Item:
    """One block of a task."""

    __slots__ = ("attempts", "place", "task", "tried")

    def __init__(self, task: _Task, place: int) -> None:
        self.task = task
        self.place = place
        self.tried: set[str] = set()
        self.attempts = 0

    @property
    def block(self) -> int:
        return self.task.ask.blocks[self.place]

    @property
    def offset(self) -> int:
        return self.task.ask.offsets[self.place]


class _Batch:
    """What was asked of a storage node in one letter."""

    __slots__ = ("items", "node", "open")

    def __init__(self, node: str, items: Sequence[_Item]) -> None:
        self.node = node
        self.items = items
        self.open = set(range(len(items)))


class _Queue:
    """What is to be asked of a storage node, and how many chunks it has been asked for and owes."""

    __slots__ = ("items", "outstanding")

    def __init__(self) -> None:
        self.items: deque[_Item] = deque()
        self.outstanding = 0

    @property
    def assigned(self) -> int:
        return len(self.items) + self.outstanding


class _Peer:
    """One storage node."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.reads = _Queue()
        self.writes = _Queue()


class StorageClient:
    """See the head of this file.

    `regions` and `memories` are the node's regions that may be read into and written from; `nodes` are all storage
    nodes in the plan's order. `overhead` passes before each read is begun (DualPathParameters.retrieval_overhead). With
    `rewrites`, blocks are written also when they are known to be there.
    """

    name = STORAGE

    def __init__(
        self,
        node: str,
        shape: BlockShape,
        *,
        nodes: Sequence[str],
        replicas: int,
        regions: Mapping[str, RemoteAddress],
        memories: Mapping[str, LocalMemory],
        overhead: Nanoseconds = 0,
        window_bytes: int = WINDOW_BYTES,
        rewrites: bool = False,
    ) -> None:
        """Raises `BadChains`."""
        self.trie = TrieOfBlocks()
        """What this client has had kept."""
        self._rewrites = rewrites
        self._node = node
        self._shape = shape
        self._view = ChainView(nodes, replicas)
        self._regions = regions
        self._memories = memories
        self._overhead = overhead
        self._window = max(1, window_bytes // shape.full_bytes)
        self._peers = {name: _Peer() for name in nodes}
        self._batches: dict[int, _Batch] = {}
        self._number = 0
        self._silence = Silence()
        self._later: deque[tuple[Nanoseconds, ReadBlocks]] = deque()

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes `ReadBlocks`, `WriteBlocks`, the servers' letters and `PeerLost`. Raises `UnexpectedMessage`."""
        match message:
            case ReadBlocks():
                if self._overhead:
                    self._later.append((now + self._overhead, message))
                    return ()
                return self._begin_read(now, message)
            case WriteBlocks():
                return self._begin_write(now, message)
            case ChunksRead() | ChunksWritten():
                return self._answered(now, message)
            case PeerLost():
                return self._lost(now, message.peer)
            case _:
                raise UnexpectedMessage(self.name, message)

    def wake(self, now: Nanoseconds) -> Effects:
        """Begins reads whose overhead is over, knocks at silent nodes and gives up those that were so for too long."""
        effects: list[Effect] = []
        while self._later and self._later[0][0] <= now:
            effects += self._begin_read(now, self._later.popleft()[1])
        knock, lost = self._silence.due(now)
        effects += [self._post(node, Knock(self._node)) for node in knock]
        for node in lost:
            effects += self._lost(now, node)
        return effects

    def deadline(self) -> Nanoseconds | None:
        """When something of that is due."""
        moments = [self._silence.deadline(), self._later[0][0] if self._later else None]
        return min((moment for moment in moments if moment is not None), default=None)

    # --- what is asked ---

    def _begin_read(self, now: Nanoseconds, ask: ReadBlocks) -> list[Effect]:
        task = _Task(ask, len(ask.blocks))
        if not ask.blocks:
            return [Deliver(ask.owner, BlocksRead(ask.ticket))]
        return self._spread(now, [_Item(task, place) for place in range(len(ask.blocks))])

    def _begin_write(self, now: Nanoseconds, ask: WriteBlocks) -> list[Effect]:
        wanted = [place for place, block in enumerate(ask.blocks) if self._rewrites or block not in self.trie]
        if not wanted:
            return [Deliver(ask.owner, BlocksWritten(ask.ticket))]
        task = _Task(ask, len(wanted))
        return self._to_heads(now, [_Item(task, place) for place in wanted])

    def _spread(self, now: Nanoseconds, items: Iterable[_Item]) -> list[Effect]:
        """Gives each block to the replica at which least is outstanding (apportioned reads), the earlier one of two."""
        effects: list[Effect] = []
        touched: dict[str, None] = {}
        for item in items:
            open_ = [name for name in self._view.live(item.block) if name not in item.tried]
            if not open_:
                effects += self._fail(item)
                continue
            name = min(open_, key=lambda name: self._peers[name].reads.assigned)
            self._peers[name].reads.items.append(item)
            touched[name] = None
        for name in touched:
            effects += self._pump(now, name, reads=True)
        return effects

    def _to_heads(self, now: Nanoseconds, items: Iterable[_Item]) -> list[Effect]:
        effects: list[Effect] = []
        touched: dict[str, None] = {}
        for item in items:
            chain = self._view.live(item.block)
            if not chain:
                effects += self._fail(item)
                continue
            self._peers[chain[0]].writes.items.append(item)
            touched[chain[0]] = None
        for name in touched:
            effects += self._pump(now, name, reads=False)
        return effects

    def _pump(self, now: Nanoseconds, name: str, *, reads: bool) -> list[Effect]:
        """Letters to one node, as its window allows; a letter is of one task."""
        queue = self._peers[name].reads if reads else self._peers[name].writes
        waiting = queue.items
        effects: list[Effect] = []
        while waiting and (room := self._window - queue.outstanding) > 0:
            task = waiting[0].task
            items: list[_Item] = []
            while waiting and waiting[0].task is task and len(items) < min(room, CHUNKS_A_LETTER):
                items.append(waiting.popleft())
            queue.outstanding += len(items)
            self._number += 1
            self._batches[self._number] = _Batch(name, items)
            for _ in items:
                self._silence.asked(now, name)
            effects.append(self._post(name, self._letter(now, self._number, items)))
        return effects

    def _letter(self, now: Nanoseconds, number: int, items: Sequence[_Item]) -> AnyLetter:
        ask = items[0].task.ask
        where = self._regions[ask.region]
        chunks = tuple(ChunkPlace(item.block, where.at(item.offset).address) for item in items)
        if isinstance(ask, ReadBlocks):
            until = now + PATIENCE - _GRACE
            return ReadChunks(self._node, number, ask.hop, ask.request, ask.interface, where.key, until, chunks)
        return WriteChunks(self._node, number, ask.request, ask.interface, where.key, chunks)

    # --- what is answered ---

    def _answered(self, now: Nanoseconds, letter: ChunksRead | ChunksWritten) -> list[Effect]:
        batch = self._batches.get(letter.batch)
        if batch is None:  # of a node that was given up
            return []
        reads = isinstance(letter, ChunksRead)
        good = letter.read if isinstance(letter, ChunksRead) else letter.written
        bad = {refused.place: refused.reason for refused in letter.refused}
        effects: list[Effect] = []
        again: list[_Item] = []
        arrived: dict[int, tuple[_Task, int]] = {}
        for place in (*good, *bad):
            if place not in batch.open:
                continue
            item = batch.items[place]
            self._close(now, letter.batch, batch, place, reads=reads)
            failure = bad.get(place, "") or (self._wrong(item) if reads else "")
            if not failure:
                self._note(item)
                task, count = arrived.get(id(item.task), (item.task, 0))
                arrived[id(item.task)] = (task, count + 1)
                continue
            effects.append(Emit(BlockRejected(chunk_name(item.block), batch.node, failure)))
            if not reads:
                effects += self._fail(item)
                continue
            item.attempts += 1
            if failure != EXPIRED or item.attempts >= _ATTEMPTS:
                item.tried.add(batch.node)
            again.append(item)
        for task, count in arrived.values():
            if reads:
                effects.append(Deliver(task.ask.owner, BlockArrived(task.ask.ticket, count)))
            effects += self._advance(task, count)
        effects += self._spread(now, again)
        return [*effects, *self._pump(now, batch.node, reads=reads)]

    def _note(self, item: _Item) -> None:
        """What was written is in the trie; of what was read the parent is not known."""
        if isinstance(item.task.ask, WriteBlocks):
            self.trie.add(item.block, item.task.ask.parents[item.place])

    def _wrong(self, item: _Item) -> str:
        """Why what lies in memory is not the block; empty when it is."""
        view = self._memories[item.task.ask.region].view
        try:
            check_full(self._shape, view[item.offset : item.offset + self._shape.full_image], item.block)
        except BadBlock as fault:
            return str(fault)
        return ""

    def _close(self, now: Nanoseconds, number: int, batch: _Batch, place: int, *, reads: bool) -> None:
        batch.open.discard(place)
        if not batch.open:
            del self._batches[number]
        peer = self._peers[batch.node]
        (peer.reads if reads else peer.writes).outstanding -= 1
        self._silence.heard(now, batch.node)

    def _fail(self, item: _Item) -> list[Effect]:
        item.task.failed.append(item.block)
        if isinstance(item.task.ask, ReadBlocks) and item.block in self.trie:
            self.trie.remove(item.block)
        return self._advance(item.task, 1)

    def _advance(self, task: _Task, count: int) -> list[Effect]:
        task.left -= count
        if task.left:
            return []
        ask = task.ask
        answer = BlocksRead if isinstance(ask, ReadBlocks) else BlocksWritten
        return [Deliver(ask.owner, answer(ask.ticket, tuple(task.failed)))]

    # --- a node is gone ---

    def _lost(self, now: Nanoseconds, node: str) -> list[Effect]:
        if node not in self._view or not self._view.lose(now, node):
            return []
        self._silence.forget(node)
        peer, self._peers[node] = self._peers[node], _Peer()
        reads, writes = list(peer.reads.items), list(peer.writes.items)
        for number in [number for number, batch in self._batches.items() if batch.node == node]:
            batch = self._batches.pop(number)
            open_ = [batch.items[place] for place in sorted(batch.open)]
            (reads if isinstance(open_[0].task.ask, ReadBlocks) else writes).extend(open_)
        found = Emit(NodeLost(lost=node, found_by=self._node))
        return [found, *self._spread(now, reads), *self._to_heads(now, writes)]

    def _post(self, node: str, letter: AnyLetter) -> Effect:
        return Deliver(MAIL, Post(node, SERVER, letter, writer=self.name))
