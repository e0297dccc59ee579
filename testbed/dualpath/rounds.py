"""Forward steps that the engines of a group take together (design dualpath 1.5): one machine a node, one is the head.

Engines that exchange tokens for experts, or compute a layer together, must all be in every step, with a batch or
without one. A round: somebody has work; the head opens the round; every engine forms its batch and says how large it
is; when all have, the round goes, and all engines know all loads; it is over when all are through all layers. Then the
next one opens, if anybody has work. The head is the first node of the group; nodes of a group speak by letters.

A group that has lost a node cannot step any more: its engines fail their turns. Knows no layer, no KV and no turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from testbed.dualpath.engine_messages import (
    GroupBroken,
    RoundBegins,
    RoundFormed,
    RoundGoes,
    RoundOver,
    RoundWanted,
    engine_name,
)
from testbed.dualpath.mail import MAIL, PeerLost, Post
from testbed.dualpath.round_letters import EngineLoad, RoundAsk, RoundDone, RoundOpen, RoundReady, RoundStart
from testbed.dualpath.turn_letters import NodeGone
from testbed.events.kv_events import AttentionMeasured
from testbed.machine import Deliver, Effect, Effects, Emit, Message, UnexpectedMessage
from testbed.units import Nanoseconds

ROUNDS = "rounds"
"""Name of the machine, the same on every node whose engines step together."""


class Phase(Enum):
    """Of a node's part in a round."""

    IDLE = auto()
    FORMING = auto()
    READY = auto()
    """All engines of the node have formed their batches; others of the group may not have."""
    GOING = auto()


class Rounds:
    """See the head of this file. `group` are the nodes, the head first; each has as many engines."""

    name = ROUNDS

    def __init__(self, node: str, group: Sequence[str], engines: int, *, attention: bool) -> None:
        """`attention`: whether loads have attention to be logged (prefill). Raises ValueError for a foreign node."""
        if node not in group:
            raise ValueError(f"{node} is not of the group {', '.join(group)}")
        self._node = node
        self._group = tuple(group)
        self._engines = engines
        self._attention = attention
        self._phase = Phase.IDLE
        self._number = 0
        self._loads: dict[int, EngineLoad] = {}
        self._over: set[int] = set()
        self._more = False
        """An engine of this node has work for another round."""
        self._broken = ""
        # The head's own book:
        self._wanted = False
        self._open = False
        self._ready: dict[str, tuple[EngineLoad, ...]] = {}
        self._done: set[str] = set()
        self._effects: list[Effect] = []

    def receive(self, now: Nanoseconds, message: Message) -> Effects:  # noqa: ARG002  # the contract's shape
        """Takes what engines and other nodes' rounds say. Raises `UnexpectedMessage`."""
        match message:
            case NodeGone() | PeerLost():
                self._lost(message.node if isinstance(message, NodeGone) else message.peer)
            case _ if self._broken:
                # Everybody was told; what is still on its way is void.
                return ()
            case RoundWanted():
                self._want()
            case RoundFormed() if self._phase is Phase.FORMING and message.engine not in self._loads:
                self._formed(message)
            case RoundOver() if self._phase is Phase.GOING and message.engine not in self._over:
                self._engine_over(message)
            case RoundAsk() | RoundReady() | RoundDone() if self._node == self._group[0]:
                self._as_head(message)
            case RoundOpen() if self._phase is Phase.IDLE and message.number > self._number:
                self._opened(message.number)
            case RoundStart() if self._phase is Phase.READY and message.number == self._number:
                self._started(message)
            case _:
                raise UnexpectedMessage(self.name, message, self._phase.name)
        effects, self._effects = self._effects, []
        return effects

    def wake(self, now: Nanoseconds) -> Effects:  # noqa: ARG002
        """Nothing is ever due."""
        return ()

    def deadline(self) -> Nanoseconds | None:
        """None."""
        return None

    # --- of a node --------------------------------------------------------------------------------------------------

    def _want(self) -> None:
        """An engine has work and is in no round."""
        if self._phase is not Phase.IDLE:
            self._more = True
            return
        self._tell_head(RoundAsk(self._node))

    def _opened(self, number: int) -> None:
        self._phase, self._number = Phase.FORMING, number
        self._loads.clear()
        self._over.clear()
        self._more = False
        for engine in range(self._engines):
            self._effects.append(Deliver(engine_name(engine), RoundBegins(number)))

    def _formed(self, message: RoundFormed) -> None:
        self._loads[message.engine] = message.load
        if len(self._loads) == self._engines:
            self._phase = Phase.READY
            loads = tuple(self._loads[engine] for engine in range(self._engines))
            self._tell_head(RoundReady(self._node, self._number, loads))

    def _started(self, letter: RoundStart) -> None:
        self._phase = Phase.GOING
        for engine in range(self._engines):
            self._effects.append(Deliver(engine_name(engine), RoundGoes(letter.number, letter.loads)))

    def _engine_over(self, message: RoundOver) -> None:
        self._over.add(message.engine)
        self._more |= message.more
        if len(self._over) == self._engines:
            self._phase = Phase.IDLE
            self._tell_head(RoundDone(self._node, self._number, self._more))

    def _tell_head(self, letter: RoundAsk | RoundReady | RoundDone) -> None:
        if self._node == self._group[0]:
            self._as_head(letter)
        else:
            self._effects.append(Deliver(MAIL, Post(self._group[0], self.name, letter, writer=self.name)))

    # --- the head ---------------------------------------------------------------------------------------------------

    def _as_head(self, letter: RoundAsk | RoundReady | RoundDone) -> None:
        match letter:
            case RoundAsk():
                # A node that is not through with the present round yet brings its work into it, or says so at its end.
                self._wanted |= not self._open or letter.node in self._done
            case RoundReady():
                self._ready[letter.node] = letter.loads
                if len(self._ready) == len(self._group):
                    self._start()
            case RoundDone():
                self._wanted |= letter.more
                self._done.add(letter.node)
                if len(self._done) == len(self._group):
                    self._open = False
        if self._wanted and not self._open:
            self._wanted, self._open = False, True
            self._ready.clear()
            self._done.clear()
            self._tell_all(RoundOpen(self._number + 1))

    def _start(self) -> None:
        loads = tuple(load for node in self._group for load in self._ready[node])
        if self._attention:
            times = tuple(load.attention for load in loads)
            self._effects.append(Emit(AttentionMeasured(self._number, times)))
        self._tell_all(RoundStart(self._number, loads))

    def _tell_all(self, letter: RoundOpen | RoundStart) -> None:
        for node in self._group[1:]:
            self._effects.append(Deliver(MAIL, Post(node, self.name, letter, writer=self.name)))
        if isinstance(letter, RoundOpen):
            self._opened(letter.number)
        else:
            self._started(letter)

    # --- the end of a group -----------------------------------------------------------------------------------------

    def _lost(self, node: str) -> None:
        if node not in self._group or self._broken:
            return
        self._broken = f"{node}, which steps together with these engines, does not answer"
        for engine in range(self._engines):
            self._effects.append(Deliver(engine_name(engine), GroupBroken(self._broken)))
        if self._node == self._group[0]:
            for other in self._group[1:]:
                if other != node:
                    self._effects.append(Deliver(MAIL, Post(other, self.name, NodeGone(node))))
