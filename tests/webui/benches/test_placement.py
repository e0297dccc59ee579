"""Turns: the rules one by one, and over drawn queues what must hold for all of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from webui.benches.needs import Offer
from webui.benches.placement import (
    PATIENCE_S,
    Active,
    Place,
    Placement,
    Share,
    Situation,
    Waiting,
    Why,
    fair_order,
    forecast,
    place,
)

BOTH = Offer({"simulate": True, "emulate": True})
SIM, EMU = ("simulate",), ("emulate",)


def sim(run: str, owner: int = 1, since: float = 0.0, expected: float | None = 10.0) -> Waiting:
    return Waiting(run, owner, False, SIM, since, expected)


def emu(run: str, owner: int = 1, since: float = 0.0, expected: float | None = 10.0, *more: str) -> Waiting:
    return Waiting(run, owner, True, (*EMU, *more), since, expected)


def bench(name: str = "a", slots: int = 2, **rest: object) -> Place:
    return Place(name, **({"offer": BOTH, "slots": slots} | rest))  # type: ignore[arg-type]


def starts(placement: Placement) -> dict[str, str]:
    return dict(placement.starts)


# --- the rules, one by one ------------------------------------------------------------------------------------------


def test_owners_take_turns_and_nobodys_hundred_runs_hold_up_anothers_one() -> None:
    waiting = [sim(f"a{number:03}", owner=1, since=number) for number in range(100)]
    waiting += [sim("b0", owner=2, since=500), sim("b1", owner=2, since=501)]
    order = [run.run for run in fair_order(waiting, {1: Share(served_at=50), 2: Share(served_at=40)})]
    assert order[:5] == ["b0", "a000", "b1", "a001", "a002"]
    order = [run.run for run in fair_order(waiting, {1: Share(served_at=30), 2: Share(served_at=40)})]
    assert order[:4] == ["a000", "b0", "a001", "b1"]


def test_an_emulation_has_its_bench_alone_and_simulations_fill_theirs() -> None:
    found = place(Situation(0, [emu("e", since=0), sim("s", since=1), sim("t", since=2)], [], [bench()]))
    assert starts(found) == {"e": "a"}
    assert {wait.why for wait in found.waits.values()} == {Why.EMULATING}
    found = place(Situation(0, [sim("s", since=0), sim("t", since=1), sim("u", since=2)], [], [bench()]))
    assert starts(found) == {"s": "a", "t": "a"}
    assert found.waits["u"].why is Why.FULL


def test_an_emulation_whose_turn_it_is_reserves_its_bench() -> None:
    busy = [Active("x", 9, "a", False, 5.0)]
    found = place(Situation(0, [emu("e", since=0), sim("s", owner=2, since=1)], busy, [bench()]))
    assert starts(found) == {}
    assert (found.waits["e"].why, found.waits["e"].run) == (Why.SIMULATING, "x")
    assert found.waits["s"].why is Why.RESERVED


def test_an_impatient_emulation_reserves_every_bench_that_could_take_it() -> None:
    busy = [Active("x", 9, "a", False, 5.0), Active("y", 9, "b", False, 50.0)]
    waiting = [emu("e", since=0), sim("s", owner=2, since=1)]
    both = [bench("a"), bench("b")]
    assert starts(place(Situation(1, waiting, busy, both))) == {"s": "b"}
    assert starts(place(Situation(PATIENCE_S + 1, waiting, busy, both))) == {}


def test_a_lease_is_its_holders_alone_and_the_holder_goes_there_first() -> None:
    leased = bench("a", holder=1, held_until=100.0)
    found = place(Situation(0, [sim("mine", owner=1), sim("theirs", owner=2)], [], [leased, bench("b")]))
    assert starts(found) == {"mine": "a", "theirs": "b"}
    found = place(Situation(0, [sim("theirs", owner=2)], [], [leased]))
    assert (found.waits["theirs"].why, found.waits["theirs"].until) == (Why.LEASED, 100.0)
    assert starts(place(Situation(100, [sim("theirs", owner=2)], [], [leased]))) == {"theirs": "a"}


def test_quotas_wait_and_let_others_go_first() -> None:
    shares = {1: Share(active_runs=1), 2: Share(bench_s_left=0.0)}
    active = [Active("x", 1, "a", False)]
    waiting = [sim("one", owner=1), emu("two", owner=2), sim("three", owner=3)]
    found = place(Situation(0, waiting, active, [bench("a", 3), bench("b")], shares))
    assert starts(found) == {"three": "a"}
    assert found.waits["one"].why is Why.QUOTA_ACTIVE
    assert found.waits["two"].why is Why.QUOTA_MINUTES


def test_an_emulation_waits_for_one_that_is_not_in_the_queue_and_holds_up_nobody_meanwhile() -> None:
    taken = bench("a", elsewhere=True)
    waiting = [emu("e", since=0), sim("s", since=1)]
    found = place(Situation(PATIENCE_S + 1, waiting, [], [taken]))
    assert starts(found) == {"s": "a"}
    assert found.waits["e"].why is Why.ELSEWHERE
    assert starts(place(Situation(0, waiting, [], [taken, bench("b")]))) == {"e": "b", "s": "a"}
    assert forecast(Situation(0, waiting, [], [taken])) == {"e": None, "s": 0}
    ours = [Active("x", 9, "a", True, 5.0)]  # of the command line, and in the console's own folder
    assert place(Situation(0, waiting, ours, [taken])).waits["e"].why is Why.EMULATING
    beside = [Active("x", 9, "b", True, 5.0)]  # its end is known, so that it is the one to wait for
    assert place(Situation(0, waiting, beside, [taken, bench("b")])).waits["e"].bench == "b"


def test_what_fits_nowhere_or_only_where_nothing_starts_says_so() -> None:
    away = bench("far", offer=Offer({"simulate": True, "emulate": True}, frozenset({"lab-2"})), shut="away: silent")
    found = place(Situation(0, [emu("e", 1, 0, 1, "lab-2"), emu("f", 1, 0, 1, "lab-9")], [], [away, bench("b")]))
    assert (found.waits["e"].why, found.waits["e"].text) == (Why.SHUT, "away: silent")
    assert found.waits["f"].why is Why.UNFIT
    assert "b lacks the tag lab-9" in found.waits["f"].text
    assert place(Situation(0, [sim("s")], [], [])).waits["s"].why is Why.NO_BENCH


def test_simulations_leave_a_whole_bench_free() -> None:
    busy = [Active("x", 9, "a", False)]
    found = place(Situation(0, [sim("s", since=0), emu("e", since=1)], busy, [bench("a"), bench("b")]))
    assert starts(found) == {"s": "a", "e": "b"}
    only = Place("c", Offer({"simulate": True}), 2)
    assert starts(place(Situation(0, [sim("s")], [], [bench("a"), only]))) == {"s": "c"}


def test_the_bench_that_asks_takes_it_where_several_would_do_as_well() -> None:
    for here in ("a", "b"):
        assert starts(place(Situation(0, [sim("s")], [], [bench("a"), bench("b")]), here=here)) == {"s": here}


def test_expected_starts_follow_from_what_is_before() -> None:
    active = [Active("x", 9, "a", True, 30.0)]
    waiting = [emu("e", since=0, expected=100.0), emu("f", since=1, expected=None), emu("g", since=2)]
    assert forecast(Situation(10, waiting, active, [bench()])) == {"e": 30.0, "f": 130.0, "g": None}
    overdue = [Active("x", 9, "a", True, 5.0)]
    assert forecast(Situation(10, waiting, overdue, [bench()])) == {"e": None, "f": None, "g": None}
    leased = bench(holder=7, held_until=50.0)
    assert forecast(Situation(10, [sim("s")], [], [leased])) == {"s": 50.0}


# --- over drawn queues ----------------------------------------------------------------------------------------------


@dataclass
class House:
    """Benches and owners that are played forward: place, start what may start, go to the next end."""

    places: list[Place]
    shares: dict[int, Share]
    now: float = 0.0
    waiting: list[Waiting] = field(default_factory=list)
    active: list[Active] = field(default_factory=list)
    started: list[str] = field(default_factory=list)

    def situation(self) -> Situation:
        return Situation(self.now, list(self.waiting), list(self.active), self.places, dict(self.shares))

    def step(self, random: random.Random) -> None:
        found = place(self.situation(), here=random.choice(["", *(one.name for one in self.places)]))
        self.check(found)
        by_name = {run.run: run for run in self.waiting}
        for name, where in found.starts:
            run = by_name[name]
            self.waiting.remove(run)
            took = (run.expected_s or 5.0) * random.choice([0.5, 1.0, 3.0])
            self.active.append(Active(name, run.owner, where, run.emulation, self.now + took))
            assert run.owner is not None
            self.shares[run.owner] = replace(self.shares[run.owner], served_at=self.now)
            self.started.append(name)
        if self.active:
            first = min(self.active, key=lambda one: (one.ends_at or 0.0, one.run))
            self.now = max(self.now, first.ends_at or 0.0)
            self.active.remove(first)

    def check(self, found: Placement) -> None:
        """What must hold of every decision."""
        assert sorted(found.order) == sorted(run.run for run in self.waiting)
        assert set(starts(found)).isdisjoint(found.waits)
        assert set(starts(found)) | set(found.waits) == set(found.order)
        by_name = {run.run: run for run in self.waiting}
        after = [*self.active, *(Active(n, by_name[n].owner, w, by_name[n].emulation) for n, w in found.starts)]
        for one in self.places:
            there = [run for run in after if run.bench == one.name]
            emulations = sum(run.emulation for run in there)
            assert emulations <= 1
            assert not emulations or len(there) == 1, "an emulation is alone"
            assert len(there) <= max(1, one.slots)
        for name, where in found.starts:
            run, one = by_name[name], next(one for one in self.places if one.name == where)
            assert not one.shut
            assert one.held_until is None or one.held_until <= self.now or one.holder == run.owner
            assert not set(run.needs) - set(one.offer.abilities) - one.offer.tags
        for owner, share in self.shares.items():
            assert sum(run.owner == owner for run in after) <= max(
                share.active_runs, sum(run.owner == owner for run in self.active)
            )
        self.check_nothing_idles(found, after)

    def check_nothing_idles(self, found: Placement, after: list[Active]) -> None:
        """No bench stays empty while a run that may go there waits: it waits for something else, or behind it."""
        for one in self.places:
            if one.shut or any(run.bench == one.name for run in after):
                continue
            for run in self.waiting:
                if run.run not in found.waits:
                    continue
                fits = not set(run.needs) - set(one.offer.abilities) - one.offer.tags
                leased = one.held_until is not None and one.held_until > self.now and one.holder != run.owner
                quota = found.waits[run.run].why in (Why.QUOTA_ACTIVE, Why.QUOTA_MINUTES)
                assert not fits or leased or quota, f"{run.run} waits and {one.name} is idle"


def drawn_house(draw: st.DrawFn) -> House:
    names = [f"b{number}" for number in range(draw(st.integers(1, 3)))]
    places = [
        Place(
            name,
            Offer(
                {"simulate": True, **({"emulate": True} if draw(st.booleans()) or number == 0 else {})},
                frozenset(draw(st.lists(st.sampled_from(["lab-1", "lab-2"]), unique=True))),
            ),
            slots=draw(st.integers(1, 3)),
        )
        for number, name in enumerate(names)
    ]
    shares = {
        owner: Share(active_runs=draw(st.integers(1, 4)), served_at=draw(st.floats(0, 5))) for owner in range(1, 4)
    }
    house = House(places, dict(shares), now=10.0)
    for number in range(draw(st.integers(1, 14))):
        emulation = draw(st.booleans())
        tags = tuple(draw(st.lists(st.sampled_from(["lab-1", "lab-2"]), max_size=1)))
        house.waiting.append(
            Waiting(
                f"r{number:02}",
                draw(st.integers(1, 3)),
                emulation,
                (*(EMU if emulation else SIM), *tags),
                since=draw(st.integers(0, 3)),
                expected_s=draw(st.sampled_from([1.0, 5.0, None])),
            )
        )
    return house


houses = st.composite(drawn_house)()


@given(houses, st.randoms(use_true_random=False))
def test_played_forward_every_run_that_fits_somewhere_gets_its_turn(house: House, random: random.Random) -> None:
    fits = [
        run.run
        for run in house.waiting
        if any(not set(run.needs) - set(one.offer.abilities) - one.offer.tags for one in house.places)
    ]
    for _ in range(2 * len(house.waiting) + 2):
        house.step(random)
    assert sorted(house.started) == sorted(fits)
    assert {run.run for run in house.waiting}.isdisjoint(fits)


@given(houses, st.randoms(use_true_random=False))
def test_the_same_situation_gives_the_same_decision_in_any_order(house: House, random: random.Random) -> None:
    told = house.situation()
    mixed = replace(
        told,
        waiting=random.sample(list(told.waiting), len(told.waiting)),
        places=random.sample(list(told.places), len(told.places)),
    )
    assert (place(told).order, place(told).starts) == (place(mixed).order, place(mixed).starts)
    assert forecast(told) == forecast(mixed)


@given(st.integers(1, 40), st.integers(2, 5), st.randoms(use_true_random=False))
def test_overtaking_is_bounded_by_one_run_of_each_other_owner(
    hundreds: int, owners: int, random: random.Random
) -> None:
    """One bench, emulations of equal length: a run with k of its owner's before it waits at most (k + 1) rounds."""
    house = House([bench()], {owner: Share(served_at=random.random()) for owner in range(1, owners + 1)}, now=10.0)
    for owner in range(2, owners + 1):
        house.waiting += [emu(f"{owner}-{number:03}", owner, since=number, expected=1.0) for number in range(hundreds)]
    house.waiting.append(emu("late", owner=1, since=10_000.0, expected=1.0))
    while house.waiting:
        house.step(random)
    assert house.started.index("late") < owners


@given(houses)
def test_nothing_is_forecast_for_the_past_and_what_starts_now_is_forecast_for_now(house: House) -> None:
    told = house.situation()
    expected, found = forecast(told), place(told)
    for run, _ in found.starts:
        assert expected[run] == told.now
    assert all(at is None or at >= told.now for at in expected.values())
    for run, wait in found.waits.items():
        if wait.why in (Why.UNFIT, Why.NO_BENCH):
            assert expected[run] is None


@pytest.mark.parametrize("runs", [2000])
def test_a_long_queue_is_decided_in_one_pass(runs: int) -> None:
    waiting = [(sim if number % 3 else emu)(f"r{number:05}", owner=number % 40, since=number) for number in range(runs)]
    found = place(Situation(0, waiting, [], [bench(f"b{number}", 3) for number in range(4)]))
    assert len(found.order) == runs
    assert len(forecast(Situation(0, waiting, [], [bench(f"b{number}", 3) for number in range(4)]))) == 40
