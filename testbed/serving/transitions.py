"""Transition tables: `(state, move) -> state` as data, with one way to ask them and one way to draw them.

A table knows no machine. What is not in it raises `IllegalMove` and changes nothing (house style 4). The diagrams
in docs/models are drawn from the tables by `mermaid`, and a test holds the pages to them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Generic, TypeVar

from testbed.machine import MachineError

S = TypeVar("S", bound=Enum)
M = TypeVar("M", bound=Enum)


class IllegalMove(MachineError):
    """A move that the table does not have in this state; our fault, or a peer that broke the protocol."""

    def __init__(self, what: str, state: Enum, move: Enum) -> None:
        self.what = what
        self.state = state
        self.move = move
        super().__init__(f"{what}: no move {move.name.lower()} in state {state.name.lower()}")


class Transitions(Generic[S, M]):
    """One table. `what` names the thing that moves, for errors."""

    def __init__(self, what: str, first: S, table: Mapping[tuple[S, M], S]) -> None:
        self.what = what
        self.first = first
        self.table = dict(table)

    def after(self, state: S, move: M) -> S:
        """The state after `move`. Raises `IllegalMove` if the table has none."""
        target = self.table.get((state, move))
        if target is None:
            raise IllegalMove(self.what, state, move)
        return target

    def allows(self, state: S, move: M) -> bool:
        """Whether the table has `move` in `state`."""
        return (state, move) in self.table

    def mermaid(self) -> str:
        """The table as a Mermaid state diagram, in the table's own order."""
        lines = ["stateDiagram-v2", f"    [*] --> {self.first.name.lower()}"]
        lines += [
            f"    {before.name.lower()} --> {after.name.lower()}: {move.name.lower()}"
            for (before, move), after in self.table.items()
        ]
        return "\n".join(lines) + "\n"
