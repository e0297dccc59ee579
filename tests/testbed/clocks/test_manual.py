from __future__ import annotations

import pytest

from testbed.clocks.manual import Departed, Emitted, ManualClock
from testbed.events.run_events import LineLogged
from testbed.machine import Completion, Deliver, MachineError
from testbed.network.memory_region import PlainMemory
from testbed.serving.requests import Request, Submit
from testbed.workload.client import OpenLoopClient
from tests.testbed.clocks.conveyor import Circler, Feeder, Watcher


def test_time_stands_still_until_it_is_told_to_move() -> None:
    clock = ManualClock()
    clock.host("a", [Feeder("b", 10, 3)])
    assert (clock.now, clock.deadline(), clock.posted) == (0, 10, [])
    clock.advance(9)
    assert (clock.now, clock.posted) == (9, [])
    clock.advance(10)
    assert [(posted.t, posted.node, posted.verb.ticket) for posted in clock.posted] == [(10, "a", 2)]


def test_a_step_jumps_to_the_next_deadline() -> None:
    clock = ManualClock()
    memory = PlainMemory(8)
    clock.host("w", [Watcher(memory, 7)])
    assert clock.step() == 7
    memory.store(0, 5)
    assert clock.step() == 14
    assert clock.emitted == [Emitted(14, "w", LineLogged("saw 5"))]


def test_who_holds_the_clock_answers_the_verbs() -> None:
    clock = ManualClock()
    host = clock.host("a", [Feeder("b", 10, 1)])
    clock.step()
    host.complete(clock.now, Completion(2))
    assert [posted.verb.ticket for posted in clock.posted] == [2, 3]
    host.complete(clock.now, Completion(3, data=(1).to_bytes(8, "little")))
    assert clock.emitted == [Emitted(10, "a", LineLogged("read back 1"))]
    assert clock.step() is None
    with pytest.raises(MachineError, match="unknown ticket 3"):
        host.complete(clock.now, Completion(3))


def test_messages_for_nobody_on_the_node_depart() -> None:
    clock = ManualClock()
    request = Request("r", "why?", 4, scheduled=30)
    clock.host("c", [OpenLoopClient([request])])
    clock.advance(100)
    assert clock.departed == [Departed(30, "c", Deliver("api", Submit(request)))]
    assert clock.now == 100


def test_it_never_goes_back() -> None:
    clock = ManualClock(now=5)
    with pytest.raises(ValueError, match="back from 5 to 4"):
        clock.advance(4)


def test_a_machine_that_goes_in_circles_is_told_from_one_that_works() -> None:
    clock = ManualClock()
    clock.host("a", [Circler()])
    with pytest.raises(RuntimeError, match="after 50 steps the clock is at 0, not at 1"):
        clock.advance(1, most=50)


def test_names_are_unique() -> None:
    clock = ManualClock()
    clock.host("a", [])
    with pytest.raises(ValueError, match="'a' already"):
        clock.host("a", [])
