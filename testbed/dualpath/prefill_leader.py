"""The leader engine of a prefill node: fetches for its group, owns the PE buffer, has hits read, feeds its engines.

A turn takes what it needs in one order everywhere: room at the decode side, then room in the PE buffer, then HBM of the
prefill engine. Nobody who has a later thing waits for an earlier one, so turns can wait for memory and never for each
other in a circle (known fault 32). Buffer pages are given back when the turn's prefill is done or it has failed, and
never while something is under way into them (known fault 31).

It knows turns and places, no KV and no schedule of batches. Design dualpath 1.2, 1.6.
"""

from __future__ import annotations

from testbed.dualpath.blocks import BlockShape, block_ids
from testbed.dualpath.buffers import Extents, Room
from testbed.dualpath.engine_messages import (
    LEADER,
    Cancel,
    PrefillEnded,
    PrefillJob,
    StartPrefill,
    engine_name,
)
from testbed.dualpath.fetching import Fetching
from testbed.dualpath.handover_letters import BufferGranted, HitsReady, PrefillDone
from testbed.dualpath.letters import AnyLetter
from testbed.dualpath.local_messages import SCHEDULER, STORAGE, BlockArrived, BlocksRead, ReadBlocks
from testbed.dualpath.mail import MAIL, PeerLost, Post
from testbed.dualpath.node_memory import BUFFER, NodeMemory
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.places import Area, Holding, Part
from testbed.dualpath.prefill_turn import PrefillMove, PrefillStage, PrefillTurn
from testbed.dualpath.rounds import ROUNDS
from testbed.dualpath.turn_letters import Abort, Assign, Drained, NodeGone, TurnEnded
from testbed.events.kv_events import TurnStage
from testbed.machine import Deliver, Effect, Effects, Emit, Message, UnexpectedMessage
from testbed.units import Nanoseconds


class PrefillLeader:
    """See the head of this file. `memory` has the node's buffer and the peers' addresses."""

    name = LEADER

    def __init__(
        self, memory: NodeMemory, parameters: DualPathParameters, *, shape: BlockShape, scheduler: str
    ) -> None:
        self._node = memory.node
        self._memory = memory
        self._parameters = parameters
        self._shape = shape
        self._scheduler = scheduler
        self._bypass = parameters.read_path == "bypass"
        self._fetching = Fetching(memory.node, "prefill", scheduler, parameters)
        pages = memory.pages(BUFFER, shape.layers, shape, parameters.prefill_buffer_bytes)
        self._room = Room(BUFFER, pages, shape.full_bytes)
        self._reads: dict[int, str] = {}
        """Turns of reads that storage has not answered yet, by ticket."""
        self._ticket = 0
        self._turns: dict[str, PrefillTurn] = {}
        self._early: dict[str, list[BufferGranted | HitsReady]] = {}
        """Letters of decode sides that were faster than the scheduler's."""
        self._aborted: set[str] = set()
        """Turns that the other side has ended, and that have ended here or have not come yet."""
        self._gone: set[str] = set()
        """Nodes that do not answer any more."""
        self._now: Nanoseconds = 0
        self._effects: list[Effect] = []

    @property
    def held_bytes(self) -> int:
        """True bytes of the buffer that are held."""
        return self._room.held_bytes

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes letters, answers of storage and of engines. Raises `UnexpectedMessage`."""
        self._now = now
        match message:
            case Assign() if message.prefill_node == self._node and message.turn.name not in self._turns:
                self._assigned(message)
            case BufferGranted() | HitsReady():
                self._from_decode_side(message)
            case BlockArrived() if message.ticket in self._reads:
                self._fetching.arrived(self._reads[message.ticket], message.blocks * self._shape.tokens)
            case BlocksRead() if message.ticket in self._reads:
                self._read(self._reads.pop(message.ticket), message.failed)
            case PrefillEnded() if message.name in self._turns:
                self._ended(self._turns[message.name], message.failure)
            case Abort():
                self._abort(message)
            case NodeGone():
                self._lost(message.node)
            case PeerLost():
                self._found_lost(message.peer)
            case _:
                raise UnexpectedMessage(self.name, message)
        return self._take_effects(now)

    def wake(self, now: Nanoseconds) -> Effects:
        """Fetches, if it is time."""
        return self._take_effects(now)

    def deadline(self) -> Nanoseconds | None:
        """The next fetch."""
        return self._fetching.due

    def _take_effects(self, now: Nanoseconds) -> Effects:
        effects = [*self._effects, *self._fetching.told(), *self._fetching.fetch(now)]
        self._effects = []
        return effects

    # --- a turn's way -----------------------------------------------------------------------------------------------

    def _assigned(self, assign: Assign) -> None:
        name = assign.turn.name
        turn = self._turns[name] = PrefillTurn(assign, block_ids(assign.turn.prompt, self._shape.tokens))
        reads = 0 if self._bypass else assign.prefill_blocks * self._shape.tokens
        self._fetching.add(name, assign.prefill_engine, assign.turn.prompt_tokens, reads)
        if name in self._aborted:
            self._break(turn, "its decode side broke off")
            return
        if assign.decode_node in self._gone:
            self._lost(assign.decode_node)
            return
        if self._bypass:
            turn.far_ready = True
        for letter in self._early.pop(name, ()):
            self._from_decode_side(letter)

    def _from_decode_side(self, letter: BufferGranted | HitsReady) -> None:
        turn = self._turns.get(letter.name)
        if turn is None:
            self._early.setdefault(letter.name, []).append(letter)
        elif turn.is_breaking:
            return
        elif isinstance(letter, HitsReady):
            turn.far_ready = True
            self._hand_over(turn)
        else:
            self._granted(turn, letter)

    def _granted(self, turn: PrefillTurn, letter: BufferGranted) -> None:
        """The decode side has a place: now for room in the own buffer."""
        turn.move(PrefillMove.GRANT)
        turn.there = letter
        need = 0 if self._bypass else turn.assign.prefill_blocks
        if not self._room.can_ever(need):
            self._break(turn, f"its {need} hit blocks are more than the PE buffer holds")
            return
        extents = () if need == 0 else self._room.ask(turn.assign.turn.name, need)
        if extents is not None:
            self._roomed(turn, extents)
        elif need:
            self._effects.append(Emit(self._room.measured()))

    def _roomed(self, turn: PrefillTurn, extents: Extents) -> None:
        turn.move(PrefillMove.ROOM)
        turn.extents = extents
        name = turn.assign.turn.name
        self._stage(name, "allocated")
        self._stage(name, "reading")
        if extents:
            turn.reading = True
            self._effects.append(Emit(self._room.measured()))
            self._effects.append(Deliver(STORAGE, self._read_of(turn)))
        self._hand_over(turn)

    def _read_of(self, turn: PrefillTurn) -> ReadBlocks:
        assign, area = turn.assign, self._area(turn.extents)
        count = assign.prefill_blocks
        self._ticket += 1
        self._reads[self._ticket] = assign.turn.name
        return ReadBlocks(
            owner=self.name,
            ticket=self._ticket,
            request=assign.turn.name,
            hop="pe1-2",
            blocks=turn.ids[:count],
            region=BUFFER,
            offsets=tuple(piece.offset for piece in area.pieces(0, 0, count)),
            interface=f"snic{assign.prefill_engine % self._parameters.storage_nics}",
        )

    def _area(self, extents: Extents) -> Area:
        return Area(BUFFER, extents, self._shape.layers, self._shape.layer_image, rows=False)

    def _read(self, name: str, failed: tuple[int, ...]) -> None:
        turn = self._turns[name]
        turn.reading = False
        self._fetching.read(name)
        if turn.is_breaking:
            self._settle(turn)
        elif failed:
            turn.lost_blocks = True
            self._break(turn, f"storage has lost {len(failed)} of its blocks")
        else:
            self._hand_over(turn)

    def _hand_over(self, turn: PrefillTurn) -> None:
        """To its engine, once the hits of both sides are in buffers."""
        if turn.stage is not PrefillStage.READING or turn.reading or not turn.far_ready:
            return
        turn.move(PrefillMove.READ)
        turn.at_engine = True
        self._stage(turn.assign.turn.name, "ready")
        engine = engine_name(turn.assign.prefill_engine)
        self._effects.append(Deliver(engine, StartPrefill(self._job(turn))))

    def _job(self, turn: PrefillTurn) -> PrefillJob:
        assign, grant, shape = turn.assign, turn.there, self._shape
        assert grant is not None
        area = Area(grant.region, grant.extents, shape.layers, shape.layer_image, rows=True)
        here = assign.prefill_blocks
        after = assign.hit_blocks if grant.skipped else here
        parts = (Part(area, 0, 0, here), Part(area, here, after, len(turn.ids) - after))
        return PrefillJob(
            name=assign.turn.name,
            block_ids=turn.ids,
            prompt_tokens=assign.turn.prompt_tokens,
            answer_tokens=assign.turn.generate_tokens,
            hit_blocks=assign.hit_blocks,
            here=Holding((Part(self._area(turn.extents), 0, 0, here),)),
            here_blocks=here,
            decode_node=assign.decode_node,
            decode_engine=assign.decode_engine,
            there=Holding(parts),
            base=self._memory.address(assign.decode_node, grant.region),
            landing=self._parameters.decode_landing,
        )

    def _ended(self, turn: PrefillTurn, failure: str) -> None:
        turn.at_engine = False
        if turn.is_breaking:
            self._settle(turn)
        elif failure:
            self._break(turn, failure)
        else:
            name = turn.assign.turn.name
            self._post(turn.assign.decode_node, LEADER, PrefillDone(name), writer=self.name)
            self._forget(turn)

    # --- the end ----------------------------------------------------------------------------------------------------

    def _break(self, turn: PrefillTurn, reason: str) -> None:
        """Ends a turn that cannot go on; what is under way for it is waited for."""
        turn.move(PrefillMove.BREAK)
        turn.failure = reason
        name = turn.assign.turn.name
        if turn.at_engine:
            lost = turn.assign.decode_node if turn.decode_lost else ""
            self._effects.append(Deliver(engine_name(turn.assign.prefill_engine), Cancel(name, reason, lost)))
        self._settle(turn)

    def _settle(self, turn: PrefillTurn) -> None:
        """Frees and forgets a broken turn of which nothing is under way any more."""
        if turn.reading or turn.at_engine:
            return
        name, decode_node = turn.assign.turn.name, turn.assign.decode_node
        self._stage(name, "failed", turn.failure)
        if turn.answer_to:
            self._post(turn.answer_to, LEADER, Drained(name), writer=self.name)
        elif not turn.decode_lost:
            self._post(decode_node, LEADER, Abort(name, turn.failure, quiet=True), writer=self.name)
        self._forget(turn)

    def _forget(self, turn: PrefillTurn) -> None:
        name = turn.assign.turn.name
        del self._turns[name]
        self._fetching.remove(self._now, name)
        ended = TurnEnded(name, self._node, turn.assign.prefill_engine, turn.failure, turn.lost_blocks)
        self._post(self._scheduler, SCHEDULER, ended)
        granted = self._room.release(turn.extents) if turn.extents else self._room.withdraw(name)
        if turn.extents:
            self._effects.append(Emit(self._room.measured()))
        for other, extents in granted:
            self._roomed(self._turns[other], extents)

    def _abort(self, letter: Abort) -> None:
        turn = self._turns.get(letter.name)
        if turn is None:
            # It has ended here, or has not come yet and never shall.
            self._early.pop(letter.name, None)
            self._aborted.add(letter.name)
            if letter.node:
                self._post(letter.node, LEADER, Drained(letter.name))
            return
        turn.answer_to = turn.answer_to or letter.node
        if not turn.is_breaking:
            self._break(turn, letter.reason)

    def _found_lost(self, node: str) -> None:
        """A letter has not reached its node: the scheduler hears of it at once, and not by its own patience."""
        if node not in self._gone:
            self._post(self._scheduler, SCHEDULER, NodeGone(node))
        self._lost(node)

    def _lost(self, node: str) -> None:
        """A node is gone: its turns fail, and nothing that it owes is waited for."""
        self._gone.add(node)
        if self._parameters.steps_together:
            self._effects.append(Deliver(ROUNDS, NodeGone(node)))
        for turn in [each for each in self._turns.values() if each.assign.decode_node == node]:
            turn.decode_lost = True
            if not turn.is_breaking:
                self._break(turn, f"{node} does not answer")
            elif turn.at_engine:
                engine = engine_name(turn.assign.prefill_engine)
                self._effects.append(Deliver(engine, Cancel(turn.assign.turn.name, turn.failure, node)))

    def _stage(self, name: str, stage: str, detail: str = "") -> None:
        self._effects.append(Emit(TurnStage(name, stage, detail)))

    def _post(self, peer: str, to: str, letter: AnyLetter, writer: str = "") -> None:
        self._effects.append(Deliver(MAIL, Post(peer, to, letter, writer)))
