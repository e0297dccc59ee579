"""A decode engine: lands the KV of prefilled prompts in its HBM, steps all its turns together, persists full blocks.

A turn waits for HBM first come, first served; it gets the pages of its prompt and of its whole answer at once, so it
never runs out in the middle. KV is copied from the host buffer by CNIC loop-back (PE steps 8-9, DE steps 6-7), checked
block by block, and the turn joins the batch at the next step. Every request is in every step (design dualpath 1.5).
Whenever a block of new KV is full it is persisted at once: device to host by loop-back into a staging page of the
buffer, then to storage (1.6). HBM is given back when the last copy has left it.

It owns its HBM and its staging pages, and knows no scheduler's state and no other engine.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.buffers import Extents, Room
from testbed.dualpath.decode_sequence import DecodeSequence
from testbed.dualpath.engine_messages import (
    LEADER,
    Cancel,
    DecodeEnded,
    GroupBroken,
    HbmChanged,
    HbmReserved,
    Landed,
    ReserveHbm,
    RoundBegins,
    RoundGoes,
    StartDecode,
    engine_name,
)
from testbed.dualpath.engine_meter import EngineMeter
from testbed.dualpath.group_seat import GroupSeat
from testbed.dualpath.kv_in_hbm import KvInHbm
from testbed.dualpath.layer_steps import LayerSteps
from testbed.dualpath.local_messages import SCHEDULER, TRAFFIC, BlocksWritten, Exchanged, Move, Moved
from testbed.dualpath.mail import MAIL, Post
from testbed.dualpath.node_memory import Hbm, NodeMemory
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.persisting import Persisting, Staging
from testbed.dualpath.places import Area, Errand, Holding, Part, full_errands, layer_errands, split
from testbed.dualpath.round_letters import EngineLoad
from testbed.dualpath.turn_letters import ProducedMany, TurnProgress
from testbed.events.kv_events import ForwardFinished, TurnStage
from testbed.machine import Deliver, Effect, Effects, Emit, Message, RemoteAddress, UnexpectedMessage
from testbed.serving.step_times import StepTimes
from testbed.serving.timed_device import Computed
from testbed.units import Nanoseconds

_TURNS_A_LETTER = 64
"""Of a `ProducedMany`, so that it stays below 4,096 bytes."""


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
        place: int = 0,
    ) -> None:
        self.name = engine_name(engine)
        self._hbm = Hbm(memory, engine)
        self._shape = shape
        self._times = times
        self._scheduler = scheduler
        snic = f"snic{engine % parameters.storage_nics}"
        self._persisting = Persisting(self._hbm, staging, shape=shape, snic=snic, scheduler=scheduler)
        self._together = parameters.tensor_parallel
        self._kv = KvInHbm(self._hbm, shape)
        self._seat = GroupSeat(engine, together=parameters.steps_together)
        self._steps = LayerSteps(engine, place, parameters, shape.scale)
        self._bypass = parameters.read_path == "bypass"
        self._persist = parameters.persist and not self._bypass
        pages = memory.pages(self._hbm.region, shape.layers, shape, parameters.hbm_kv_bytes)
        self._room = Room(self._hbm.region, pages, shape.full_bytes)
        self._turns: dict[str, DecodeSequence] = {}
        self._verified = 0
        """Layer Blocks whose checksum fitted since the last step."""
        self._stepping: list[DecodeSequence] = []
        """Those in the step under way."""
        self._layers_left = 0
        """Of the step under way, where it is taken layer by layer."""
        self._began: Nanoseconds = 0
        self._step_time: Nanoseconds = 0
        self._meter = EngineMeter(engine)
        self._ticket = 0
        self._landing: dict[int, DecodeSequence] = {}
        self._effects: list[Effect] = []

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes turns from the leader, and answers. Raises `UnexpectedMessage`."""
        match message:
            case ReserveHbm() if message.job.name not in self._turns:
                self._ask(DecodeSequence(message.job, self._shape))
            case StartDecode():
                self._start(message)
            case Cancel():
                self._cancel(message)
            case Moved() if message.ticket in self._landing:
                self._landed(self._landing.pop(message.ticket), message.failure)
            case Moved() if self._persisting.copies(message.ticket):
                self._persisted(self._persisting.copied(message.ticket, message.failure))
            case BlocksWritten() if self._persisting.writes(message.ticket):
                self._persisted(self._persisting.written(message.ticket, message.failed))
            case Computed() | Exchanged() if self._steps.is_busy:
                self._advance(now, message)
            case Computed() | Exchanged() if self._seat.broken:
                pass  # of the step that was given up
            case RoundBegins() if not self._steps.is_busy:
                self._join(now)
            case RoundGoes() if self._seat.in_round:
                self._seat.loads = message.loads
                self._begin_layer()
            case GroupBroken():
                self._break(message.reason)
            case _:
                raise UnexpectedMessage(self.name, message)
        self._effects += self._persisting.stage()
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

    def _ask(self, sequence: DecodeSequence) -> None:
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
            sequence = DecodeSequence(message.job, self._shape)
            sequence.start = message
            self._ask(sequence)
        elif not sequence.failure:
            sequence.start = message
            self._land(sequence, message)

    def _land(self, sequence: DecodeSequence, start: StartDecode) -> None:
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

    def _landed(self, sequence: DecodeSequence, failure: str) -> None:
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
            if self._persist:
                self._persisting.want(sequence, sequence.job.stored_blocks)
        self._settle(sequence)

    def _check(self, sequence: DecodeSequence) -> str:
        """Checks every Layer Block of the prompt in HBM; why the turn fails, if one is wrong."""
        job = sequence.job
        for layer in range(self._shape.layers):
            rejected = self._kv.check(sequence.place, layer, layer, job.prompt_ids, job.prompt_tokens)
            if rejected is not None:
                self._effects.append(Emit(rejected))
                return f"a wrong block has reached {self._hbm.node}.{self._hbm.region}"
        self._verified += self._shape.layers * sequence.prompt_blocks
        return ""

    # --- steps ------------------------------------------------------------------------------------------------------

    def _step(self, now: Nanoseconds) -> None:
        """Begins the next step with all turns that are here."""
        if self._steps.is_busy or self._seat.in_round:
            return
        ready = self._joined()
        if ready and self._seat.broken:
            for sequence in ready:
                self._fail(sequence, self._seat.broken)
        elif ready and self._seat.together:
            self._effects += self._seat.ask()
        elif ready:
            self._stepping, self._began, self._layers_left = ready, now, 1
            self._step_time = self._times.decode(len(ready), sum(each.cached for each in ready))
            self._effects += self._steps.alone(self._step_time)

    def _joined(self) -> list[DecodeSequence]:
        return [each for each in self._turns.values() if each.joined and not each.is_over]

    def _join(self, now: Nanoseconds) -> None:
        """A round has begun: all that is here takes part, perhaps nothing."""
        self._stepping, self._began, self._layers_left = self._joined(), now, self._shape.layers
        load = EngineLoad(0, len(self._stepping), sum(each.cached for each in self._stepping))
        self._effects += self._seat.begin(load)

    def _begin_layer(self) -> None:
        """A layer of a round. Experts, or shares of a layer, are spread evenly: an engine has the mean at least."""
        loads = self._seat.loads
        assert loads is not None
        mean = -(-sum(load.tokens for load in loads) // len(loads))
        own = sum(each.cached for each in self._stepping)
        if self._together:
            self._step_time = self._times.decode(mean, sum(load.context for load in loads) // len(loads))
        else:
            self._step_time = self._times.decode(max(mean, len(self._stepping)), own)
        half = self._step_time // (2 * self._shape.layers)
        self._effects += self._steps.in_group(half, half, loads)

    def _advance(self, now: Nanoseconds, message: Computed | Exchanged) -> None:
        """A part of a layer is done: the next part, the next layer, or the step is."""
        if isinstance(message, Exchanged) and message.failure:
            self._break(message.failure)
            return
        self._effects += self._steps.next()
        if self._steps.is_busy:
            return
        self._layers_left -= 1
        if self._layers_left:
            self._begin_layer()
        else:
            self._stepped(now)
            self._effects += self._seat.end(more=bool(self._joined()))

    def _break(self, reason: str) -> None:
        """The group will never step again: all turns fail."""
        self._seat.give_up(reason)
        self._steps.give_up()
        for sequence in self._joined():
            self._fail(sequence, reason)

    def _persisted(self, news: tuple[DecodeSequence, list[Effect]]) -> None:
        sequence, effects = news
        self._effects += effects
        self._settle(sequence)

    def _stepped(self, now: Nanoseconds) -> None:
        stepped = [each for each in self._stepping if not each.failure]
        cached = sum(each.cached for each in stepped)
        self._stepping = []
        if not stepped:
            return
        for sequence in stepped:
            sequence.produced += 1
            if sequence.cached % self._shape.tokens == 0:
                block = sequence.cached // self._shape.tokens - 1
                self._fill(sequence, block)
                if self._persist:
                    self._persisting.want(sequence, block)
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

    def _fill(self, sequence: DecodeSequence, block: int) -> None:
        """A block is full: its images stand for it from now on; blocks in part have none."""
        for layer in range(self._shape.layers if not self._bypass else 0):
            self._kv.write(sequence.place, layer, layer, sequence.job.block_ids, block, sequence.cached)

    def _move(self, sequence: DecodeSequence, hop: str, layer: int, errand: Errand, base: RemoteAddress) -> int:
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

    def _fail(self, sequence: DecodeSequence, reason: str) -> None:
        sequence.failure = sequence.failure or reason
        self._settle(sequence)

    def _settle(self, sequence: DecodeSequence) -> None:
        """Gives back HBM that nobody touches any more, and ends a turn of which nothing is left to do."""
        if not sequence.is_over or sequence.job.name not in self._turns:
            return
        if sequence.failure:
            self._persisting.forget(sequence)
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
