"""Round trips of verbs: only what was alone on its way counts."""

from __future__ import annotations

from testbed.clocks.wall import RoundTrips
from testbed.events.fidelity_events import VerbsMeasured
from testbed.machine import CompareSwap, Read, RemoteAddress, Write

THERE = RemoteAddress(1, 0)


def read(ticket: int, length: int) -> Read:
    return Read(ticket, "gpu0", remote=THERE, length=length)


def test_verbs_of_one_kind_and_size_are_one_event() -> None:
    trips = RoundTrips()
    for ticket, (begun, ended) in enumerate(((0, 100), (200, 500), (600, 800))):
        trips.post(read(ticket, 65_536), begun)
        trips.complete(ended, good=True)
    trips.post(CompareSwap(9, "gpu0", remote=THERE, expected=0, desired=1), 1_000)
    trips.complete(1_050, good=True)
    trips.post(Write(10, "gpu0", remote=THERE, data=bytes(100)), 2_000)
    trips.complete(2_070, good=True)
    assert trips.measured() == [
        VerbsMeasured("read", 65_536, 3, 200, 300),
        VerbsMeasured("swap", 8, 1, 50, 50),
        VerbsMeasured("write", 100, 1, 70, 70),
    ]
    assert trips.measured() == []


def test_a_verb_behind_another_is_not_measured_and_neither_is_a_failed_one() -> None:
    trips = RoundTrips()
    trips.post(read(1, 4), 0)
    trips.post(read(2, 4), 1)
    trips.complete(10, good=True)
    trips.complete(20, good=True)
    trips.post(read(3, 4), 30)
    trips.complete(40, good=False)
    assert trips.measured() == [VerbsMeasured("read", 4, 1, 10, 10)]


def test_an_event_says_its_largest_message() -> None:
    trips = RoundTrips()
    for size in (1_025, 2_000, 1_500):
        trips.post(read(size, size), 0)
        trips.complete(5, good=True)
    assert [event.bytes for event in trips.measured()] == [2_000]
