"""Which waiting run may start where, and why each other one waits. Pure: told everything, `now` too, and decides the
same for the same.

- An emulation has its bench to itself; simulations run beside each other, up to `slots`, never beside an emulation.
  An emulation waits for one of a command or of another console on that machine too, and reserves nothing meanwhile.
- Owners take turns, the least recently served first; within an owner first come, first served. So nobody's hundred
  runs hold up somebody else's one.
- A leased bench takes its holder's runs alone. A quota makes a run wait, and others go first.
- An emulation whose turn it is, and whose bench still simulates, reserves that bench: no further simulation starts
  there before it. After `PATIENCE_S` it reserves every bench that could take it, so that its wait is bounded.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from webui.benches.needs import Offer, lacking

PATIENCE_S = 600.0
Owner = int | None


@dataclass(frozen=True)
class Waiting:
    """A run in the queue."""

    run: str
    owner: Owner
    emulation: bool
    needs: tuple[str, ...]
    since: float
    """Seconds, on the clock of `now`."""
    expected_s: float | None = None
    """Wall time that it is thought to take; None: nothing is known."""


@dataclass(frozen=True)
class Active:
    """A run on a bench."""

    run: str
    owner: Owner
    bench: str
    emulation: bool
    ends_at: float | None = None
    """When it is thought to end; None: nobody knows."""


@dataclass(frozen=True)
class Place:
    """A bench."""

    name: str
    offer: Offer
    slots: int = 1
    """Simulations at once."""
    shut: str = ""
    """Why it takes no run at all (away, closed, out of service); empty while it does."""
    holder: Owner = None
    held_until: float | None = None
    """End of a lease; None while nobody has one."""
    elsewhere: bool = False
    """A command or another console emulates on its machine."""


@dataclass(frozen=True)
class Share:
    """What an owner may have, and has had."""

    active_runs: int = 1_000_000
    bench_s_left: float = 1e18
    """Seconds of emulation left of today's."""
    served_at: float = 0.0
    """When a run of theirs was last started."""


@dataclass(frozen=True)
class Situation:
    """All that placement looks at."""

    now: float
    waiting: Sequence[Waiting] = ()
    active: Sequence[Active] = ()
    places: Sequence[Place] = ()
    shares: Mapping[Owner, Share] = field(default_factory=dict)


class Why(StrEnum):
    """Why a run does not start now."""

    NO_BENCH = "no bench"
    UNFIT = "unfit"
    SHUT = "shut"
    LEASED = "leased"
    QUOTA_ACTIVE = "quota of active runs"
    QUOTA_MINUTES = "quota of bench minutes"
    EMULATING = "emulating"
    ELSEWHERE = "elsewhere"
    """Somebody who is not in this queue emulates on the bench's machine."""
    SIMULATING = "simulating"
    """An emulation waits for simulations to end."""
    FULL = "full"
    RESERVED = "reserved"
    """A simulation waits behind an emulation that was here first."""


@dataclass(frozen=True)
class Wait:
    """A reason, with what it speaks of."""

    why: Why
    bench: str = ""
    run: str = ""
    """The run that is in the way; not everybody may be told its name."""
    text: str = ""
    """What a bench says of itself, or lacks."""
    until: float | None = None


@dataclass(frozen=True)
class Placement:
    """The decision."""

    order: tuple[str, ...]
    """Waiting runs, the next first."""
    starts: tuple[tuple[str, str], ...]
    """(run, bench): these may start now, all of them."""
    waits: Mapping[str, Wait]
    """Why each of the others does not."""


@dataclass
class _Room:
    """A bench while turns are given out."""

    place: Place
    emulation: str = ""
    simulations: list[str] = field(default_factory=list)
    free_at: float = 0.0
    reserved: bool = False

    def takes(self, run: Waiting) -> bool:
        if self.reserved or self.emulation:
            return False
        if run.emulation and self.place.elsewhere:
            return False
        return not self.simulations if run.emulation else len(self.simulations) < self.place.slots

    def take(self, run: Waiting) -> None:
        if run.emulation:
            self.emulation = run.run
        else:
            self.simulations.append(run.run)


def fair_order(waiting: Iterable[Waiting], shares: Mapping[Owner, Share]) -> list[Waiting]:
    """Owners in turn, the least recently served first; within an owner the oldest first."""
    by_owner: dict[Owner, list[Waiting]] = {}
    for run in sorted(waiting, key=lambda one: (one.since, one.run), reverse=True):
        by_owner.setdefault(run.owner, []).append(run)
    turns = [
        (0, shares.get(owner, Share()).served_at, runs[-1].since, runs[-1].run, owner)
        for owner, runs in by_owner.items()
    ]
    heapq.heapify(turns)
    order: list[Waiting] = []
    while turns:
        *_, owner = heapq.heappop(turns)
        runs = by_owner[owner]
        order.append(runs.pop())
        if runs:  # behind everybody who has not had a turn in this round
            heapq.heappush(turns, (1, float(len(order)), runs[-1].since, runs[-1].run, owner))
    return order


def place(situation: Situation, *, here: str = "") -> Placement:
    """Gives out turns. `here` is the bench that asks: where several would do as well, it is taken."""
    order = fair_order(situation.waiting, situation.shares)
    fits = {run.run: _fitting(run, situation.places) for run in order}
    starts, waits = give_turns(situation, order, fits, here=here)
    return Placement(tuple(run.run for run in order), tuple(starts), waits)


def _fitting(run: Waiting, places: Sequence[Place]) -> list[str]:
    return [one.name for one in places if not lacking(run.needs, one.offer)]


def give_turns(
    situation: Situation, order: Sequence[Waiting], fits: Mapping[str, list[str]], *, here: str = ""
) -> tuple[list[tuple[str, str]], dict[str, Wait]]:
    """One pass over `order`: who starts where, and why the others do not."""
    rooms = _rooms(situation)
    under_way: dict[Owner, int] = {}
    for one in situation.active:
        under_way[one.owner] = under_way.get(one.owner, 0) + 1
    starts: list[tuple[str, str]] = []
    waits: dict[str, Wait] = {}
    for run in order:
        share = situation.shares.get(run.owner, Share())
        allowed = _allowed(run, situation, [rooms[name] for name in fits[run.run]])
        if isinstance(allowed, Wait):
            waits[run.run] = allowed
        elif under_way.get(run.owner, 0) >= share.active_runs:
            waits[run.run] = Wait(Why.QUOTA_ACTIVE, text=str(share.active_runs))
        elif run.emulation and share.bench_s_left <= 0:
            waits[run.run] = Wait(Why.QUOTA_MINUTES)
        elif free := [room for room in allowed if room.takes(run)]:
            room = min(free, key=lambda one: _preference(one, run, here))
            room.take(run)
            under_way[run.owner] = under_way.get(run.owner, 0) + 1
            starts.append((run.run, room.place.name))
        else:
            waits[run.run] = wait = _held_up(run, allowed)
            if run.emulation and wait.why is not Why.ELSEWHERE:  # whose end nobody here knows
                _reserve(allowed, everywhere=situation.now - run.since > PATIENCE_S)
    return starts, waits


def _rooms(situation: Situation) -> dict[str, _Room]:
    rooms = {
        one.name: _Room(one, free_at=float("inf") if one.elsewhere else 0.0)
        for one in sorted(situation.places, key=lambda one: one.name)
    }
    for active in situation.active:
        room = rooms.get(active.bench)
        if room is None:
            continue
        if active.emulation:
            room.emulation = active.run
        else:
            room.simulations.append(active.run)
        ends_at = active.ends_at if active.ends_at is not None and active.ends_at > situation.now else float("inf")
        room.free_at = max(room.free_at, ends_at)
    return rooms


def _allowed(run: Waiting, situation: Situation, fitting: list[_Room]) -> list[_Room] | Wait:
    """The benches that may take the run once they are free, or why there is none."""
    if not situation.places:
        return Wait(Why.NO_BENCH)
    if not fitting:
        return Wait(Why.UNFIT, text=unfit_words(run.needs, situation.places))
    takes = [room for room in fitting if not room.place.shut]
    if not takes:
        return Wait(Why.SHUT, bench=fitting[0].place.name, text=fitting[0].place.shut)
    mine = [room for room in takes if not _held_by_another(room.place, run.owner, situation.now)]
    if not mine:
        soonest = min(takes, key=lambda room: (room.place.held_until or 0.0, room.place.name)).place
        return Wait(Why.LEASED, bench=soonest.name, until=soonest.held_until)
    return mine


def _held_by_another(bench: Place, owner: Owner, now: float) -> bool:
    return bench.held_until is not None and bench.held_until > now and bench.holder != owner


def unfit_words(needs: Iterable[str], places: Sequence[Place]) -> str:
    """What each bench lacks, in a few words."""
    needs = tuple(needs)
    return "; ".join(f"{one.name} lacks {', '.join(lacking(needs, one.offer))}" for one in places)[:240]


def _preference(room: _Room, run: Waiting, here: str) -> tuple[bool, bool, bool, int, str]:
    """The best bench is the least: one's own lease; for a simulation none that would stay free for an emulation."""
    lease = run.owner is not None and room.place.holder == run.owner
    whole = not run.emulation and not room.simulations and room.place.offer.abilities.get("emulate") is True
    return (not lease, whole, room.place.name != here, len(room.simulations), room.place.name)


def _held_up(run: Waiting, rooms: list[_Room]) -> Wait:
    """What is in the way on the bench that is free first."""
    room = min(rooms, key=lambda one: (one.free_at, one.place.name))
    if room.emulation:
        return Wait(Why.EMULATING, bench=room.place.name, run=room.emulation)
    if run.emulation and room.place.elsewhere:
        return Wait(Why.ELSEWHERE, bench=room.place.name)
    if run.emulation:
        return Wait(Why.SIMULATING, bench=room.place.name, run=room.simulations[0] if room.simulations else "")
    if len(room.simulations) >= room.place.slots:
        return Wait(Why.FULL, bench=room.place.name, text=str(len(room.simulations)))
    return Wait(Why.RESERVED, bench=room.place.name)


def _reserve(rooms: list[_Room], *, everywhere: bool) -> None:
    for room in sorted(
        (one for one in rooms if not one.reserved), key=lambda one: (one.free_at, one.place.name)
    ):  # the bench that is free first, or all of them
        room.reserved = True
        if not everywhere:
            return


def forecast(situation: Situation, *, horizon: int = 40) -> dict[str, float | None]:
    """When each of the first `horizon` waiting runs is thought to start, on the clock of `now`.

    Plays the queue forward with what runs are thought to take. None where that rests on a run of which nothing is
    known, or lies beyond the horizon.
    """
    order = fair_order(situation.waiting, situation.shares)[:horizon]
    fits = {run.run: _fitting(run, situation.places) for run in order}
    found: dict[str, float | None] = dict.fromkeys((run.run for run in order), None)
    waiting = {run.run: run for run in order}
    active = list(situation.active)
    now = situation.now
    while waiting:
        state = replace(situation, now=now, active=active)
        starts, _ = give_turns(state, [run for run in order if run.run in waiting], fits)
        for name, bench in starts:
            run = waiting.pop(name)
            found[name] = now
            ends_at = None if run.expected_s is None else now + run.expected_s
            active.append(Active(name, run.owner, bench, run.emulation, ends_at))
        moments = [one.ends_at for one in active if one.ends_at is not None and one.ends_at > now]
        moments += [one.held_until for one in situation.places if one.held_until is not None and one.held_until > now]
        if not moments:
            break
        now = min(moments)
        active = [one for one in active if one.ends_at is None or one.ends_at > now or one.ends_at <= situation.now]
    return found
