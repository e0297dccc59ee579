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
    """See the head of this file. Engines are numbers of the role's `EngineLedger`."""

    __slots__ = (
        "arrived", "attempt", "blocks", "decode", "order", "prefill", "produced", "state", "told", "turn",
    )  # fmt: skip

    def __init__(self, turn: Turn, arrived: Nanoseconds, order: int, blocks: int) -> None:
        self.turn = turn
        self.arrived = arrived
        self.order = order
        """Place among all turns that ever arrived."""
        self.blocks = blocks
        """KV blocks that its decode engine will hold at the end."""
        self.state = TURN_TABLE.first
        self.attempt = 0
        self.prefill = NOWHERE
        """Engine that it still counts at; `NOWHERE` before, and when that side is done."""
        self.decode = NOWHERE
        self.produced = 0
        """Tokens of the answer that this attempt has made."""
        self.told = 0
        """Tokens that the agent has."""

    @property
    def name(self) -> str:
        """Under which engines know this attempt."""
        return f"{self.turn.name}~{self.attempt}" if self.attempt else self.turn.name

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

    def news(self, tokens: int) -> int:
        """`tokens` more were produced: how many of them the agent does not have yet. Raises ValueError for too many."""
        if self.produced + tokens > self.turn.generate_tokens or tokens < 0:
            raise ValueError(f"{self.name}: {self.produced} + {tokens} tokens of {self.turn.generate_tokens}")
        self.produced += tokens
        fresh = max(0, self.produced - self.told)
        self.told += fresh
        return fresh
