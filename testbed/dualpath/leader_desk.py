"""What a leader engine has on its desk, whichever its role: what it says, its buffer's room, reads of hits, lost nodes.

A part of `prefill_leader` and `decode_leader`, which know what their turns go through. It knows turns by name only, and
collects effects in the order in which they are made.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.buffers import Extents, Room
from testbed.dualpath.engine_messages import LEADER, engine_name
from testbed.dualpath.fetching import Fetching
from testbed.dualpath.letters import AnyLetter
from testbed.dualpath.local_messages import SCHEDULER, STORAGE, BlockArrived, BlocksRead, Piece, ReadBlocks
from testbed.dualpath.mail import MAIL, Post
from testbed.dualpath.node_memory import BUFFER
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.places import Area
from testbed.dualpath.rounds import ROUNDS
from testbed.dualpath.turn_letters import NodeGone, TurnEnded
from testbed.events.kv_events import TurnStage
from testbed.machine import Deliver, Effect, Emit, Message
from testbed.units import Nanoseconds


class LeaderDesk:
    """Of the leader of `node`; `pages` of Full Blocks are its buffer, `scheduler` is the central scheduler's node."""

    def __init__(
        self, node: str, role: str, scheduler: str, parameters: DualPathParameters, *, shape: BlockShape, pages: int
    ) -> None:
        self.fetching = Fetching(node, role, scheduler, parameters)
        self.room = Room(BUFFER, pages, shape.full_bytes)
        self.gone: set[str] = set()
        """Nodes that do not answer any more."""
        self.effects: list[Effect] = []
        """What was said since they were taken."""
        self._node = node
        self._scheduler = scheduler
        self._parameters = parameters
        self._shape = shape
        self._reads: dict[int, str] = {}
        """Turns of reads that storage has not answered yet, by ticket."""
        self._ticket = 0

    def take_effects(self, now: Nanoseconds) -> list[Effect]:
        """All that was said, and the fetch if it is time."""
        effects = [*self.effects, *self.fetching.told(), *self.fetching.fetch(now)]
        self.effects = []
        return effects

    # --- what it says -----------------------------------------------------------------------------------------------

    def stage(self, name: str, stage: str, detail: str = "") -> None:
        """A turn has come to a stage."""
        self.effects.append(Emit(TurnStage(name, stage, detail)))

    def tell_engine(self, engine: int, message: Message) -> None:
        """To an engine of its group."""
        self.effects.append(Deliver(engine_name(engine), message))

    def tell_leader(self, node: str, letter: AnyLetter) -> None:
        """To another node's leader; comes back in `PeerLost` if that does not answer."""
        self._post(node, LEADER, letter, LEADER)

    def answer_leader(self, node: str, letter: AnyLetter) -> None:
        """The same where it does not matter whether it arrives."""
        self._post(node, LEADER, letter)

    def tell_ended(self, name: str, engine: int, failure: str, *, lost_blocks: bool) -> None:
        """To the scheduler: a turn counts no longer."""
        self._post(self._scheduler, SCHEDULER, TurnEnded(name, self._node, engine, failure, lost_blocks))

    def _post(self, peer: str, to: str, letter: AnyLetter, writer: str = "") -> None:
        self.effects.append(Deliver(MAIL, Post(peer, to, letter, writer)))

    # --- room in the buffer -----------------------------------------------------------------------------------------

    def area(self, extents: Extents, *, rows: bool) -> Area:
        """Full Blocks in pages of the buffer."""
        return Area(BUFFER, extents, self._shape.layers, self._shape.layer_image, rows)

    def ask(self, name: str, need: int) -> Extents | None:
        """Pages for a turn; None if it has to wait for them, in line."""
        extents = () if need == 0 else self.room.ask(name, need)
        if extents is None:
            self.measured()
        return extents

    def give_back(self, name: str, extents: Extents) -> Sequence[tuple[str, Extents]]:
        """A turn gives its pages back, or leaves the line where it has none; who has got some by that."""
        if not extents:
            return self.room.withdraw(name)
        granted = self.room.release(extents)
        self.measured()
        return granted

    def measured(self) -> None:
        """How full the buffer is, to the log."""
        self.effects.append(Emit(self.room.measured()))

    # --- reads of hits ----------------------------------------------------------------------------------------------

    def read(self, name: str, hop: str, blocks: tuple[int, ...], pieces: Iterable[Piece], engine: int) -> None:
        """Has hit blocks of a turn read into pieces of the buffer, by the SNIC of its engine."""
        self._ticket += 1
        self._reads[self._ticket] = name
        read = ReadBlocks(
            owner=LEADER,
            ticket=self._ticket,
            request=name,
            hop=hop,
            blocks=blocks,
            region=BUFFER,
            offsets=tuple(piece.offset for piece in pieces),
            interface=f"snic{engine % self._parameters.storage_nics}",
        )
        self.effects.append(Deliver(STORAGE, read))

    def reads(self, ticket: int) -> bool:
        """Whether this read is not answered yet."""
        return ticket in self._reads

    def arrived(self, message: BlockArrived) -> None:
        """A part of a read is there."""
        self.fetching.arrived(self._reads[message.ticket], message.blocks * self._shape.tokens)

    def answered(self, message: BlocksRead) -> str:
        """A read is over: its turn."""
        name = self._reads.pop(message.ticket)
        self.fetching.read(name)
        return name

    # --- lost nodes -------------------------------------------------------------------------------------------------

    def found_lost(self, node: str) -> None:
        """A letter has not reached its node: the scheduler hears of it at once, and not by its own patience."""
        if node not in self.gone:
            self._post(self._scheduler, SCHEDULER, NodeGone(node))

    def lost(self, node: str) -> None:
        """A node is gone; engines that step together with it hear of it."""
        self.gone.add(node)
        if self._parameters.steps_together:
            self.effects.append(Deliver(ROUNDS, NodeGone(node)))
