"""The leader engine of a prefill node: fetches for its group, owns the PE buffer, has hits read, feeds its engines.

A turn takes what it needs in one order everywhere: room at the decode side, then room in the PE buffer, then HBM of the
prefill engine. Nobody who has a later thing waits for an earlier one, so turns can wait for memory and never for each
other in a circle (known fault 32). Buffer pages are given back when the turn's prefill is done or it has failed, and
never while something is under way into them (known fault 31).

It knows turns and places, no KV and no schedule of batches. Design dualpath 1.2, 1.6.
"""

from __future__ import annotations

from testbed.dualpath.blocks import BlockShape, block_ids
from testbed.dualpath.buffers import Extents
from testbed.dualpath.engine_messages import (
    LEADER,
    Cancel,
    PrefillEnded,
    PrefillJob,
    StartPrefill,
)
from testbed.dualpath.handover_letters import BufferGranted, HitsReady, PrefillDone
from testbed.dualpath.leader_desk import LeaderDesk
from testbed.dualpath.local_messages import BlockArrived, BlocksRead
from testbed.dualpath.mail import PeerLost
from testbed.dualpath.node_memory import BUFFER, NodeMemory
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.places import Area, Holding, Part
from testbed.dualpath.prefill_turn import PrefillMove, PrefillStage, PrefillTurn
from testbed.dualpath.turn_letters import Abort, Assign, Drained, NodeGone
from testbed.machine import Effects, Message, UnexpectedMessage
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
        self._bypass = parameters.read_path == "bypass"
        pages = memory.pages(BUFFER, shape.layers, shape, parameters.prefill_buffer_bytes)
        self._desk = LeaderDesk(memory.node, "prefill", scheduler, parameters, shape=shape, pages=pages)
        self._turns: dict[str, PrefillTurn] = {}
        self._early: dict[str, list[BufferGranted | HitsReady]] = {}
        """Letters of decode sides that were faster than the scheduler's."""
        self._aborted: set[str] = set()
        """Turns that the other side has ended, and that have ended here or have not come yet."""
        self._now: Nanoseconds = 0

    @property
    def held_bytes(self) -> int:
        """True bytes of the buffer that are held."""
        return self._desk.room.held_bytes

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes letters, answers of storage and of engines. Raises `UnexpectedMessage`."""
        self._now = now
        match message:
            case Assign() if message.prefill_node == self._node and message.turn.name not in self._turns:
                self._assigned(message)
            case BufferGranted() | HitsReady():
                self._from_decode_side(message)
            case BlockArrived() if self._desk.reads(message.ticket):
                self._desk.arrived(message)
            case BlocksRead() if self._desk.reads(message.ticket):
                self._read(self._desk.answered(message), message.failed)
            case PrefillEnded() if message.name in self._turns:
                self._ended(self._turns[message.name], message.failure)
            case Abort():
                self._abort(message)
            case NodeGone():
                self._lost(message.node)
            case PeerLost():
                self._desk.found_lost(message.peer)
                self._lost(message.peer)
            case _:
                raise UnexpectedMessage(self.name, message)
        return self._desk.take_effects(now)

    def wake(self, now: Nanoseconds) -> Effects:
        """Fetches, if it is time."""
        return self._desk.take_effects(now)

    def deadline(self) -> Nanoseconds | None:
        """The next fetch."""
        return self._desk.fetching.due

    # --- a turn's way -----------------------------------------------------------------------------------------------

    def _assigned(self, assign: Assign) -> None:
        name = assign.turn.name
        turn = self._turns[name] = PrefillTurn(assign, block_ids(assign.turn.prompt, self._shape.tokens))
        reads = 0 if self._bypass else assign.prefill_blocks * self._shape.tokens
        self._desk.fetching.add(name, assign.prefill_engine, assign.turn.prompt_tokens, reads)
        if name in self._aborted:
            self._break(turn, "its decode side broke off")
            return
        if assign.decode_node in self._desk.gone:
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
        if not self._desk.room.can_ever(need):
            self._break(turn, f"its {need} hit blocks are more than the PE buffer holds")
            return
        extents = self._desk.ask(turn.assign.turn.name, need)
        if extents is not None:
            self._roomed(turn, extents)

    def _roomed(self, turn: PrefillTurn, extents: Extents) -> None:
        turn.move(PrefillMove.ROOM)
        turn.extents = extents
        name, count = turn.assign.turn.name, turn.assign.prefill_blocks
        self._desk.stage(name, "allocated")
        self._desk.stage(name, "reading")
        if extents:
            turn.reading = True
            self._desk.measured()
            pieces = self._desk.area(extents, rows=False).pieces(0, 0, count)
            self._desk.read(name, "pe1-2", turn.ids[:count], pieces, turn.assign.prefill_engine)
        self._hand_over(turn)

    def _read(self, name: str, failed: tuple[int, ...]) -> None:
        turn = self._turns[name]
        turn.reading = False
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
        self._desk.stage(turn.assign.turn.name, "ready")
        self._desk.tell_engine(turn.assign.prefill_engine, StartPrefill(self._job(turn)))

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
            here=Holding((Part(self._desk.area(turn.extents, rows=False), 0, 0, here),)),
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
            self._desk.tell_leader(turn.assign.decode_node, PrefillDone(name))
            self._forget(turn)

    # --- the end ----------------------------------------------------------------------------------------------------

    def _break(self, turn: PrefillTurn, reason: str) -> None:
        """Ends a turn that cannot go on; what is under way for it is waited for."""
        turn.move(PrefillMove.BREAK)
        turn.failure = reason
        name = turn.assign.turn.name
        if turn.at_engine:
            lost = turn.assign.decode_node if turn.decode_lost else ""
            self._desk.tell_engine(turn.assign.prefill_engine, Cancel(name, reason, lost))
        self._settle(turn)

    def _settle(self, turn: PrefillTurn) -> None:
        """Frees and forgets a broken turn of which nothing is under way any more."""
        if turn.reading or turn.at_engine:
            return
        name, decode_node = turn.assign.turn.name, turn.assign.decode_node
        self._desk.stage(name, "failed", turn.failure)
        if turn.answer_to:
            self._desk.tell_leader(turn.answer_to, Drained(name))
        elif not turn.decode_lost:
            self._desk.tell_leader(decode_node, Abort(name, turn.failure, quiet=True))
        self._forget(turn)

    def _forget(self, turn: PrefillTurn) -> None:
        name = turn.assign.turn.name
        del self._turns[name]
        self._desk.fetching.remove(self._now, name)
        self._desk.tell_ended(name, turn.assign.prefill_engine, turn.failure, lost_blocks=turn.lost_blocks)
        for other, extents in self._desk.give_back(name, turn.extents):
            self._roomed(self._turns[other], extents)

    def _abort(self, letter: Abort) -> None:
        turn = self._turns.get(letter.name)
        if turn is None:
            # It has ended here, or has not come yet and never shall.
            self._early.pop(letter.name, None)
            self._aborted.add(letter.name)
            if letter.node:
                self._desk.answer_leader(letter.node, Drained(letter.name))
            return
        turn.answer_to = turn.answer_to or letter.node
        if not turn.is_breaking:
            self._break(turn, letter.reason)

    def _lost(self, node: str) -> None:
        """A node is gone: its turns fail, and nothing that it owes is waited for."""
        self._desk.lost(node)
        for turn in [each for each in self._turns.values() if each.assign.decode_node == node]:
            turn.decode_lost = True
            if not turn.is_breaking:
                self._break(turn, f"{node} does not answer")
            elif turn.at_engine:
                self._desk.tell_engine(turn.assign.prefill_engine, Cancel(turn.assign.turn.name, turn.failure, node))
