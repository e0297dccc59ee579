"""Every slot's state as the log tells it: for the live map of the ring, and a check that the moves join up.

Two nodes move a slot: the DPU fills it (prompt.written) and frees it (request.served, request.abandoned), the GPU
does the rest (slot.moved). A DPU may log its own moves as slot.moved too; each is then taken once.

The DPU logs when its completion arrives, and the GPU may have taken the slot on by then. So a move can stand in the
log after the one that followed it. A slot whose moves do not join has a gap, from the state it was in (`left`) to
the state in which the next known move found it (`found`); late moves that begin at `left` walk through the gap until
it is closed.
"""

from __future__ import annotations

import msgspec

from testbed.events.log import Record
from testbed.events.schema import PromptWritten, RequestAbandoned, RequestServed, SlotMoved
from testbed.machine import Event
from testbed.units import Nanoseconds

EMPTY = "empty"
FILLED = "prefill_pending"
"""The states that the front end's events mean; all others are the log's own words."""


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
    places: dict[int, int] = {}
    """Slot by request, of those that hold one."""
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
    """Follows the slots."""

    state = RingState
    takes: frozenset[type[Event]] = frozenset({SlotMoved, PromptWritten, RequestServed, RequestAbandoned})

    def start(self) -> RingState:
        """Nothing has moved."""
        return RingState()

    def step(self, state: RingState, record: Record) -> RingState:
        """Takes one event."""
        advance(state, record)
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


def advance(state: RingState, record: Record) -> int | None:
    """Takes one event; the slot whose state it changed, or None: a late move that fills a gap changes none."""
    match record.event:
        case SlotMoved() as move:
            return _take_move(state, move, record.t)
        case PromptWritten(request=request, slot=number, incarnation=incarnation):
            return _fill(state, number, incarnation, request, record.t)
        case RequestServed(request=request) | RequestAbandoned(request=request):
            return _free(state, request, record.t)
    return None


def _take_move(state: RingState, move: SlotMoved, t: Nanoseconds) -> int | None:
    state.moves += 1
    slot = state.slots.get(move.slot)
    if move.after == EMPTY:
        state.places.pop(move.request, None)
    else:
        state.places[move.request] = move.slot
    if slot is None:
        state.slots[move.slot] = Slot(move.after, move.incarnation, move.request, t, found=move.before)
        return move.slot
    if _closes(slot, move) or _is_known(slot, move):
        return None
    if move.before != slot.state:
        slot.lost += slot.left is not None
        slot.left, slot.found = slot.state, move.before
    slot.state, slot.incarnation, slot.request, slot.moved = move.after, move.incarnation, move.request, t
    return move.slot


def _fill(state: RingState, number: int, incarnation: int, request: int, t: Nanoseconds) -> int | None:
    state.places[request] = number
    slot = state.slots.get(number)
    if slot is not None and slot.request == request:
        if slot.found == FILLED:
            slot.left = slot.found = None
        return None
    # Whatever was known of the slot before: it can only have been written to while it was empty.
    lost = 0 if slot is None else slot.lost + (slot.left is not None)
    state.slots[number] = Slot(FILLED, incarnation, request, t, lost=lost)
    return number


def _free(state: RingState, request: int, t: Nanoseconds) -> int | None:
    number = state.places.pop(request, None)
    slot = None if number is None else state.slots.get(number)
    if slot is None or slot.request != request or slot.state == EMPTY:
        return None
    slot.state, slot.moved = EMPTY, t
    return number


def _is_known(slot: Slot, move: SlotMoved) -> bool:
    """True if the front end has already said so: a request fills its slot once, and leaves it once."""
    if slot.request != move.request:
        return False
    return slot.state == move.after or (move.after == FILLED and slot.state != EMPTY)


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
