"""A decode engine: lands the KV of prefilled prompts in its HBM, steps all its turns together, persists full blocks.

A turn waits for HBM first come, first served; it gets the pages of its prompt and of its whole answer at once, so it
never runs out in the middle. KV is copied from the host buffer by CNIC loop-back (PE steps 8-9, DE steps 6-7), checked
block by block, and the turn joins the batch at the next step. Every request is in every step (design dualpath 1.5).
Whenever a block of new KV is full it is persisted at once: device to host by loop-back into a staging page of the
buffer, then to storage (1.6). HBM is given back when the last copy has left it.

It owns its HBM and its staging pages, and knows no scheduler's state and no other engine.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from testbed.dualpath.blocks import ROOT, BadBlock, BlockShape, check_layer, layer_image
from testbed.dualpath.buffers import Extents, Room
from testbed.dualpath.engine_messages import (
    LEADER,
    Cancel,
    DecodeEnded,
    DecodeJob,
    HbmChanged,
    HbmReserved,
    Landed,
    ReserveHbm,
    StartDecode,
    engine_name,
)
from testbed.dualpath.engine_meter import EngineMeter
from testbed.dualpath.letters import BlocksPersisted, ProducedMany, TurnProgress
from testbed.dualpath.local_messages import SCHEDULER, STORAGE, TRAFFIC, BlocksWritten, Move, Moved, WriteBlocks
from testbed.dualpath.mail import MAIL, Post
from testbed.dualpath.node_memory import Hbm, NodeMemory
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.places import Area, Errand, Holding, Part, full_errands, layer_errands, split
from testbed.events.kv_events import BlockRejected, ForwardFinished, TurnStage
from testbed.machine import Compute, Deliver, Effect, Effects, Emit, Message, RemoteAddress, UnexpectedMessage
from testbed.serving.step_times import StepTimes
from testbed.serving.timed_device import Computed, TimedWork
from testbed.units import Nanoseconds

_TURNS_A_LETTER = 64
"""Of a `ProducedMany`, so that it stays below 4,096 bytes."""


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


class _Sequence:
    """A turn in this engine's HBM, or waiting for it."""

    def __init__(self, job: DecodeJob, shape: BlockShape) -> None:
        self.job = job
        self.prompt_blocks = shape.blocks_of(job.prompt_tokens)
        # The last token of an answer has no KV yet when the answer is done.
        self.answer_blocks = shape.blocks_of(job.prompt_tokens + job.answer_tokens - 1) - self.prompt_blocks
        self.extents: Extents | None = None
        self.place = Holding(())
        self.start: StartDecode | None = None
        """Set once the prompt's KV is on this node."""
        self.joined = False
        self.produced = 1
        """Tokens of the answer; prefill has made the first."""
        self.flying = 0
        """Moves into or out of its HBM that are not answered yet."""
        self.writing = 0
        """Writes to storage that are not answered yet."""
        self.unstaged = range(0)
        """Full blocks that wait for staging pages."""
        self.stored: set[int] = set()
        """New blocks that storage has."""
        self.told = job.hit_blocks
        """Leading full blocks that the scheduler was told to be in storage."""
        self.failure = ""

    @property
    def cached(self) -> int:
        """Tokens of KV."""
        return self.job.prompt_tokens + self.produced - 1

    @property
    def is_over(self) -> bool:
        """Whether nothing more will be computed for it."""
        return bool(self.failure) or (self.joined and self.produced == self.job.answer_tokens)


class _Group:
    """Blocks of one turn on their way through the staging pages to storage."""

    def __init__(self, sequence: _Sequence, first: int, count: int, extents: Extents) -> None:
        self.sequence = sequence
        self.first = first
        self.count = count
        self.extents = extents
        self.copies = 0
        self.failure = ""


class DecodeEngine:
    """See the head of this file. `scheduler` is the central scheduler's node."""

    def __init__(
        self,
        memory: NodeMemory,
        engine: int,
        parameters: DualPathParameters,
        *,
        shape: BlockShape,
        times: StepTimes,
        staging: Staging,
        scheduler: str,
    ) -> None:
        self.name = engine_name(engine)
        self._hbm = Hbm(memory, engine)
        self._shape = shape
        self._times = times
        self._staging = staging
        self._scheduler = scheduler
        self._snic = f"snic{engine % parameters.storage_nics}"
        self._bypass = parameters.read_path == "bypass"
        self._persist = parameters.persist and not self._bypass
        pages = memory.pages(self._hbm.region, shape.layers, shape, parameters.hbm_kv_bytes)
        self._room = Room(self._hbm.region, pages, shape.full_bytes)
        self._turns: dict[str, _Sequence] = {}
        self._unstaged: deque[_Sequence] = deque()
        self._verified = 0
        """Layer Blocks whose checksum fitted since the last step."""
        self._stepping: list[_Sequence] = []
        """Those in the step under way; empty between steps."""
        self._began: Nanoseconds = 0
        self._step_time: Nanoseconds = 0
        self._meter = EngineMeter(engine)
        self._ticket = 0
        self._landing: dict[int, _Sequence] = {}
        self._copying: dict[int, _Group] = {}
        self._writing: dict[int, _Group] = {}
        self._effects: list[Effect] = []

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes turns from the leader, and answers. Raises `UnexpectedMessage`."""
        match message:
            case ReserveHbm() if message.job.name not in self._turns:
                self._ask(_Sequence(message.job, self._shape))
            case StartDecode():
                self._start(message)
            case Cancel():
                self._cancel(message)
            case Moved() if message.ticket in self._landing:
                self._landed(self._landing.pop(message.ticket), message.failure)
            case Moved() if message.ticket in self._copying:
                self._copied(self._copying.pop(message.ticket), message.failure)
            case BlocksWritten() if message.ticket in self._writing:
                self._written(self._writing.pop(message.ticket), message.failed)
            case Computed() if self._stepping:
                self._stepped(now)
            case _:
                raise UnexpectedMessage(self.name, message)
        self._stage()
        self._step(now)
        effects, self._effects = self._effects, []
        return effects

    def wake(self, now: Nanoseconds) -> Effects:  # noqa: ARG002  # the contract's shape
        """Nothing is ever due."""
        return ()

    def deadline(self) -> Nanoseconds | None:
        """None."""
        return None

    # --- HBM --------------------------------------------------------------------------------------------------------

    def _ask(self, sequence: _Sequence) -> None:
        name, need = sequence.job.name, sequence.prompt_blocks + sequence.answer_blocks
        self._turns[name] = sequence
        if not self._room.can_ever(need):
            self._fail(sequence, f"its KV of {need} blocks is larger than the engine's HBM")
            return
        extents = self._room.ask(name, need)
        if extents is not None:
            self._granted([(name, extents)])

    def _granted(self, granted: Sequence[tuple[str, Extents]]) -> None:
        """Pages of a prompt and of its answer: rows of their own, for the prompt's come in one WRITE."""
        for name, extents in granted:
            sequence = self._turns[name]
            sequence.extents = extents
            prompt, answer = (self._area(each) for each in split(extents, sequence.prompt_blocks))
            first = sequence.prompt_blocks
            sequence.place = Holding((Part(prompt, 0, 0, first), Part(answer, 0, first, sequence.answer_blocks)))
            if sequence.start is None:
                self._effects.append(Deliver(LEADER, HbmReserved(name, prompt)))
            else:
                self._land(sequence, sequence.start)
        self._tell_room()

    def _area(self, extents: Extents) -> Area:
        return Area(self._hbm.region, extents, self._shape.layers, self._shape.layer_image, rows=True)

    def _tell_room(self) -> None:
        self._effects.append(Emit(self._room.measured()))
        self._effects.append(Deliver(LEADER, HbmChanged(self._hbm.engine, self._room.free)))

    # --- landing ----------------------------------------------------------------------------------------------------

    def _start(self, message: StartDecode) -> None:
        sequence = self._turns.get(message.job.name)
        if sequence is None:
            sequence = _Sequence(message.job, self._shape)
            sequence.start = message
            self._ask(sequence)
        elif not sequence.failure:
            sequence.start = message
            self._land(sequence, message)

    def _land(self, sequence: _Sequence, start: StartDecode) -> None:
        """Copies what is in the host buffer into the pages of the prompt."""
        self._effects.append(Emit(TurnStage(sequence.job.name, "landing")))
        source, target = start.source, sequence.place
        sequence.flying += 1
        if not self._bypass:
            if sum(part.count for part in source.parts) == sequence.prompt_blocks:
                errands = [(-1, errand) for errand in full_errands(source, target.parts[0].area, 0)]
            else:
                errands = [
                    (layer, errand)
                    for part in source.parts
                    for layer in range(self._shape.layers)
                    for errand in layer_errands(source, target, (layer, layer), part.first, part.count)
                ]
            for layer, errand in errands:
                sequence.flying += 1
                ticket = self._move(sequence, start.hop, layer, errand, self._hbm.address)
                self._landing[ticket] = sequence
        self._landed(sequence, "")

    def _landed(self, sequence: _Sequence, failure: str) -> None:
        sequence.flying -= 1
        sequence.failure = sequence.failure or failure
        if sequence.flying:
            return
        self._effects.append(Deliver(LEADER, Landed(sequence.job.name)))
        if not sequence.failure and not self._bypass:
            sequence.failure = self._check(sequence)
        if not sequence.failure:
            sequence.joined = True
            self._effects.append(Emit(TurnStage(sequence.job.name, "decoding")))
            self._persist_from(sequence, sequence.job.hit_blocks)
        self._settle(sequence)

    def _check(self, sequence: _Sequence) -> str:
        """Checks every Layer Block of the prompt in HBM; what is wrong with the first one that is."""
        job, view, size = sequence.job, self._hbm.memory.view, self._shape.layer_image
        tokens_each = self._shape.tokens
        for layer in range(self._shape.layers):
            for block, offset in enumerate(sequence.place.layer_offsets(layer, 0, sequence.prompt_blocks)):
                expected = job.prompt_ids[block]
                try:
                    tokens = check_layer(self._shape, view[offset : offset + size], expected, layer)
                    if tokens != min(tokens_each, job.prompt_tokens - block * tokens_each):
                        raise BadBlock(expected, layer, f"has {tokens} tokens")
                except BadBlock as error:
                    self._effects.append(Emit(BlockRejected(f"{expected:016x}", self._hbm.region, str(error))))
                    return f"a wrong block has reached {self._hbm.node}.{self._hbm.region}"
        self._verified += self._shape.layers * sequence.prompt_blocks
        return ""

    # --- steps ------------------------------------------------------------------------------------------------------

    def _step(self, now: Nanoseconds) -> None:
        """Begins the next step with all turns that are here."""
        if self._stepping:
            return
        self._stepping = [each for each in self._turns.values() if each.joined and not each.is_over]
        if not self._stepping:
            return
        self._began = now
        self._step_time = self._times.decode(len(self._stepping), sum(each.cached for each in self._stepping))
        self._ticket += 1
        self._effects.append(Compute(TimedWork(self._hbm.engine, self.name, self._ticket, self._step_time)))

    def _stepped(self, now: Nanoseconds) -> None:
        stepped = [each for each in self._stepping if not each.failure]
        cached = sum(each.cached for each in stepped)
        self._stepping = []
        for sequence in stepped:
            sequence.produced += 1
            if sequence.cached % self._shape.tokens == 0:
                block = sequence.cached // self._shape.tokens - 1
                self._fill(sequence, block)
                self._persist_from(sequence, block)
        for first in range(0, len(stepped), _TURNS_A_LETTER):
            some = stepped[first : first + _TURNS_A_LETTER]
            progress = tuple(TurnProgress(each.job.name, 1, each.is_over) for each in some)
            self._effects.append(Deliver(MAIL, Post(self._scheduler, SCHEDULER, ProducedMany(progress))))
        self._effects.append(
            Emit(
                ForwardFinished(
                    engine=self._hbm.engine,
                    kind="decode",
                    turns=tuple(each.job.name for each in stepped),
                    tokens=len(stepped),
                    cached=cached,
                    began=self._began,
                    attention=0,
                    computed=self._step_time,
                    hbm_bytes=self._room.held_bytes,
                    verified=self._verified,
                )
            )
        )
        self._verified = 0
        load = len(self._turns), sum(each.cached for each in self._turns.values())
        self._effects += self._meter.computed(now, self._step_time, *load)
        for sequence in stepped:
            self._settle(sequence)

    def _fill(self, sequence: _Sequence, block: int) -> None:
        """What the step's kernels leave in HBM once a block is full; images of blocks in part are not kept."""
        if self._bypass:
            return
        view, size = self._hbm.memory.view, self._shape.layer_image
        for layer in range(self._shape.layers):
            for offset in sequence.place.layer_offsets(layer, block, 1):
                image = layer_image(self._shape, sequence.job.block_ids[block], layer, self._shape.tokens)
                view[offset : offset + size] = image

    # --- persisting -------------------------------------------------------------------------------------------------

    def _persist_from(self, sequence: _Sequence, block: int) -> None:
        """All full blocks from `block` on are to be persisted, behind those of this turn that wait already."""
        if not self._persist:
            return
        first = sequence.unstaged.start if sequence.unstaged else block
        end = sequence.cached // self._shape.tokens
        if not sequence.unstaged and first < end:
            self._unstaged.append(sequence)
        sequence.unstaged = range(first, max(first, end))

    def _stage(self) -> None:
        """Copies as many full blocks to staging pages as there is room for."""
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
            group = _Group(sequence, waiting.start, count, extents)
            for errand in full_errands(sequence.place, self._staging.area(extents, self._shape), waiting.start):
                sequence.flying += 1
                group.copies += 1
                ticket = self._move(sequence, "persist-copy", -1, errand, self._staging.address)
                self._copying[ticket] = group

    def _copied(self, group: _Group, failure: str) -> None:
        group.sequence.flying -= 1
        group.copies -= 1
        group.failure = group.failure or failure
        if not group.copies:
            if group.failure or group.sequence.failure:
                self._staging.room.release(group.extents)
            else:
                self._write(group)
        self._settle(group.sequence)

    def _write(self, group: _Group) -> None:
        ids = group.sequence.job.block_ids
        area = self._staging.area(group.extents, self._shape)
        group.sequence.writing += 1
        self._ticket += 1
        self._writing[self._ticket] = group
        blocks = range(group.first, group.first + group.count)
        write = WriteBlocks(
            owner=self.name,
            ticket=self._ticket,
            request=group.sequence.job.name,
            blocks=tuple(ids[block] for block in blocks),
            parents=tuple(ids[block - 1] if block else ROOT for block in blocks),
            region=self._staging.region,
            offsets=tuple(piece.offset for piece in area.pieces(0, 0, group.count)),
            interface=self._snic,
        )
        self._effects.append(Deliver(STORAGE, write))

    def _written(self, group: _Group, failed: tuple[int, ...]) -> None:
        sequence = group.sequence
        self._staging.room.release(group.extents)
        sequence.writing -= 1
        blocks = range(group.first, group.first + group.count)
        sequence.stored.update(block for block in blocks if sequence.job.block_ids[block] not in failed)
        stored = sequence.told
        while stored in sequence.stored:
            stored += 1
        if stored > sequence.told:
            sequence.told = stored
            letter = BlocksPersisted(sequence.job.name, stored)
            self._effects.append(Deliver(MAIL, Post(self._scheduler, SCHEDULER, letter)))
        self._settle(sequence)

    def _move(self, sequence: _Sequence, hop: str, layer: int, errand: Errand, base: RemoteAddress) -> int:
        self._ticket += 1
        move = Move(
            owner=self.name,
            ticket=self._ticket,
            hop=hop,
            request=sequence.job.name,
            layer=layer,
            interface=self._hbm.interface,
            peer=self._hbm.port,
            remote=base.at(errand.offset),
            pieces=errand.pieces,
        )
        self._effects.append(Deliver(TRAFFIC, move))
        return self._ticket

    # --- the end ----------------------------------------------------------------------------------------------------

    def _cancel(self, message: Cancel) -> None:
        sequence = self._turns.get(message.name)
        if sequence is not None:
            self._fail(sequence, message.reason)

    def _fail(self, sequence: _Sequence, reason: str) -> None:
        sequence.failure = sequence.failure or reason
        self._settle(sequence)

    def _settle(self, sequence: _Sequence) -> None:
        """Gives back HBM that nobody touches any more, and ends a turn of which nothing is left to do."""
        if not sequence.is_over or sequence.job.name not in self._turns:
            return
        if sequence.failure and sequence.unstaged:
            sequence.unstaged = range(0)
            self._unstaged.remove(sequence)
        if sequence.flying or sequence.unstaged:
            return
        name = sequence.job.name
        ended = not sequence.writing
        if ended:
            del self._turns[name]
        if sequence.extents is not None:
            extents, sequence.extents = sequence.extents, None
            self._granted(self._room.release(extents))
        elif ended and sequence.failure:
            self._granted(self._room.withdraw(name))
        if ended:
            self._effects.append(Deliver(LEADER, DecodeEnded(name, sequence.failure)))
