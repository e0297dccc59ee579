"""One turn as the central scheduler knows it: its state, where it is, and what its agent has been told.

The paper has no failures; here a turn whose engine is lost is placed again under another name (`a0003.t012~1`), so that
letters of the attempt before cannot be taken for those of the new one. The agent keeps the tokens it has: the answer
is forced (DualPath A.3), so the new attempt repeats them and they are left out. It sends nothing and knows no clock.
"""

from __future__ import annotations

from enum import Enum

from testbed.serving.transitions import Transitions
from testbed.serving.turns import Turn
from testbed.units import Nanoseconds


class TurnState(Enum):
    """Where a turn is, seen from the scheduler."""

    WAITING = "waiting"
    """In the global queue of prefill placement."""
    HALF_PLACED = "half placed"
    """It has its prefill engine, and waits in the queues of decode placement."""
    ASSIGNED = "assigned"
    """Both nodes have it."""
    ENDED = "ended"


class TurnMove(Enum):
    """What can happen to it."""

    GIVE_PREFILL = "give prefill"
    GIVE_DECODE = "give decode"
    TAKE_BACK = "take back"
    """An engine was lost or failed; it waits again."""
    END = "end"
    """Both engines are done."""
    FAIL = "fail"


TURN_TABLE: Transitions[TurnState, TurnMove] = Transitions(
    "turn",
    TurnState.WAITING,
    {
        (TurnState.WAITING, TurnMove.GIVE_PREFILL): TurnState.HALF_PLACED,
        (TurnState.WAITING, TurnMove.FAIL): TurnState.ENDED,
        (TurnState.HALF_PLACED, TurnMove.GIVE_DECODE): TurnState.ASSIGNED,
        (TurnState.HALF_PLACED, TurnMove.TAKE_BACK): TurnState.WAITING,
        (TurnState.HALF_PLACED, TurnMove.FAIL): TurnState.ENDED,
        (TurnState.ASSIGNED, TurnMove.END): TurnState.ENDED,
        (TurnState.ASSIGNED, TurnMove.TAKE_BACK): TurnState.WAITING,
        (TurnState.ASSIGNED, TurnMove.FAIL): TurnState.ENDED,
    },
)
"""Every move there is; docs/models/request_scheduler.md draws it."""

NOWHERE = -1


class TurnRecord:
    """A turn from its arrival to its end."""

    __slots__ = ("arrived", "attempts", "blocks", "order", "prefill", "state", "told", "turn")

    def __init__(self, turn: Turn, arrived: Nanoseconds, order: int, blocks: int) -> None:
        self.turn = turn
        self.arrived = arrived
        self.order = order
        """Place among all turns that ever arrived."""
        self.blocks = blocks
        """KV blocks that its decode engine will hold at the end."""
        self.state = TURN_TABLE.first
        self.prefill = NOWHERE
        """Its prefill engine while it is half placed."""
        self.attempts = 0
        """How often it was assigned."""
        self.told = 0
        """Tokens that the agent has."""

    @property
    def answered(self) -> bool:
        """Whether the agent has all."""
        return self.told == self.turn.generate_tokens

    @property
    def length(self) -> int:
        """len(r): context and append."""
        return self.turn.prompt_tokens

    def move(self, move: TurnMove) -> None:
        """Goes to the next state. Raises `IllegalMove` and changes nothing if there is none."""
        self.state = TURN_TABLE.after(self.state, move)


class Attempt:
    """One assignment of a turn to two engines, which are numbers of their role's `EngineLedger`."""

    __slots__ = ("decode", "name", "prefill", "produced", "record", "void")

    def __init__(self, record: TurnRecord, prefill: int, decode: int) -> None:
        again = record.attempts
        record.attempts += 1
        self.name = f"{record.turn.name}~{again}" if again else record.turn.name
        """Under which engines know it."""
        self.record = record
        self.prefill = prefill
        """`NOWHERE` once that side is done."""
        self.decode = decode
        self.produced = 0
        """Tokens of the answer that it has made."""
        self.void = False
        """Taken back: what its engines still say is of no use."""

    @property
    def over(self) -> bool:
        """Whether both sides are done."""
        return self.prefill == self.decode == NOWHERE

    @property
    def left(self) -> int:
        """Tokens of the answer that it has not made."""
        return self.record.turn.generate_tokens - self.produced

    def advance(self, tokens: int) -> int:
        """`tokens` more are made, at most `left`: how many of them the agent did not have."""
        self.produced += tokens
        fresh = max(0, self.produced - self.record.told)
        self.record.told += fresh
        return fresh
