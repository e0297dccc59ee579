"""How a run stands (state) and how it ended (outcome): two things, never mixed. Pure; knows no database.

A move that is not in the table raises and changes nothing (house style 4).
"""

from __future__ import annotations

from enum import StrEnum


class State(StrEnum):
    """Where a run is on its way."""

    QUEUED = "queued"
    PREPARING = "preparing"
    """A worker has claimed it; network and nodes are being made."""
    RUNNING = "running"
    """The barrier has opened."""
    FINALISING = "finalising"
    """Nodes end, the bench is cleaned, logs are folded. Never skipped, also after a cancel."""
    FINISHED = "finished"


class Outcome(StrEnum):
    """How a finished run ended."""

    PASSED = "passed"
    FAILED = "failed"
    """Foreseen: an expectation did not hold."""
    ERRORED = "errored"
    """Not foreseen: something broke; the detail says what."""
    CANCELLED = "cancelled"
    LOST = "lost"
    """Whoever carried it out is gone, and left no word."""


class Move(StrEnum):
    """What a worker, or the person who cancels, does to a run."""

    CLAIM = "claim"
    RELEASE = "release"
    """The bench turned out to be taken: back to the queue."""
    RUN = "run"
    FINALISE = "finalise"
    FINISH = "finish"


MOVES: dict[tuple[State, Move], State] = {
    (State.QUEUED, Move.CLAIM): State.PREPARING,
    (State.QUEUED, Move.FINISH): State.FINISHED,  # cancelled before anyone took it
    (State.PREPARING, Move.RELEASE): State.QUEUED,
    (State.PREPARING, Move.RUN): State.RUNNING,
    (State.PREPARING, Move.FINALISE): State.FINALISING,
    (State.PREPARING, Move.FINISH): State.FINISHED,
    (State.RUNNING, Move.FINALISE): State.FINALISING,
    (State.RUNNING, Move.FINISH): State.FINISHED,
    (State.FINALISING, Move.FINISH): State.FINISHED,
}

ACTIVE = (State.PREPARING, State.RUNNING, State.FINALISING)
"""States in which a run occupies its bench."""

REACHED_BY = {State.RUNNING: Move.RUN, State.FINALISING: Move.FINALISE}
"""Which move follows what a run folder reports while the run goes on."""


class UnexpectedMove(Exception):
    """A move that a run in this state cannot make."""

    def __init__(self, state: State, move: Move) -> None:
        self.state = state
        self.move = move
        super().__init__(f"a run that is {state.value} cannot {move.value}")


def moved(state: State, move: Move) -> State:
    """The state after `move`. Raises UnexpectedMove."""
    try:
        return MOVES[state, move]
    except KeyError:
        raise UnexpectedMove(state, move) from None


def sources(move: Move) -> list[State]:
    """The states from which `move` is possible; what a compare-and-set in the database asks for."""
    return [state for (state, known) in MOVES if known is move]
