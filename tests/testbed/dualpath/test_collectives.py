"""Collectives among real machines on a real wire: every part arrives behind its bytes, once, whoever begins first."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.clocks.simulated import Simulation
from testbed.dualpath.collectives import MESSAGE_BYTES, OUT_BYTES, PATIENCE, Collective, Member, machine_name
from testbed.dualpath.local_messages import Exchange, Exchanged
from testbed.dualpath.mail import Mail
from testbed.dualpath.round_letters import PartArrived
from testbed.dualpath.service_levels import COLLECTIVE
from testbed.events.kv_events import CollectiveFinished
from testbed.machine import (
    NOTHING,
    Completion,
    Deliver,
    Effects,
    Event,
    Message,
    Send,
    UnexpectedMessage,
    Verb,
    Write,
)
from testbed.network.memory_region import PlainMemory
from testbed.network.wires import FlowWire
from testbed.units import SECOND, Nanoseconds
from tests.testbed.dualpath.small_plans import engine_nodes, plan_of, remote

ROOM = 1 << 22
PLAN = plan_of(engine_nodes("pe0", "pe1", room=ROOM))
MEMBERS = tuple(
    Member(node, engine, f"cnic{engine}", remote(PLAN, node, f"tokens{engine}"), ROOM)
    for node in ("pe0", "pe1")
    for engine in (0, 1)
)
SCALE = 10


class Engine:
    """Asks its collective for exchanges: each at its time, but never before the one before it is done."""

    def __init__(self, place: int, wanted: Sequence[tuple[Nanoseconds, tuple[int, ...]]]) -> None:
        self.name = f"engine{MEMBERS[place].engine}"
        self._to = machine_name(MEMBERS[place].engine)
        self._wanted = list(wanted)
        self._sequence = 0
        self._busy = False
        self.answers: list[tuple[Nanoseconds, Exchanged]] = []

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        assert isinstance(message, Exchanged)
        self.answers.append((now, message))
        self._busy = False
        return NOTHING

    def wake(self, now: Nanoseconds) -> Effects:
        _, sizes = self._wanted.pop(0)
        self._busy = True
        self._sequence += 1
        exchange = Exchange(
            owner=self.name, ticket=self._sequence, operation="dispatch", sequence=self._sequence, bytes_to_each=sizes
        )
        return [Deliver(self._to, exchange)]

    def deadline(self) -> Nanoseconds | None:
        return self._wanted[0][0] if self._wanted and not self._busy else None


class Tap:
    """A flow wire, what was posted to it, and how many bytes of one node's port were out at once."""

    def __init__(self, wire: FlowWire) -> None:
        self.wire = wire
        self.posted: list[tuple[Nanoseconds, str, Verb]] = []
        self._out: dict[tuple[str, int], int] = {}
        self.most: dict[str, int] = {}

    def post(self, now: Nanoseconds, node: str, verb: Verb) -> None:
        self.posted.append((now, node, verb))
        if isinstance(verb, Write):
            self._out[node, verb.ticket] = len(verb.data)
            port = f"{node}.{verb.interface}"
            mine = [key for key in self._out if key[0] == node and key[1] >> 32 == verb.ticket >> 32]
            out = sum(self._out[key] for key in mine)
            self.most[port] = max(self.most.get(port, 0), out)
        self.wire.post(now, node, verb)

    def wake(self, now: Nanoseconds) -> list[tuple[str, Message]]:
        news = self.wire.wake(now)
        for node, message in news:
            if isinstance(message, Completion):
                self._out.pop((node, message.ticket), None)
        return news

    def deadline(self) -> Nanoseconds | None:
        return self.wire.deadline()


class Bench:
    """Two nodes with two engines each, all four one group."""

    def __init__(
        self, wanted: dict[int, Sequence[tuple[Nanoseconds, tuple[int, ...]]]], *, true_bytes: bool = False
    ) -> None:
        self.memories = {
            (node.name, region.name): PlainMemory(region.size) for node in PLAN.nodes for region in node.regions
        }
        self.tap = Tap(FlowWire(PLAN, self.memories))
        self.simulation = Simulation(self.tap)
        self.events: list[tuple[Nanoseconds, str, Event]] = []
        self.engines = [Engine(place, wanted.get(place, ())) for place in range(4)]
        self.collectives = [
            Collective(
                MEMBERS,
                place,
                memory=self.memories[member.node, f"tokens{member.engine}"],
                path_mtu=4096,
                scale=SCALE,
                true_bytes=true_bytes,
            )
            for place, member in enumerate(MEMBERS)
        ]
        for number, node in enumerate(("pe0", "pe1")):
            mine = slice(2 * number, 2 * number + 2)
            self.simulation.add_node(node, [Mail(), *self.collectives[mine], *self.engines[mine]], self._log(node))

    def _log(self, node: str) -> Callable[[Nanoseconds, Event], None]:
        return lambda now, event: self.events.append((now, node, event))

    def run(self) -> list[list[Exchanged]]:
        self.simulation.run()
        return [[answer for _, answer in engine.answers] for engine in self.engines]

    def finished(self) -> list[CollectiveFinished]:
        return [event for _, _, event in self.events if isinstance(event, CollectiveFinished)]


def alike(*turns: tuple[Nanoseconds, tuple[int, ...]]) -> dict[int, Sequence[tuple[Nanoseconds, tuple[int, ...]]]]:
    return dict.fromkeys(range(4), turns)


def test_a_collective_is_done_when_all_parts_are_there() -> None:
    bench = Bench(alike((0, (40_000, 40_000, 40_000, 40_000))))
    assert bench.run() == [[Exchanged(1)]] * 4
    assert len(bench.finished()) == 4
    event = bench.finished()[0]
    assert (event.operation, event.sequence, event.bytes, event.packets) == ("dispatch", 1, 3 * 40_000 * SCALE, 30)
    # 120 KB into each port at 12.5 bytes a nanosecond (bulk bytes are not scaled in this plan), and the latency.
    assert 120_000 / 12.5 < event.duration < 120_000 / 12.5 * 1.1 + 3_000


def test_packets_are_those_that_the_wire_carries_of_images_or_of_true_bytes() -> None:
    for true_bytes, carried in ((False, 40_000), (True, 40_000 * SCALE)):
        bench = Bench(alike((0, (40_000, 40_000, 40_000, 40_000))), true_bytes=true_bytes)
        bench.run()
        assert {event.packets for event in bench.finished()} == {3 * -(-carried // 4096)}
        assert {event.bytes for event in bench.finished()} == {3 * 40_000 * SCALE}


def test_a_part_is_a_write_with_its_letter_behind_it_on_the_collective_level() -> None:
    bench = Bench(alike((0, (0, 1000, 2000, 3000))))
    bench.run()
    mine = [verb for _, node, verb in bench.tap.posted if node == "pe0" and verb.interface == "cnic0"]
    assert [(type(verb), verb.peer) for verb in mine] == [
        (Write, "pe0.cnic1"), (Send, "pe0.cnic1"), (Write, "pe1.cnic0"), (Send, "pe1.cnic0"), (Write, "pe1.cnic1"),
        (Send, "pe1.cnic1"),
    ]  # fmt: skip
    assert {verb.service_level for _, _, verb in bench.tap.posted} == {COLLECTIVE}


def test_members_begin_at_the_peer_behind_them() -> None:
    bench = Bench(alike((0, (100, 100, 100, 100))))
    bench.run()
    firsts: dict[str, str] = {}
    for _, node, verb in bench.tap.posted:
        firsts.setdefault(f"{node}.{verb.interface}", verb.peer)
    assert firsts == {
        "pe0.cnic0": "pe0.cnic1", "pe0.cnic1": "pe1.cnic0", "pe1.cnic0": "pe1.cnic1", "pe1.cnic1": "pe0.cnic0",
    }  # fmt: skip


def test_nothing_to_send_is_said_too() -> None:
    bench = Bench(alike((0, (0, 0, 0, 0))))
    assert bench.run() == [[Exchanged(1)]] * 4
    assert not [verb for _, _, verb in bench.tap.posted if isinstance(verb, Write)]


def test_the_last_to_begin_holds_all_others_up() -> None:
    sizes = (5_000,) * 4
    bench = Bench({place: [(SECOND if place == 2 else 0, sizes)] for place in range(4)})
    bench.run()
    assert all(moment >= SECOND for engine in bench.engines for moment, _ in engine.answers)
    durations = {event.engine: event.duration for _, node, event in bench.events if node == "pe0"}  # type: ignore[attr-defined]
    assert all(duration > SECOND for duration in durations.values())


def test_a_fast_member_may_be_one_collective_ahead_and_no_more() -> None:
    """The parts of the next collective wait in a place of their own."""
    sizes = (30_000,) * 4
    bench = Bench({place: [(0, sizes), (0, sizes), (0, sizes), (0, sizes)] for place in range(4)})
    assert bench.run() == [[Exchanged(turn) for turn in (1, 2, 3, 4)]] * 4


def test_long_parts_are_cut_and_what_is_out_is_bounded() -> None:
    bench = Bench(alike((0, (2_000_000,) * 4)))
    assert bench.run() == [[Exchanged(1)]] * 4
    sizes = [len(verb.data) for _, node, verb in bench.tap.posted if isinstance(verb, Write) and node == "pe0"]
    assert max(sizes) == MESSAGE_BYTES
    assert sum(sizes) == 2 * 3 * 2_000_000
    assert max(bench.tap.most.values()) == OUT_BYTES


@given(
    st.lists(
        st.tuples(st.integers(0, 50_000), st.lists(st.integers(0, 300_000), min_size=16, max_size=16)),
        min_size=1, max_size=4,
    ),
    st.lists(st.integers(0, 20_000), min_size=4, max_size=4),
)  # fmt: skip
def test_any_sizes_at_any_times_are_done_once_each(turns: list[tuple[int, list[int]]], offsets: list[int]) -> None:
    bench = Bench(
        {
            place: [(moment + offsets[place], tuple(sizes[4 * place : 4 * place + 4])) for moment, sizes in turns]
            for place in range(4)
        }
    )
    assert bench.run() == [[Exchanged(turn + 1) for turn in range(len(turns))]] * 4
    sent = sum(event.bytes for event in bench.finished())
    own = sum(sizes[5 * place] for _, sizes in turns for place in range(4))
    assert sent == SCALE * (sum(sum(sizes) for _, sizes in turns) - own)


def test_a_silent_peer_ends_the_collective_for_all_who_send_to_it() -> None:
    bench = Bench(alike((0, (1000,) * 4)))
    bench.tap.wire.cut("pe1")
    answers = bench.run()
    assert [len(each) for each in answers] == [1] * 4
    assert {answer.failure for each in answers[:2] for answer in each} == {"pe1: retry_exceeded"}


def test_a_peer_that_never_joins_is_named_when_patience_ends() -> None:
    bench = Bench({place: [(0, (1000,) * 4)] for place in range(3)})
    answers = bench.run()
    assert answers[0] == [Exchanged(1, "no part from pe1's engine 1")]
    assert [moment for moment, _ in bench.engines[0].answers] == [PATIENCE]
    assert answers[3] == []


def test_a_part_that_is_not_what_its_letter_says_is_a_failure() -> None:
    bench = Bench({0: [(0, (100,) * 4)]})
    bench.simulation.run(until=1_000_000)
    effects = bench.collectives[0].receive(1_000_000, PartArrived(sequence=1, member=2, bytes=100))
    assert effects == (Deliver("engine0", Exchanged(1, "the part of pe1's engine 0 is not what it sent")),)


def test_what_it_cannot_take_changes_nothing() -> None:
    bench = Bench({0: [(0, (100,) * 4)]})
    collective = bench.collectives[0]
    exchange = Exchange(owner="engine0", ticket=1, operation="combine", sequence=1, bytes_to_each=(1, 1))
    for message in (exchange, Completion(7), PartArrived(sequence=1, member=4, bytes=0), Exchanged(1)):
        with pytest.raises(UnexpectedMessage):
            collective.receive(0, message)
    bench.simulation.run(until=1_000_000)
    again = Exchange(owner="engine0", ticket=2, operation="combine", sequence=2, bytes_to_each=(1,) * 4)
    with pytest.raises(UnexpectedMessage, match="busy"):
        collective.receive(1_000_000, again)
