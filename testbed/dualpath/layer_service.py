"""Layers for prefill engines: a decode node WRITEs Layer Blocks that it holds into their HBM (DE steps 3-5).

One `LayerWanted` becomes one or a few WRITEs, and one `LayerSent` once they are complete. Knows places; no turn's
stage, no buffer's accounting.
"""

from __future__ import annotations

from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.engine_messages import LEADER, engine_name
from testbed.dualpath.handover_letters import LayerSent, LayerWanted
from testbed.dualpath.local_messages import TRAFFIC, Move
from testbed.dualpath.mail import MAIL, Post
from testbed.dualpath.node_memory import BUFFER, NodeMemory, hbm_region
from testbed.dualpath.places import Area, Holding, Part, layer_errands
from testbed.machine import Deliver, Effect


class _Order:
    """One `LayerWanted` that is being served."""

    def __init__(self, letter: LayerWanted) -> None:
        self.letter = letter
        self.left = 0
        self.failure = ""


class LayerService:
    """Of one decode node."""

    def __init__(self, memory: NodeMemory, shape: BlockShape) -> None:
        self._memory = memory
        self._shape = shape
        self._ticket = 0
        self._orders: dict[int, _Order] = {}

    def knows(self, ticket: int) -> bool:
        """Whether this is a WRITE of its own."""
        return ticket in self._orders

    def refuse(self, letter: LayerWanted, reason: str) -> list[Effect]:
        """The answer to a prefill engine that gets nothing."""
        return [self._answer(letter, reason or "broken off")]

    def serve(self, letter: LayerWanted, sources: tuple[Holding, ...], port: str) -> list[Effect]:
        """WRITEs of what the sources hold of the blocks wanted, by `port`."""
        order = _Order(letter)
        area = Area(hbm_region(letter.engine), letter.extents, 1, self._shape.layer_image, rows=True)
        target = Holding((Part(area, 0, letter.first, letter.count),))
        base = self._memory.address(letter.node, area.region)
        effects: list[Effect] = []
        for part in (part for source in sources for part in source.parts):
            first = max(part.first, letter.first)
            count = min(part.first + part.count, letter.first + letter.count) - first
            if count <= 0:
                continue
            hop = "de3-5" if part.area.region == BUFFER else "de3-5-hbm"
            for errand in layer_errands(Holding((part,)), target, (letter.layer, 0), first, count):
                self._ticket += 1
                self._orders[self._ticket] = order
                order.left += 1
                move = Move(
                    owner=LEADER,
                    ticket=self._ticket,
                    hop=hop,
                    request=letter.name,
                    layer=letter.layer,
                    interface=port,
                    peer=f"{letter.node}.cnic{letter.engine}",
                    remote=base.at(errand.offset),
                    pieces=errand.pieces,
                )
                effects.append(Deliver(TRAFFIC, move))
        return effects

    def moved(self, ticket: int, failure: str) -> tuple[str, list[Effect]]:
        """A WRITE is complete: its turn's name, and the answer if it was the last of its letter."""
        order = self._orders.pop(ticket)
        order.left -= 1
        order.failure = order.failure or failure
        return order.letter.name, [] if order.left else [self._answer(order.letter, order.failure)]

    def _answer(self, letter: LayerWanted, failure: str) -> Deliver:
        sent = LayerSent(letter.ticket, failure)
        return Deliver(MAIL, Post(letter.node, engine_name(letter.engine), sent))
