"""Full blocks of new KV on their way to storage: device to host by CNIC loop-back, then written (design dualpath 1.6).

Copies go into staging pages of the host buffer, as many blocks at once as there are pages; a page is free when storage
has its block. A part of the decode engine; it knows turns as far as their blocks go, and no step.
"""

from __future__ import annotations

from collections import deque

from testbed.dualpath.blocks import ROOT, BlockShape
from testbed.dualpath.buffers import Extents, Room
from testbed.dualpath.decode_sequence import DecodeSequence
from testbed.dualpath.engine_messages import engine_name
from testbed.dualpath.local_messages import SCHEDULER, STORAGE, TRAFFIC, Move, WriteBlocks
from testbed.dualpath.mail import MAIL, Post
from testbed.dualpath.node_memory import Hbm
from testbed.dualpath.places import Area, full_errands
from testbed.dualpath.turn_letters import BlocksPersisted
from testbed.machine import Deliver, Effect, RemoteAddress


class Staging:
    """Pages of the host buffer that are kept for what an engine persists, apart from the turns' buffer.

    Were they taken from the turns' buffer, turns that wait for HBM could keep HBM from being freed (known fault 32).
    """

    def __init__(self, region: str, first: int, pages: int, page_bytes: int, address: RemoteAddress) -> None:
        self.region = region
        self.first = first
        self.address = address
        self.room = Room("staging", pages, page_bytes)

    def area(self, extents: Extents, shape: BlockShape) -> Area:
        """Full Blocks in pages of the room."""
        pages = tuple((self.first + page, count) for page, count in extents)
        return Area(self.region, pages, shape.layers, shape.layer_image, rows=False)


class _Group:
    """Blocks of one turn on their way through the staging pages to storage."""

    def __init__(self, sequence: DecodeSequence, first: int, count: int, extents: Extents) -> None:
        self.sequence = sequence
        self.first = first
        self.count = count
        self.extents = extents
        self.copies = 0
        self.failure = ""


FIRST_TICKET = 1 << 32
"""Of copies and writes; the engine's own moves have those before."""


class Persisting:
    """Of one engine. `snic` is the port that its blocks leave by, `scheduler` the central scheduler's node."""

    def __init__(self, hbm: Hbm, staging: Staging, *, shape: BlockShape, snic: str, scheduler: str) -> None:
        self._hbm = hbm
        self._staging = staging
        self._shape = shape
        self._snic = snic
        self._scheduler = scheduler
        self._unstaged: deque[DecodeSequence] = deque()
        self._ticket = FIRST_TICKET
        self._copying: dict[int, _Group] = {}
        self._writing: dict[int, _Group] = {}

    @property
    def held_bytes(self) -> int:
        """True bytes of staging pages that are held."""
        return self._staging.room.held_bytes

    def copies(self, ticket: int) -> bool:
        """Whether this is a copy under way."""
        return ticket in self._copying

    def writes(self, ticket: int) -> bool:
        """Whether this is a write under way."""
        return ticket in self._writing

    def want(self, sequence: DecodeSequence, block: int) -> None:
        """All full blocks from `block` on are to be persisted, behind those of this turn that wait already."""
        first = sequence.unstaged.start if sequence.unstaged else block
        end = sequence.cached // self._shape.tokens
        if not sequence.unstaged and first < end:
            self._unstaged.append(sequence)
        sequence.unstaged = range(first, max(first, end))

    def forget(self, sequence: DecodeSequence) -> None:
        """What waits of a turn is not persisted."""
        if sequence.unstaged:
            sequence.unstaged = range(0)
            self._unstaged.remove(sequence)

    def stage(self) -> list[Effect]:
        """Copies as many full blocks to staging pages as there is room for."""
        effects: list[Effect] = []
        room = self._staging.room
        while self._unstaged and room.free:
            sequence = self._unstaged[0]
            waiting = sequence.unstaged
            count = min(len(waiting), room.free)
            extents = room.at_once(count)
            if extents is None:
                break
            sequence.unstaged = waiting[count:]
            if not sequence.unstaged:
                self._unstaged.popleft()
            effects += self._copy(_Group(sequence, waiting.start, count, extents))
        return effects

    def _copy(self, group: _Group) -> list[Effect]:
        effects: list[Effect] = []
        area = self._staging.area(group.extents, self._shape)
        for errand in full_errands(group.sequence.place, area, group.first):
            self._ticket += 1
            self._copying[self._ticket] = group
            group.sequence.flying += 1
            group.copies += 1
            move = Move(
                owner=engine_name(self._hbm.engine),
                ticket=self._ticket,
                hop="persist-copy",
                request=group.sequence.job.name,
                interface=self._hbm.interface,
                peer=self._hbm.port,
                remote=self._staging.address.at(errand.offset),
                pieces=errand.pieces,
            )
            effects.append(Deliver(TRAFFIC, move))
        return effects

    def copied(self, ticket: int, failure: str) -> tuple[DecodeSequence, list[Effect]]:
        """A copy is done: its turn, and the write where it was the last of its pages."""
        group = self._copying.pop(ticket)
        group.sequence.flying -= 1
        group.copies -= 1
        group.failure = group.failure or failure
        if group.copies:
            return group.sequence, []
        if group.failure or group.sequence.failure:
            self._staging.room.release(group.extents)
            return group.sequence, []
        return group.sequence, [self._write(group)]

    def _write(self, group: _Group) -> Deliver:
        ids = group.sequence.job.block_ids
        area = self._staging.area(group.extents, self._shape)
        group.sequence.writing += 1
        self._ticket += 1
        self._writing[self._ticket] = group
        blocks = range(group.first, group.first + group.count)
        write = WriteBlocks(
            owner=engine_name(self._hbm.engine),
            ticket=self._ticket,
            request=group.sequence.job.name,
            blocks=tuple(ids[block] for block in blocks),
            parents=tuple(ids[block - 1] if block else ROOT for block in blocks),
            region=self._staging.region,
            offsets=tuple(piece.offset for piece in area.pieces(0, 0, group.count)),
            interface=self._snic,
        )
        return Deliver(STORAGE, write)

    def written(self, ticket: int, failed: tuple[int, ...]) -> tuple[DecodeSequence, list[Effect]]:
        """Storage has blocks: their turn, and word of it to the scheduler where more leading ones are there."""
        group = self._writing.pop(ticket)
        sequence = group.sequence
        self._staging.room.release(group.extents)
        sequence.writing -= 1
        blocks = range(group.first, group.first + group.count)
        sequence.stored.update(block for block in blocks if sequence.job.block_ids[block] not in failed)
        stored = sequence.told
        while stored in sequence.stored:
            stored += 1
        if stored == sequence.told:
            return sequence, []
        sequence.told = stored
        letter = BlocksPersisted(sequence.job.name, stored)
        return sequence, [Deliver(MAIL, Post(self._scheduler, SCHEDULER, letter))]
