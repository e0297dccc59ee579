"""The storage server: a node of the 3FS-like store, which keeps chunks on its disk and serves them over its port.

It keeps chunks in replicated chains (`chunk_writes`), serves them from any replica (`chunk_reads`) and leaves out
nodes that do not answer. It moves bytes only by its node's traffic manager and stores them only by its disk (the
accelerator, `testbed.dualpath.disk`), so nothing is kept in memory between two reads. A crashed node does not come
back within a run: there is no resynchronisation and no manager of the cluster (docs/models/storage.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.chains import ChainView
from testbed.dualpath.chunk_letters import (
    AskVersion,
    ChunkStored,
    ForwardChunk,
    Knock,
    ReadChunks,
    TellVersion,
    WriteChunks,
)
from testbed.dualpath.chunk_reads import ChunkReads
from testbed.dualpath.chunk_writes import STAGED, ChunkWrites
from testbed.dualpath.disk import DiskDone
from testbed.dualpath.local_messages import SERVER, Moved, Pulled
from testbed.dualpath.mail import PeerLost
from testbed.dualpath.shelf import Shelf
from testbed.events.kv_events import NodeLost
from testbed.machine import NOTHING, Effect, Effects, Emit, Message, RemoteAddress, UnexpectedMessage
from testbed.network.memory_region import LocalMemory
from testbed.units import Nanoseconds


def staging_bytes(shape: BlockShape, replicas: int, *, images: bool) -> int:
    """Size of the staging region of a storage node: true bytes, or those of `images`. 0 where there is none."""
    return STAGED * (replicas - 1) * (shape.full_image if images else shape.full_bytes)


class StorageServer:
    """See the head of this file.

    `nodes` are all storage nodes in the plan's order, the same on every node. `staging` is the node's region of
    `staging_bytes`, `where` its remote address. `committed` has the chunks that its disk holds already, by version.
    """

    name = SERVER

    def __init__(
        self,
        node: str,
        shape: BlockShape,
        *,
        nodes: Sequence[str],
        replicas: int,
        staging: LocalMemory | None,
        where: RemoteAddress,
        committed: Mapping[int, int] | None = None,
    ) -> None:
        """Raises `BadChains`, or ValueError for a node that is not among `nodes` or too small a region."""
        if node not in nodes:
            raise ValueError(f"{node} is not among the storage nodes {', '.join(nodes)}")
        self._shelf = Shelf(node, shape, ChainView(nodes, replicas), dict(committed or {}))
        self._writes = ChunkWrites(self._shelf, replicas, staging, where)
        self._reads = ChunkReads(self._shelf, self._writes)

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes letters of clients and of other servers, and answers of disk and traffic manager.

        Raises `UnexpectedMessage`.
        """
        match message:
            case ReadChunks():
                return self._reads.take(now, message)
            case WriteChunks():
                return self._writes.take(now, message)
            case ForwardChunk():
                return self._writes.forwarded(now, message)
            case ChunkStored():
                return self._writes.stored(now, message)
            case AskVersion():
                return self._reads.asked(now, message)
            case TellVersion():
                return self._reads.told(now, message)
            case Knock():
                return NOTHING
            case Moved() | Pulled() | DiskDone():
                return self._shelf.answer(now, message.ticket, message)
            case PeerLost():
                return self._lost(now, message.peer)
            case _:
                raise UnexpectedMessage(self.name, message)

    def wake(self, now: Nanoseconds) -> Effects:
        """Knocks at nodes that owe an answer, and gives up those that were silent for too long."""
        knock, lost = self._shelf.silence.due(now)
        effects: list[Effect] = [self._shelf.post(node, Knock(self._shelf.node)) for node in knock]
        for node in lost:
            effects += self._lost(now, node)
        return effects

    def deadline(self) -> Nanoseconds | None:
        """When somebody has been silent for too long."""
        return self._shelf.silence.deadline()

    def _lost(self, now: Nanoseconds, node: str) -> list[Effect]:
        """A client that is gone has its own reads fail; a storage node leaves the chains."""
        view = self._shelf.view
        if node not in view or not view.lose(now, node):
            return []
        self._shelf.silence.forget(node)
        found = Emit(NodeLost(lost=node, found_by=self._shelf.node))
        return [found, *self._writes.lost(now, node), *self._reads.lost(now, node)]
