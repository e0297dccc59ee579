from __future__ import annotations

from pathlib import Path

import pytest

from testbed.clocks.front_network import FrontNetwork
from testbed.clocks.simulated import Simulation, SimulationStuck
from testbed.events.client_events import RequestFailed
from testbed.events.log import EventWriter, read_log
from testbed.events.run_events import LineLogged
from testbed.machine import Deliver, Effects, Event, MachineError, Message, UnexpectedMessage
from testbed.network.memory_region import PlainMemory
from testbed.serving.requests import Refused, Request, Submit
from testbed.units import Nanoseconds
from testbed.workload.client import OpenLoopClient
from tests.testbed.clocks.conveyor import Circler, Feeder, FixedDelayWire, Watcher


def conveyor(folder: Path, *, delay: int = 300, interval: int = 70, rounds: int = 5) -> Simulation:
    memory = PlainMemory(64)
    simulation = Simulation(FixedDelayWire({"w": memory}, delay))
    feeder = Feeder("w", 1000, rounds)
    with EventWriter(folder / "f.jsonl", "f") as first, EventWriter(folder / "w.jsonl", "w") as second:
        simulation.add_node("f", [feeder], first.write)
        simulation.add_node("w", [Watcher(memory, interval)], second.write)
        assert simulation.run(until=10**7, done=lambda: feeder.done)
    return simulation


def lines(path: Path) -> list[tuple[int, str]]:
    return [(record.t, record.event.text) for record in read_log(path) if isinstance(record.event, LineLogged)]


def test_verbs_land_when_the_wire_says_and_answers_come_back(tmp_path: Path) -> None:
    conveyor(tmp_path, rounds=2)
    assert lines(tmp_path / "f.jsonl") == [(1600, "read back 1"), (3200, "read back 2")]
    # The write lands at 1300 and 2900; the watcher looks every 70.
    assert lines(tmp_path / "w.jsonl") == [(1330, "saw 1"), (2940, "saw 2")]


def test_the_same_run_twice_is_the_same_byte_for_byte(tmp_path: Path) -> None:
    """Known fault 37."""
    for name in ("first", "second"):
        conveyor(tmp_path / name)
    for file in ("f.jsonl", "w.jsonl"):
        assert (tmp_path / "first" / file).read_bytes() == (tmp_path / "second" / file).read_bytes() != b""


def test_it_jumps_over_time_in_which_nothing_happens(tmp_path: Path) -> None:
    simulation = conveyor(tmp_path, interval=10**6, delay=300_000, rounds=3)
    assert simulation.now > 1_800_000
    assert simulation.wakes < 20


class Echo:
    """Refuses everything, at once."""

    name = "front_end"

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        if not isinstance(message, Submit):
            raise UnexpectedMessage(self.name, message)
        return [Deliver("api", Refused(message.request.name, "ring_full", ""))]

    def wake(self, now: Nanoseconds) -> Effects:
        return ()

    def deadline(self) -> Nanoseconds | None:
        return None


def test_requests_and_answers_cross_the_front_network() -> None:
    front = FrontNetwork(
        ("d", "front_end"), {"c": "client"}, rates_bits_per_s={"d": 10**10, "c": 10**10}, delay=5_000
    )
    simulation = Simulation(FixedDelayWire({}, 1), front)
    told: list[tuple[Nanoseconds, Event]] = []
    client = OpenLoopClient([Request("r", "why?", 4, scheduled=100)])
    simulation.add_node("c", [client], lambda t, event: told.append((t, event)))
    simulation.add_node("d", [Echo()], lambda t, event: told.append((t, event)))
    assert simulation.run(done=lambda: client.done)
    assert told[-1][1] == RequestFailed("r", "ring_full")
    assert 10_100 < told[-1][0] < 13_000
    assert not simulation.step()


def test_a_run_ends_without_success_when_nothing_is_left_or_time_is_up(tmp_path: Path) -> None:
    simulation = Simulation(FixedDelayWire({}, 1))
    assert not simulation.run(done=lambda: False)
    memory = PlainMemory(8)
    simulation.add_node("w", [Watcher(memory, 100)], lambda t, event: None)
    assert not simulation.run(until=1050)
    assert simulation.now == 1000


def test_a_machine_that_goes_in_circles_is_named() -> None:
    simulation = Simulation(FixedDelayWire({}, 1))
    simulation.add_node("a", [Circler()], lambda t, event: None)
    with pytest.raises(SimulationStuck, match="a was woken 100000 times at t = 0"):
        simulation.run()


def test_a_deadline_in_the_past_is_due_now() -> None:
    simulation = Simulation(FixedDelayWire({}, 1))
    memory = PlainMemory(8)
    simulation.add_node("w", [Watcher(memory, 500)], lambda t, event: None)
    simulation.step()
    late = Circler()
    simulation.add_node("late", [late], lambda t, event: None)
    simulation.step()
    assert simulation.now == 500


def test_a_message_to_the_outside_without_a_front_network_is_our_fault() -> None:
    simulation = Simulation(FixedDelayWire({}, 1))
    simulation.add_node("c", [OpenLoopClient([Request("r", "why?", 4)])], lambda t, event: None)
    with pytest.raises(MachineError, match="no front network"):
        simulation.run()


def test_names_are_unique() -> None:
    simulation = Simulation(FixedDelayWire({}, 1))
    simulation.add_node("a", [], lambda t, event: None)
    with pytest.raises(ValueError, match="'a' already"):
        simulation.add_node("a", [], lambda t, event: None)
