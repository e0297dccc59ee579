"""The leader engine of a decode node: fetches for its group, owns the DE buffer, serves layers to prefill engines.

It grants each turn a place for its prompt's KV before anything of it is read: in the DE buffer (design dualpath 1.6),
or in HBM where KV lands there straight away. Hits of its own side are read from storage into the buffer and WRITTEN to
the prefill engine's HBM layer by layer, whenever that asks for one (DE steps 3-5). When prefill is done its engine
takes over, and the buffer is free. A place that the prefill side may still write to is never given to another turn.

It knows turns and places, no KV and no decode step. Room is taken in the order that `prefill_leader` explains.
"""

from __future__ import annotations

from testbed.dualpath.blocks import BlockShape, block_ids
from testbed.dualpath.buffers import Extents
from testbed.dualpath.decode_turn import DecodeMove, DecodeStage, DecodeTurn
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
)
from testbed.dualpath.handover_letters import BufferGranted, HitsReady, LayerWanted, PrefillDone
from testbed.dualpath.layer_service import LayerService
from testbed.dualpath.leader_desk import LeaderDesk
from testbed.dualpath.local_messages import BlockArrived, BlocksRead, Moved
from testbed.dualpath.mail import PeerLost
from testbed.dualpath.node_memory import BUFFER, NodeMemory, hbm_region
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.places import Holding, Part, split
from testbed.dualpath.turn_letters import Abort, Assign, Drained, NodeGone
from testbed.machine import Effects, Message, UnexpectedMessage
from testbed.serving.turns import joined
from testbed.units import Nanoseconds


class DecodeLeader:
    """See the head of this file. `memory` has the node's buffer and the peers' addresses; of the buffer's pages,
    `staging_pages` at its end are the engines'.
    """

    name = LEADER

    def __init__(
        self,
        memory: NodeMemory,
        parameters: DualPathParameters,
        *,
        shape: BlockShape,
        scheduler: str,
        staging_pages: int = 0,
    ) -> None:
        self._node = memory.node
        self._memory = memory
        self._shape = shape
        self._bypass = parameters.read_path == "bypass"
        self._in_hbm = parameters.decode_landing == "hbm" and not self._bypass
        pages = memory.pages(BUFFER, shape.layers, shape, parameters.decode_buffer_bytes) - staging_pages
        self._desk = LeaderDesk(memory.node, "decode", scheduler, parameters, shape=shape, pages=pages)
        hbm_pages = memory.pages(hbm_region(0), shape.layers, shape, parameters.hbm_kv_bytes)
        self._desk.fetching.free_blocks = [hbm_pages] * parameters.engines_per_node
        self._layers = LayerService(memory, shape)
        self._turns: dict[str, DecodeTurn] = {}
        self._aborted: dict[str, Abort] = {}
        """Turns that others have ended, and that have ended here or have not come yet."""
        self._now: Nanoseconds = 0

    @property
    def held_bytes(self) -> int:
        """True bytes of the buffer that are held."""
        return self._desk.room.held_bytes

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes letters, answers of storage, traffic and engines. Raises `UnexpectedMessage`."""
        self._now = now
        match message:
            case Assign() if message.decode_node == self._node and message.turn.name not in self._turns:
                self._assigned(message)
            case LayerWanted():
                self._wanted(message)
            case Moved() if self._layers.knows(message.ticket):
                self._moved(message)
            case BlockArrived() if self._desk.reads(message.ticket):
                self._desk.arrived(message)
            case BlocksRead() if self._desk.reads(message.ticket):
                self._read(self._desk.answered(message), message.failed)
            case HbmReserved() | Landed() | DecodeEnded() if message.name in self._turns:
                self._from_engine(self._turns[message.name], message)
            case HbmChanged():
                self._desk.fetching.free_blocks[message.engine] = message.free_blocks
            case PrefillDone() | Abort() | Drained() | NodeGone() | PeerLost():
                self._from_elsewhere(message)
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
        job = self._job(assign)
        turn = DecodeTurn(assign, job, self._shape.blocks_of(job.prompt_tokens))
        self._turns[job.name] = turn
        reads = 0 if self._bypass else turn.far_hits * self._shape.tokens
        self._desk.fetching.add(job.name, assign.decode_engine, job.prompt_tokens + job.answer_tokens, reads)
        aborted = self._aborted.pop(job.name, None)
        if aborted is not None:
            turn.quiet = aborted.quiet
            self._break(turn, aborted.reason)
        elif assign.prefill_node in self._desk.gone:
            self._lost(assign.prefill_node)
        elif self._in_hbm:
            turn.at_engine = True
            self._desk.tell_engine(assign.decode_engine, ReserveHbm(job))
        else:
            self._reserved(turn)

    def _job(self, assign: Assign) -> DecodeJob:
        turn, tokens = assign.turn, self._shape.tokens
        # The last token of an answer has no KV when the answer is done.
        all_ids = block_ids(joined((*turn.prompt, *turn.answer)), tokens)
        return DecodeJob(
            name=turn.name,
            block_ids=all_ids[: (turn.prompt_tokens + turn.generate_tokens - 1) // tokens],
            prompt_ids=block_ids(turn.prompt, tokens),
            prompt_tokens=turn.prompt_tokens,
            answer_tokens=turn.generate_tokens,
            stored_blocks=max(assign.hit_blocks, assign.stored_blocks),
        )

    def _reserved(self, turn: DecodeTurn) -> None:
        """Where HBM has a place if it must, the buffer is next."""
        turn.move(DecodeMove.RESERVE)
        need = 0 if self._bypass else turn.far_hits if self._in_hbm else turn.prompt_blocks
        if not self._desk.room.can_ever(need):
            self._break(turn, f"its {need} blocks are more than the DE buffer holds")
            return
        extents = self._desk.ask(turn.job.name, need)
        if extents is not None:
            self._roomed(turn, extents)

    def _roomed(self, turn: DecodeTurn, extents: Extents) -> None:
        """Room: hits of this side as storage has them, all else in rows; the prefill side may begin."""
        turn.move(DecodeMove.ROOM)
        turn.extents = extents
        here, hit = turn.assign.prefill_blocks, turn.assign.hit_blocks
        if extents:
            self._desk.measured()
        hits, rows = split(extents, turn.far_hits)
        turn.hits = Holding((Part(self._desk.area(hits, rows=False), 0, here, turn.far_hits),)) if hits else Holding(())
        if turn.hbm is not None:
            area, skipped = turn.hbm, 0
        else:
            area, skipped = self._desk.area(rows, rows=True), turn.far_hits
        after = turn.prompt_blocks - hit
        turn.landing = Holding((Part(area, 0, 0, here), Part(area, hit - skipped, hit, after)))
        granted = BufferGranted(turn.job.name, area.region, area.extents, skipped)
        self._desk.tell_leader(turn.assign.prefill_node, granted)
        if turn.far_hits and not self._bypass:
            turn.reading = True
            pieces = turn.hits.pieces(0, here, turn.far_hits)
            self._desk.read(turn.job.name, "de1-2", turn.job.prompt_ids[here:hit], pieces, turn.assign.decode_engine)

    def _read(self, name: str, failed: tuple[int, ...]) -> None:
        turn = self._turns[name]
        turn.reading = False
        if turn.is_breaking:
            self._settle(turn)
        elif failed:
            turn.lost_blocks = True
            self._break(turn, f"storage has lost {len(failed)} of its blocks")
        else:
            self._desk.tell_leader(turn.assign.prefill_node, HitsReady(name))

    # --- layers for the prefill side --------------------------------------------------------------------------------

    def _wanted(self, letter: LayerWanted) -> None:
        turn = self._turns.get(letter.name)
        if turn is None or turn.stage is not DecodeStage.GRANTED:
            self._desk.effects += self._layers.refuse(letter, turn.failure if turn is not None else "not assigned here")
            return
        turn.serving += 1
        port = f"cnic{turn.assign.decode_engine}"
        self._desk.effects += self._layers.serve(letter, (turn.hits, turn.landing), port)

    def _moved(self, message: Moved) -> None:
        name, effects = self._layers.moved(message.ticket, message.failure)
        self._desk.effects += effects
        if effects:
            turn = self._turns[name]
            turn.serving -= 1
            if turn.is_breaking:
                self._settle(turn)

    # --- the engine -------------------------------------------------------------------------------------------------

    def _prefilled(self, turn: DecodeTurn) -> None:
        turn.quiet = True
        if turn.is_breaking:
            return
        turn.move(DecodeMove.PREFILLED)
        turn.at_engine = True
        # Where KV lands in the buffer everything is still there, else the hits of this side alone.
        first, *others = turn.landing.parts
        parts = turn.hits.parts if self._in_hbm else (first, *turn.hits.parts, *others)
        hop = "de6-7" if turn.far_hits else "pe8-9"
        source = Holding(tuple(part for part in parts if part.count))
        self._desk.tell_engine(turn.assign.decode_engine, StartDecode(turn.job, source, hop))

    def _from_engine(self, turn: DecodeTurn, message: HbmReserved | Landed | DecodeEnded) -> None:
        match message:
            case HbmReserved():
                if turn.stage is DecodeStage.RESERVING:
                    turn.hbm = message.prompt
                    self._reserved(turn)
            case Landed():
                self._free(turn)
            case DecodeEnded():
                turn.at_engine = False
                if turn.is_breaking:
                    self._settle(turn)
                elif message.failure:
                    self._break(turn, message.failure)
                else:
                    self._desk.stage(turn.job.name, "ended")
                    self._forget(turn)

    # --- the end ----------------------------------------------------------------------------------------------------

    def _from_elsewhere(self, message: PrefillDone | Abort | Drained | NodeGone | PeerLost) -> None:
        if isinstance(message, NodeGone | PeerLost):
            if isinstance(message, NodeGone):
                self._lost(message.node)
            else:
                self._desk.found_lost(message.peer)
                self._lost(message.peer)
            return
        turn = self._turns.get(message.name)
        if turn is None:
            if isinstance(message, Abort):
                self._aborted[message.name] = message
            return
        if isinstance(message, PrefillDone):
            self._prefilled(turn)
        elif isinstance(message, Drained) or message.quiet:
            turn.quiet = True
        if isinstance(message, Abort) and not turn.is_breaking:
            self._break(turn, message.reason)
        elif turn.is_breaking:
            self._settle(turn)

    def _break(self, turn: DecodeTurn, reason: str) -> None:
        """Ends a turn that cannot go on; what is under way for it is waited for."""
        turn.move(DecodeMove.BREAK)
        turn.failure = reason
        if not turn.quiet:
            abort = Abort(turn.job.name, reason, node=self._node)
            self._desk.tell_leader(turn.assign.prefill_node, abort)
        self._settle(turn)

    def _settle(self, turn: DecodeTurn) -> None:
        """Frees and forgets a broken turn that nobody touches any more, neither here nor at the prefill side."""
        if not turn.quiet or turn.reading or turn.serving:
            return
        if turn.at_engine:
            self._desk.tell_engine(turn.assign.decode_engine, Cancel(turn.job.name, turn.failure))
            return
        self._desk.stage(turn.job.name, "failed", turn.failure)
        self._forget(turn)

    def _forget(self, turn: DecodeTurn) -> None:
        name = turn.job.name
        del self._turns[name]
        self._desk.fetching.remove(self._now, name)
        self._desk.tell_ended(name, turn.assign.decode_engine, turn.failure, lost_blocks=turn.lost_blocks)
        self._free(turn)

    def _free(self, turn: DecodeTurn) -> None:
        """Gives the buffer's pages back, once, or leaves the line of those who wait for some."""
        extents, turn.extents = turn.extents, ()
        for other, pages in self._desk.give_back(turn.job.name, extents):
            self._roomed(self._turns[other], pages)

    def _lost(self, node: str) -> None:
        """A node is gone: what it owes is not waited for, and turns that still need it fail."""
        self._desk.lost(node)
        for turn in [each for each in self._turns.values() if each.assign.prefill_node == node]:
            needed = not turn.quiet
            turn.quiet = True
            if turn.is_breaking:
                self._settle(turn)
            elif needed:
                self._break(turn, f"{node} does not answer")
