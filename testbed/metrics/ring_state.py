"""Every slot's state as the log tells it: for the live map of the ring, and a check that the moves join up.

Two nodes write a slot's moves (the DPU fills and frees, the GPU does the rest), and the DPU logs its move when the
completion arrives: the GPU may have taken the slot on by then. So a move can stand in the log after the one that
followed it. A slot whose moves do not join has a gap, from the state it was in (`left`) to the state in which the
next known move found it (`found`); late moves that begin at `left` walk through the gap until it is closed.

State names are the log's; this file knows no table of moves.
"""

from __future__ import annotations

import msgspec

from testbed.events.log import Record
from testbed.events.schema import SlotMoved
from testbed.machine import Event
from testbed.units import Nanoseconds


class Slot(msgspec.Struct):
    """One slot that has moved at least once."""

    state: str
    incarnation: int
    request: int
    moved: Nanoseconds
    left: str | None = None
    """Where the open gap begins; None while there is none."""
    found: str | None = None
    """Where the open gap ends. With no `left`, the moves before the first known one, which may never have been."""
    lost: int = 0
    """Gaps that were still open when the next one opened."""


class RingState(msgspec.Struct):
    """All slots that have moved."""

    slots: dict[int, Slot] = {}
    moves: int = 0


class SlotView(msgspec.Struct, frozen=True):
    """One slot of a map of the ring."""

    slot: int
    state: str
    incarnation: int
    request: int
    moved: Nanoseconds
    """When it came into this state."""


class RingView(msgspec.Struct, frozen=True):
    """The ring at one moment. Slots that never moved are left out: they are as they were at the start."""

    slots: tuple[SlotView, ...]
    counts: dict[str, int]
    """Slots by state."""
    moves: int
    gaps: tuple[int, ...]
    """Slots whose moves do not join up: the log lacks a move, or a machine has skipped one."""


class RingFold:
    """Follows slot.moved."""

    state = RingState
    takes: frozenset[type[Event]] = frozenset({SlotMoved})

    def start(self) -> RingState:
        """Nothing has moved."""
        return RingState()

    def step(self, state: RingState, record: Record) -> RingState:
        """Takes one move."""
        event = record.event
        if isinstance(event, SlotMoved):
            state.moves += 1
            state.slots[event.slot] = follow(state.slots.get(event.slot), event, record.t)[0]
        return state

    def result(self, state: RingState) -> RingView:
        """The ring now."""
        slots = tuple(
            SlotView(number, slot.state, slot.incarnation, slot.request, slot.moved)
            for number, slot in sorted(state.slots.items())
        )
        counts: dict[str, int] = {}
        for slot in slots:
            counts[slot.state] = counts.get(slot.state, 0) + 1
        gaps = tuple(n for n, slot in sorted(state.slots.items()) if slot.lost or slot.left is not None)
        return RingView(slots, dict(sorted(counts.items())), state.moves, gaps)


def follow(slot: Slot | None, move: SlotMoved, t: Nanoseconds) -> tuple[Slot, bool]:
    """The slot after `move`, and whether the move changed its state: a late one that fills a gap does not."""
    if slot is None:
        return Slot(move.after, move.incarnation, move.request, t, found=move.before), True
    if _closes(slot, move):
        return slot, False
    _move_on(slot, move, t)
    return slot, True


def _closes(slot: Slot, move: SlotMoved) -> bool:
    """True if `move` is a late one that belongs into the slot's open gap, which it shortens or closes."""
    if slot.found is None:
        return False
    if slot.left is None:
        # Nothing is known before the first move: one late move may say what it was.
        if move.after != slot.found or move.before == slot.state:
            return False
        slot.found = None
        return True
    if move.before != slot.left or (move.before == slot.state and move.after != slot.found):
        return False
    slot.left = move.after
    if slot.left == slot.found:
        slot.left = slot.found = None
    return True


def _move_on(slot: Slot, move: SlotMoved, t: Nanoseconds) -> None:
    if move.before != slot.state:
        slot.lost += slot.left is not None
        slot.left, slot.found = slot.state, move.before
    slot.state, slot.incarnation, slot.request, slot.moved = move.after, move.incarnation, move.request, t
