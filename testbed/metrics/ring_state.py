"""Every slot's state as the log tells it: for the live map of the rings, and a check that the moves join up.

A slot is a number in a ring, and a ring is known by the name of the GPU's node that has it. Two nodes move a slot: the
DPU fills it (prompt.written) and frees it (request.served, request.abandoned), the GPU does the rest (slot.moved). A
GPU that logs a move that the DPU's events tell too says nothing new.

The DPU logs when its completion arrives, and the GPU may have taken the slot on by then. So a move can stand in the
log after the one that followed it. A slot whose moves do not join has a gap, from the state it was in (`left`) to
the state in which the next known move found it (`found`); late moves that begin at `left` walk through the gap until
it is closed.

Logs of before prompt.written named the ring are read too: it is that of the only GPU that was ready, or where there
are several, that of the GPU which moves the request first; until then the slot is left out.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from testbed.events.log import Record
from testbed.events.run_events import NodeReady
from testbed.events.schema import PromptWritten, RequestAbandoned, RequestServed, SlotMoved
from testbed.machine import Event
from testbed.units import Nanoseconds

EMPTY = "empty"
FILLED = "prefill_pending"
"""The states that the front end's events mean; all others are the log's own words."""


class Place(NamedTuple):
    """Where a slot is."""

    ring: str
    """The GPU's node."""
    slot: int


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

    rings: dict[str, dict[int, Slot]] = {}
    """By ring and number."""
    places: dict[int, Place] = {}
    """By request, of those that hold a slot."""
    gpus: dict[str, None] = {}
    """Nodes that have a ring, as far as they have said that they are ready."""
    unplaced: dict[int, None] = {}
    """Requests that have been written into a ring that nothing has named yet."""
    moves: int = 0


class SlotView(msgspec.Struct, frozen=True):
    """One slot of a map of the rings."""

    ring: str
    slot: int
    state: str
    incarnation: int
    request: int
    moved: Nanoseconds
    """When it came into this state."""


class RingView(msgspec.Struct, frozen=True):
    """All rings at one moment. Slots that never moved are left out: they are as they were at the start."""

    slots: tuple[SlotView, ...]
    """By ring and number."""
    counts: dict[str, int]
    """Slots by state, over all rings."""
    moves: int
    gaps: tuple[Place, ...]
    """Slots whose moves do not join up: the log lacks a move, or a machine has skipped one."""


class RingFold:
    """Follows the slots."""

    state = RingState
    takes: frozenset[type[Event]] = frozenset({NodeReady, SlotMoved, PromptWritten, RequestServed, RequestAbandoned})

    def start(self) -> RingState:
        """Nothing has moved."""
        return RingState()

    def step(self, state: RingState, record: Record) -> RingState:
        """Takes one event."""
        advance(state, record)
        return state

    def result(self, state: RingState) -> RingView:
        """The rings now."""
        known = [
            (Place(ring, number), slot)
            for ring, slots in sorted(state.rings.items())
            for number, slot in sorted(slots.items())
        ]
        slots = tuple(SlotView(*place, slot.state, slot.incarnation, slot.request, slot.moved) for place, slot in known)
        counts: dict[str, int] = {}
        for slot in slots:
            counts[slot.state] = counts.get(slot.state, 0) + 1
        gaps = tuple(place for place, slot in known if slot.lost or slot.left is not None)
        return RingView(slots, dict(sorted(counts.items())), state.moves, gaps)


def advance(state: RingState, record: Record) -> Place | None:
    """Takes one event; the slot whose state it changed, or None: a late move that fills a gap changes none."""
    match record.event:
        case NodeReady(role="gpu"):
            state.gpus[record.node] = None
        case SlotMoved() as move:
            return _take_move(state, Place(record.node, move.slot), move, record.t)
        case PromptWritten(request=request) as written:
            ring = written.ring or _ring_of(state, request)
            if ring:
                return _fill(state, Place(ring, written.slot), written.incarnation, request, record.t)
            state.unplaced[request] = None
        case RequestServed(request=request) | RequestAbandoned(request=request):
            return _free(state, request, record.t)
    return None


def _ring_of(state: RingState, request: int) -> str:
    """The ring of a request that was written into one without a name; empty while it cannot be known."""
    place = state.places.get(request)
    if place is not None:
        return place.ring
    return next(iter(state.gpus)) if len(state.gpus) == 1 else ""


def _take_move(state: RingState, place: Place, move: SlotMoved, t: Nanoseconds) -> Place | None:
    state.moves += 1
    if move.request in state.unplaced:
        del state.unplaced[move.request]
        _fill(state, place, move.incarnation, move.request, t)
    slots = state.rings.setdefault(place.ring, {})
    slot = slots.get(place.slot)
    if move.after == EMPTY:
        state.places.pop(move.request, None)
    else:
        state.places[move.request] = place
    if slot is None:
        slots[place.slot] = Slot(move.after, move.incarnation, move.request, t, found=move.before)
        return place
    if _closes(slot, move) or _is_known(slot, move):
        return None
    if move.before != slot.state:
        slot.lost += slot.left is not None
        slot.left, slot.found = slot.state, move.before
    slot.state, slot.incarnation, slot.request, slot.moved = move.after, move.incarnation, move.request, t
    return place


def _fill(state: RingState, place: Place, incarnation: int, request: int, t: Nanoseconds) -> Place | None:
    state.places[request] = place
    slots = state.rings.setdefault(place.ring, {})
    slot = slots.get(place.slot)
    if slot is not None and slot.request == request:
        if slot.found == FILLED:
            slot.left = slot.found = None
        return None
    # Whatever was known of the slot before: it can only have been written to while it was empty.
    lost = 0 if slot is None else slot.lost + (slot.left is not None)
    slots[place.slot] = Slot(FILLED, incarnation, request, t, lost=lost)
    return place


def _free(state: RingState, request: int, t: Nanoseconds) -> Place | None:
    state.unplaced.pop(request, None)
    place = state.places.pop(request, None)
    slot = None if place is None else state.rings[place.ring].get(place.slot)
    if slot is None or slot.request != request or slot.state == EMPTY:
        return None
    slot.state, slot.moved = EMPTY, t
    return place


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
