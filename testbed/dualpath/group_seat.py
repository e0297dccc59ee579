"""An engine's seat in its group: whether it is in a round, what all bring into it, and when to ask for one.

The other side of `testbed.dualpath.rounds`, for engines of both roles. Knows no batch.
"""

from __future__ import annotations

from testbed.dualpath.engine_messages import RoundFormed, RoundOver, RoundWanted
from testbed.dualpath.round_letters import EngineLoad
from testbed.dualpath.rounds import ROUNDS
from testbed.machine import Deliver, Effect


class GroupSeat:
    """Of one engine; `together` is False for an engine that steps alone."""

    def __init__(self, engine: int, *, together: bool) -> None:
        self.together = together
        self.in_round = False
        self.loads: tuple[EngineLoad, ...] | None = None
        """Of all engines of the group, once the round goes."""
        self.broken = ""
        """Why the group will never step again."""
        self.short = False
        """What leaves still holds the memory that the engine's next work needs: until it is free, a round would be one
        of nothing, and in a group of one the next would follow at the same moment, for ever."""
        self._engine = engine
        self._asked = False

    @property
    def may_compute(self) -> bool:
        """Whether a layer may be begun: an engine alone always may."""
        return not self.together or self.loads is not None

    def ask(self) -> list[Effect]:
        """There is work: asks for a round, unless that is done or one is under way."""
        if self._asked or self.in_round or self.broken or self.short:
            return []
        self._asked = True
        return [Deliver(ROUNDS, RoundWanted())]

    def begin(self, load: EngineLoad) -> list[Effect]:
        """A round has begun and the batch is formed."""
        self.in_round, self._asked, self.loads = True, False, None
        return [Deliver(ROUNDS, RoundFormed(self._engine, load))]

    def end(self, *, more: bool) -> list[Effect]:
        """The last layer is done; nothing where there was no round."""
        if not self.in_round:
            return []
        more = more and not self.short
        self.in_round, self.loads, self._asked = False, None, more
        return [Deliver(ROUNDS, RoundOver(self._engine, more))]

    def give_up(self, reason: str) -> None:
        """The group will never step again; the first reason stands."""
        self.broken = self.broken or reason
        self.in_round = False
