"""A prefill engine: forward batches of chunks, layer by layer, KV fetched before and sent on behind the compute.

While a layer is computed, the KV of the next ones is fetched (PE steps 3-4 from this node's buffer, DE steps 3-5 from
the decode node's), and what the layer before has made is sent on (PE steps 5-7, or the unnumbered return of missed KV);
design dualpath 1.6. Every Layer Block that reaches HBM is checked; a wrong one ends its turn before it is computed on.
A turn that the quota cuts goes on in a later batch; the KV of its earlier chunks is at the decode side by then and is
fetched from there, as hits of the decode side are.

It owns its HBM and knows its turns, no scheduler, no storage and no other turn's place. States are those of a turn:
waiting, in a batch, or leaving (its last transfers under way).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import islice

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.buffers import Room
from testbed.dualpath.engine_messages import (
    LEADER,
    Cancel,
    GroupBroken,
    PrefillEnded,
    RoundBegins,
    RoundGoes,
    StartPrefill,
    engine_name,
)
from testbed.dualpath.engine_meter import EngineMeter
from testbed.dualpath.group_seat import GroupSeat
from testbed.dualpath.handover_letters import LayerSent, LayerWanted
from testbed.dualpath.kv_in_hbm import KvInHbm
from testbed.dualpath.layer_steps import LayerSteps
from testbed.dualpath.local_messages import SCHEDULER, Exchanged, Moved
from testbed.dualpath.mail import MAIL, PeerLost, Post
from testbed.dualpath.node_memory import Hbm, NodeMemory
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.places import layer_errands
from testbed.dualpath.prefill_batch import Batch, Member, Work, packed, rows_of
from testbed.dualpath.prefill_flights import Flight, Flights
from testbed.dualpath.round_letters import EngineLoad
from testbed.dualpath.turn_letters import Produced
from testbed.events.kv_events import ForwardFinished, TurnStage
from testbed.machine import (
    Deliver,
    Effect,
    Effects,
    Emit,
    Message,
    UnexpectedMessage,
)
from testbed.serving.step_times import StepTimes
from testbed.serving.timed_device import Computed
from testbed.units import Nanoseconds


class PrefillEngine:
    """See the head of this file. `scheduler` is the central scheduler's node, `place` the
    engine's number in its group.
    """

    def __init__(
        self,
        memory: NodeMemory,
        engine: int,
        parameters: DualPathParameters,
        *,
        shape: BlockShape,
        times: StepTimes,
        scheduler: str,
        place: int = 0,
    ) -> None:
        self.name = engine_name(engine)
        self._hbm = Hbm(memory, engine)
        self._shape = shape
        self._times = times
        self._parameters = parameters
        self._scheduler = scheduler
        self._bypass = parameters.read_path == "bypass"
        self._window = min(shape.layers, parameters.layers_ahead + 2) if parameters.layerwise else shape.layers
        self._ahead = parameters.layers_ahead if parameters.layerwise else shape.layers
        pages = memory.pages(self._hbm.region, 1, shape, parameters.prefill_hbm)
        self._room = Room(self._hbm.region, pages, shape.layer_bytes)
        self._kv = KvInHbm(self._hbm, shape)
        self._meter = EngineMeter(engine)
        self._seat = GroupSeat(engine, together=parameters.steps_together)
        self._steps = LayerSteps(engine, place, parameters, shape.scale)
        self._waiting: deque[Work] = deque()
        self._batch: Batch | None = None
        self._leaving: list[Batch] = []
        self._flights = Flights(self._hbm)
        self._effects: list[Effect] = []

    @property
    def held_bytes(self) -> int:
        """True bytes of HBM that are held."""
        return self._room.held_bytes

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes turns from the leader, and answers. Raises `UnexpectedMessage`."""
        match message:
            case StartPrefill():
                job = message.job
                self._waiting.append(Work(job, job.hit_blocks * self._shape.tokens))
            case Cancel():
                self._cancel(message)
            case Moved() if message.ticket in self._flights:
                self._answered(message.ticket, message.failure)
            case LayerSent():
                # One that nobody waits for any more was given up when its node was said to be gone.
                if message.ticket in self._flights:
                    self._answered(message.ticket, message.failure)
            case PeerLost(letter=LayerWanted() as letter):
                if letter.ticket in self._flights:
                    self._answered(letter.ticket, f"{message.peer} does not answer")
            case Computed() | Exchanged() if self._batch is not None and self._batch.computing:
                self._stepped(now, self._batch, message)
            case Computed() | Exchanged() if self._seat.broken:
                pass  # of the step that was given up
            case RoundBegins() if self._batch is None or self._batch.is_computed:
                self._join(now)
            case RoundGoes() if self._seat.in_round:
                self._seat.loads = message.loads
            case GroupBroken():
                self._break(message.reason)
            case _:
                raise UnexpectedMessage(self.name, message)
        self._go_on(now)
        effects, self._effects = self._effects, []
        return effects

    def wake(self, now: Nanoseconds) -> Effects:  # noqa: ARG002  # the contract's shape
        """Nothing is ever due."""
        return ()

    def deadline(self) -> Nanoseconds | None:
        """None."""
        return None

    # --- batches ----------------------------------------------------------------------------------------------------

    def _go_on(self, now: Nanoseconds) -> None:
        """Does whatever can be done now."""
        self._leave()
        if self._batch is None and self._seat.together:
            self._ask()
        elif self._batch is None:
            self._form(now)
        batch = self._batch
        if batch is None:
            return
        while batch.may_fetch():
            self._fetch(batch, batch.next_fetch)
            batch.next_fetch += 1
        if batch.may_compute() and self._seat.may_compute:
            self._compute(batch)
            if batch.is_computed:  # all its turns have failed
                self._go_on(now)

    def _form(self, now: Nanoseconds) -> None:
        """A new batch of what waits, as far as the quota and HBM go; in a round perhaps of nothing."""
        while self._waiting and not self._can_ever(self._waiting[0]):
            work = self._waiting.popleft()
            self._end(work, "its KV is larger than the engine's HBM")
        members: list[Member] = []
        first = list(islice(self._waiting, self._parameters.max_sequences))
        for new in packed(first, self._times.attention_cost, self._parameters):
            member = Member(self._waiting[0], new, self._shape.tokens)
            if not self._bypass:
                extents = self._room.at_once(member.blocks * self._window)
                if extents is None:
                    self._seat.short = not members
                    break
                member.rows = rows_of(self._hbm.region, self._shape, extents, self._window, member.blocks)
            self._waiting.popleft()
            members.append(member)
        if not members and not self._seat.together:
            return
        self._batch = Batch(members, self._shape.layers, self._window, self._ahead, now)
        self._batch.hbm_bytes = self._room.held_bytes
        self._effects.append(Emit(self._room.measured()))
        for member in members:
            if member.first_chunk:
                self._effects.append(Emit(TurnStage(member.job.name, "prefilling")))

    def _ask(self) -> None:
        """An engine that steps with others waits for their next round; in a broken group its turns fail."""
        if self._waiting:
            self._effects += self._seat.ask()
        while self._waiting and self._seat.broken:
            self._end(self._waiting.popleft(), self._seat.broken)

    def _join(self, now: Nanoseconds) -> None:
        self._leave()
        self._form(now)
        assert self._batch is not None
        members = self._batch.members
        attention = self._times.attention([(each.cached, each.new) for each in members]) * self._shape.layers
        self._effects += self._seat.begin(EngineLoad(attention, sum(each.new for each in members)))

    def _can_ever(self, work: Work) -> bool:
        blocks = -(-work.job.prompt_tokens // self._shape.tokens)
        return self._bypass or self._room.can_ever(blocks * self._window)

    def _leave(self) -> None:
        """Members of which nothing is under way any more leave: to the next chunk, or to the leader."""
        for batch in self._batches():
            for member in [each for each in batch.members if not each.flying]:
                if member.work.failure or batch.is_computed:
                    batch.members.remove(member)
                    self._part(member)
            if batch is self._batch and (
                batch.is_computed or not (batch.members or batch.computing or self._seat.in_round)
            ):
                self._batch = None
                self._leaving.append(batch)
        left = [batch for batch in self._leaving if batch.members]
        if len(left) < len(self._leaving) and not self._bypass:
            self._effects.append(Emit(self._room.measured()))
        self._leaving = left

    def _batches(self) -> list[Batch]:
        """All of which anything is here, the present one last."""
        return [*self._leaving, *([self._batch] if self._batch is not None else [])]

    def _part(self, member: Member) -> None:
        work = member.work
        self._release(member, list(member.rows))
        work.chunks += 1
        if work.failure or member.is_last:
            self._end(work, work.failure)
        else:
            work.done = member.cached + member.new
            self._waiting.appendleft(work)

    def _release(self, member: Member, rows: Sequence[int]) -> None:
        """Gives back rows of a window."""
        self._seat.short = False
        if self._bypass:
            return
        for row in rows:
            for part in member.rows.pop(row).parts:
                self._room.release(part.area.extents)

    def _end(self, work: Work, failure: str) -> None:
        self._effects.append(Deliver(LEADER, PrefillEnded(work.job.name, failure)))

    # --- a layer ----------------------------------------------------------------------------------------------------

    def _fetch(self, batch: Batch, layer: int) -> None:
        if self._bypass:
            return
        for member in batch.active:
            job, row = member.job, member.rows[layer % self._window]
            if job.here_blocks:
                errands = layer_errands(job.here, row, (layer, 0), 0, job.here_blocks)
                flight = Flight("fetch", batch, member, layer)
                self._effects += self._flights.moves(flight, "pe3-4", errands, self._hbm.port, self._hbm.address)
            far = member.cached_blocks - job.here_blocks
            if far > 0:
                extents = self._pages(member, layer, job.here_blocks, far)
                ticket = self._flights.begin(Flight("letter", batch, member, layer))
                letter = LayerWanted(
                    job.name, self._hbm.node, self._hbm.engine, layer, job.here_blocks, far, extents, ticket
                )
                self._post(job.decode_node, LEADER, letter, writer=self.name)

    def _pages(self, member: Member, layer: int, first: int, count: int) -> tuple[tuple[int, int], ...]:
        """Pages of a row, as a letter names them."""
        image = self._shape.layer_image
        pieces = member.rows[layer % self._window].pieces(0, first, count)
        return tuple((piece.offset // image, piece.length // image) for piece in pieces)

    def _check(self, member: Member, layer: int) -> None:
        """Checks all that was fetched for a layer; a wrong block ends the turn."""
        row = member.rows[layer % self._window]
        rejected = self._kv.check(row, 0, layer, member.job.block_ids, member.cached)
        if rejected is not None:
            self._effects.append(Emit(rejected))
            member.work.failure = f"a wrong block has reached {self._hbm.node}.{self._hbm.region}"
            return
        member.checked += member.cached_blocks

    def _compute(self, batch: Batch) -> None:
        layer = batch.computed
        if not self._bypass:
            for member in batch.active:
                self._check(member, layer)
        members = batch.active
        if not members and not self._seat.in_round:
            batch.computed = batch.layers
            return
        attention = self._times.attention([(member.cached, member.new) for member in members])
        loads = self._seat.loads
        if loads is None:
            rest = self._times.rest(sum(member.new for member in members))
            effects = self._steps.alone(attention + rest)
        else:
            # Experts, or shares of a layer, are spread evenly: each engine computes the mean.
            rest = self._times.rest(-(-sum(load.tokens for load in loads) // len(loads)))
            if self._parameters.tensor_parallel:
                attention = sum(load.attention for load in loads) // (len(loads) * batch.layers)
            effects = self._steps.in_group(attention, rest, loads)
        batch.attention += attention
        batch.layer_time = attention + rest
        batch.compute += batch.layer_time
        batch.computing = True
        self._effects += effects

    def _stepped(self, now: Nanoseconds, batch: Batch, message: Computed | Exchanged) -> None:
        """A step of the layer is done: the next one, or the layer is computed."""
        if isinstance(message, Exchanged) and message.failure:
            self._break(message.failure)
            return
        self._effects += self._steps.next()
        if not self._steps.is_busy:
            self._computed(batch)
            waiting = sum(work.left for work in self._waiting) + sum(each.new for each in batch.members)
            load = len(self._waiting) + len(batch.members), waiting
            self._effects += self._meter.computed(now, batch.layer_time, *load)

    def _break(self, reason: str) -> None:
        """The group will never step again: all that is here fails."""
        self._seat.give_up(reason)
        self._steps.give_up()
        for member in self._batch.members if self._batch is not None else ():
            member.work.failure = member.work.failure or reason
        if self._batch is not None:
            self._batch.computing = False

    def _computed(self, batch: Batch) -> None:
        layer = batch.computed
        batch.computing = False
        for member in batch.active if not self._bypass else ():
            row = member.rows[layer % self._window]
            self._kv.write(row, 0, layer, member.job.block_ids, member.first_new, member.cached + member.new)
            for hop, first, count in member.sent():
                errands = layer_errands(row, member.job.there, (0, layer), first, count)
                peer = f"{member.job.decode_node}.cnic{member.job.decode_engine}"
                flight = Flight("send", batch, member, layer)
                self._effects += self._flights.moves(flight, hop, errands, peer, member.job.base)
        batch.computed += 1
        self._sent(batch, batch.sending(layer, 0))
        if batch.is_computed:
            self._finished(batch)

    def _finished(self, batch: Batch) -> None:
        """The last layer is computed: prompts that are done have their first token."""
        done = batch.active
        self._effects += self._seat.end(more=bool(self._waiting))
        if not done:
            return
        self._effects.append(
            Emit(
                ForwardFinished(
                    engine=self._hbm.engine,
                    kind="prefill",
                    turns=tuple(member.job.name for member in done),
                    tokens=sum(member.new for member in done),
                    cached=sum(member.cached for member in done),
                    began=batch.began,
                    attention=batch.attention,
                    computed=batch.compute,
                    hbm_bytes=batch.hbm_bytes,
                    verified=sum(member.checked for member in done),
                )
            )
        )
        for member in done:
            if member.is_last:
                self._effects.append(Emit(TurnStage(member.job.name, "prefilled")))
                first = Produced(member.job.name, 1, member.job.answer_tokens == 1)
                self._post(self._scheduler, SCHEDULER, first)

    # --- what is under way ------------------------------------------------------------------------------------------

    def _answered(self, ticket: int, failure: str) -> None:
        self._sent(*self._flights.end(ticket, failure))

    def _sent(self, batch: Batch, spare: Sequence[int]) -> None:
        """HBM of the last layers is free as soon as they are sent, and not with the whole batch."""
        for member in batch.active:
            self._release(member, spare)

    def _cancel(self, message: Cancel) -> None:
        """The turn ends once nothing of it is under way; what a lost node owes is not waited for."""
        for work in [each for each in self._waiting if each.job.name == message.name]:
            self._waiting.remove(work)
            self._end(work, message.reason)
        for member in [each for batch in self._batches() for each in batch.members if each.job.name == message.name]:
            member.work.failure = member.work.failure or message.reason
            if message.lost == member.job.decode_node:
                for ticket in self._flights.letters_of(member):
                    self._answered(ticket, message.reason)

    def _post(self, peer: str, to: str, letter: LayerWanted | Produced, writer: str = "") -> None:
        self._effects.append(Deliver(MAIL, Post(peer, to, letter, writer)))
