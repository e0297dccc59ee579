"""What is under way for the forward batches of a prefill engine: moves and letters, by ticket, and whose they are.

A part of the engine. A member of a batch counts what is under way for it, a batch what of a layer still comes or goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from testbed.dualpath.engine_messages import engine_name
from testbed.dualpath.local_messages import TRAFFIC, Move
from testbed.dualpath.node_memory import Hbm
from testbed.dualpath.places import Errand
from testbed.dualpath.prefill_batch import Batch, Member
from testbed.machine import Deliver, Effect, RemoteAddress


class Flight(NamedTuple):
    """One move, or one letter that is to be answered."""

    kind: Literal["fetch", "letter", "send"]
    batch: Batch
    member: Member
    layer: int


class Flights:
    """Of one engine."""

    def __init__(self, hbm: Hbm) -> None:
        self._hbm = hbm
        self._ticket = 0
        self._under_way: dict[int, Flight] = {}

    def __contains__(self, ticket: int) -> bool:
        return ticket in self._under_way

    def begin(self, flight: Flight) -> int:
        """Something is under way; its ticket."""
        self._ticket += 1
        self._under_way[self._ticket] = flight
        flight.member.flying += 1
        if flight.kind == "send":
            flight.batch.sending(flight.layer, 1)
        else:
            flight.batch.fetching(flight.layer, 1)
        return self._ticket

    def moves(
        self, flight: Flight, hop: str, errands: Sequence[Errand], peer: str, base: RemoteAddress
    ) -> list[Effect]:
        """The moves of some errands to a port and a region there."""
        return [
            Deliver(
                TRAFFIC,
                Move(
                    owner=engine_name(self._hbm.engine),
                    ticket=self.begin(flight),
                    hop=hop,
                    request=flight.member.job.name,
                    layer=flight.layer,
                    interface=self._hbm.interface,
                    peer=peer,
                    remote=base.at(errand.offset),
                    pieces=errand.pieces,
                ),
            )
            for errand in errands
        ]

    def end(self, ticket: int, failure: str) -> tuple[Batch, list[int]]:
        """It is answered: its batch, and the rows of HBM that nobody there needs any more."""
        kind, batch, member, layer = self._under_way.pop(ticket)
        member.flying -= 1
        member.work.failure = member.work.failure or failure
        if kind == "send":
            return batch, batch.sending(layer, -1)
        batch.fetching(layer, -1)
        return batch, []

    def letters_of(self, member: Member) -> list[int]:
        """Tickets of letters of a member that are not answered."""
        return [
            ticket for ticket, flight in self._under_way.items() if flight.kind == "letter" and flight.member is member
        ]
