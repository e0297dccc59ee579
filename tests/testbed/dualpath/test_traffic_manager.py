"""The traffic manager on a real wire: what lands where, what one doorbell covers, what is bounded, how moves end."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.clocks.simulated import Simulation
from testbed.dualpath.blocks import BlockShape
from testbed.dualpath.local_messages import Move, Moved, Piece, Pull, Pulled
from testbed.dualpath.parameters import DualPathParameters
from testbed.dualpath.traffic_manager import TrafficLimits, TrafficManager
from testbed.events.kv_events import TransferFinished
from testbed.events.schema import VerbFailed
from testbed.machine import (
    NOTHING,
    Completion,
    CompletionStatus,
    Deliver,
    Effects,
    Event,
    Message,
    Read,
    UnexpectedMessage,
    Verb,
    Write,
)
from testbed.network.memory_region import PlainMemory
from testbed.network.wires import FlowWire
from testbed.units import MICROSECOND, Nanoseconds
from tests.testbed.dualpath.small_plans import engine_nodes, plan_of, remote

SHAPE = BlockShape(layers=4, tokens=8, token_layer_bytes=64, scale=4)
"""Layer Blocks of 128 bytes of image, 512 true ones."""


HERE, THERE = "pe0", "de0"


class Asker:
    """A machine that asks what it was given, at its times, and keeps what it is answered and when."""

    name = "asker"

    def __init__(self, questions: list[tuple[Nanoseconds, Move | Pull]]) -> None:
        self.questions = questions
        self.answers: list[tuple[Nanoseconds, Moved | Pulled]] = []

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        assert isinstance(message, Moved | Pulled)
        self.answers.append((now, message))
        return NOTHING

    def wake(self, now: Nanoseconds) -> Effects:
        due = [question for moment, question in self.questions if moment <= now]
        self.questions = [(moment, question) for moment, question in self.questions if moment > now]
        return [Deliver("traffic", question) for question in due]

    def deadline(self) -> Nanoseconds | None:
        return min((moment for moment, _ in self.questions), default=None)


class Tap:
    """A flow wire, and what was posted to it and how much was out at once."""

    def __init__(self, wire: FlowWire) -> None:
        self._wire = wire
        self.posted: list[tuple[Nanoseconds, Verb]] = []
        self.out: dict[int, int] = {}
        self.most_bytes = 0
        self.most_messages = 0

    def post(self, now: Nanoseconds, node: str, verb: Verb) -> None:
        self.posted.append((now, verb))
        assert isinstance(verb, Write | Read)
        self.out[verb.ticket] = len(verb.data) if isinstance(verb, Write) else verb.length
        self.most_bytes = max(self.most_bytes, sum(self.out.values()))
        self.most_messages = max(self.most_messages, len(self.out))
        self._wire.post(now, node, verb)

    def wake(self, now: Nanoseconds) -> list[tuple[str, Message]]:
        news = self._wire.wake(now)
        for _, message in news:
            assert isinstance(message, Completion)
            del self.out[message.ticket]
        return news

    def deadline(self) -> Nanoseconds | None:
        return self._wire.deadline()


PLAN = plan_of(engine_nodes(HERE, THERE), byte_scale=SHAPE.scale)


class Bench:
    """Two nodes on a flow wire; the first has a traffic manager and an asker."""

    def __init__(
        self,
        *questions: Move | Pull | tuple[Nanoseconds, Move | Pull],
        parameters: DualPathParameters | None = None,
        limits: TrafficLimits | None = None,
    ) -> None:
        self.memories = {
            (node.name, region.name): PlainMemory(region.size) for node in PLAN.nodes for region in node.regions
        }
        for place, memory in enumerate(self.memories.values()):
            memory.view[:] = bytes((place * 31 + number) % 251 for number in range(4096)) * (memory.size // 4096)
        self.tap = Tap(FlowWire(PLAN, self.memories))
        self.simulation = Simulation(self.tap)
        self.events: list[tuple[Nanoseconds, Event]] = []
        self.asker = Asker([question if isinstance(question, tuple) else (0, question) for question in questions])
        self.traffic = TrafficManager(
            HERE,
            parameters or DualPathParameters(),
            shape=SHAPE,
            memories={name: memory for (node, name), memory in self.memories.items() if node == HERE},
            regions=PLAN.node(HERE).regions,
            limits=limits,
        )
        self.simulation.add_node(HERE, [self.traffic, self.asker], lambda now, event: self.events.append((now, event)))
        self.simulation.add_node(THERE, [Asker([])], lambda *_: None)

    def run(self) -> list[tuple[Nanoseconds, Moved | Pulled]]:
        self.simulation.run()
        return self.asker.answers

    def bytes_at(self, node: str, region: str, offset: int, length: int) -> bytes:
        return bytes(self.memories[node, region].view[offset : offset + length])

    def finished(self) -> list[TransferFinished]:
        return [event for _, event in self.events if isinstance(event, TransferFinished)]


def move(
    *pieces: Piece,
    ticket: int = 1,
    peer: str = f"{THERE}.cnic0",
    region: str = "buffer",
    offset: int = 0,
    hop: str = "pe5-7",
    layer: int = 0,
    interface: str = "cnic0",
    data: bytes = b"",
) -> Move:
    return Move(
        owner="asker", ticket=ticket, hop=hop, request="a.1", layer=layer, interface=interface, peer=peer,
        remote=remote(PLAN, peer.partition(".")[0], region, offset), pieces=pieces, data=data,
    )  # fmt: skip


def pull(length: int, *, ticket: int = 1, offset: int = 0) -> Pull:
    return Pull(
        owner="asker", ticket=ticket, hop="persist-write", request="a.1", interface="cnic0", peer=f"{THERE}.cnic1",
        remote=remote(PLAN, THERE, "buffer", offset), length=length,
    )  # fmt: skip


def test_pieces_are_gathered_into_one_write_and_land_in_order() -> None:
    bench = Bench(move(Piece("hbm0", 256, 128), Piece("hbm1", 0, 128), Piece("hbm0", 128, 128), offset=512))
    expected = (
        bench.bytes_at(HERE, "hbm0", 256, 128) + bench.bytes_at(HERE, "hbm1", 0, 128)
        + bench.bytes_at(HERE, "hbm0", 128, 128)
    )  # fmt: skip
    assert [answer for _, answer in bench.run()] == [Moved(1)]
    assert bench.bytes_at(THERE, "buffer", 512, 384) == expected
    ((_, verb),) = bench.tap.posted
    assert isinstance(verb, Write)
    assert (verb.service_level, verb.interface, verb.peer, verb.source) == (2, "cnic0", "de0.cnic0", "hbm0")


def test_the_event_has_true_bytes_blocks_and_the_resources_of_the_hop() -> None:
    bench = Bench(move(Piece("hbm0", 0, 3 * SHAPE.layer_image)))
    ((moment, _),) = bench.run()
    ((told, event),) = bench.events
    assert event == TransferFinished(
        turn="a.1", hop="pe5-7", layer=0, source="pe0.cnic0", target="de0.cnic0",
        bytes=3 * SHAPE.layer_bytes, blocks=3, began=1 * MICROSECOND,
        crossed=("pe0.cnic0.cnic_read", "pe0.cnic0.wire", "de0.cnic0.wire", "de0.cnic0.cnic_write", "de0.dram"),
    )  # fmt: skip
    assert told == moment


def test_bytes_that_lie_in_no_region_are_written_too() -> None:
    bench = Bench(move(data=b"k" * 300, hop="pe1-2", layer=-1))
    assert [answer for _, answer in bench.run()] == [Moved(1)]
    assert bench.bytes_at(THERE, "buffer", 0, 300) == b"k" * 300


def test_a_pull_brings_the_peers_bytes() -> None:
    bench = Bench(pull(700, offset=64))
    expected = bench.bytes_at(THERE, "buffer", 64, 700)
    assert [answer for _, answer in bench.run()] == [Pulled(1, expected)]
    (event,) = bench.finished()
    assert (event.source, event.target, event.bytes) == ("de0.cnic1", "pe0.cnic0", 700 * SHAPE.scale)


@given(
    pieces=st.lists(
        st.tuples(st.sampled_from(["hbm0", "hbm1"]), st.integers(0, 4000), st.integers(1, 900)), min_size=1
    ),
    cut=st.integers(1, 1000),
)
def test_a_move_that_is_cut_lands_as_if_it_were_whole(pieces: list[tuple[str, int, int]], cut: int) -> None:
    bench = Bench(move(*(Piece(*piece) for piece in pieces)), limits=TrafficLimits(message_bytes=cut, pair_bytes=cut))
    expected = b"".join(bench.bytes_at(HERE, *piece) for piece in pieces)
    assert [answer for _, answer in bench.run()] == [Moved(1)]
    assert bench.bytes_at(THERE, "buffer", 0, len(expected)) == expected
    assert len(bench.tap.posted) == -(-len(expected) // cut)
    (event,) = bench.finished()
    assert event.bytes == len(expected) * SHAPE.scale


def test_a_pull_that_is_cut_is_put_together_again() -> None:
    bench = Bench(pull(1000), limits=TrafficLimits(message_bytes=300))
    expected = bench.bytes_at(THERE, "buffer", 0, 1000)
    assert [answer for _, answer in bench.run()] == [Pulled(1, expected)]
    assert [verb.length for _, verb in bench.tap.posted if isinstance(verb, Read)] == [300, 300, 300, 100]


def test_writes_that_wait_share_a_doorbell() -> None:
    """A doorbell covers 16 messages and takes one microsecond: the 33rd goes with the third."""
    questions = [move(Piece("hbm0", 0, 64), ticket=ticket, offset=64 * ticket) for ticket in range(33)]
    bench = Bench(*questions, limits=TrafficLimits(pair_messages=64))
    bench.run()
    times = [moment for moment, _ in bench.tap.posted]
    assert times == [1 * MICROSECOND] * 16 + [2 * MICROSECOND] * 16 + [3 * MICROSECOND]


def test_without_batching_each_write_pays() -> None:
    questions = [move(Piece("hbm0", 0, 64), ticket=ticket, offset=64 * ticket) for ticket in range(4)]
    bench = Bench(*questions, parameters=DualPathParameters(doorbell_batch=1, submit_time=700))
    bench.run()
    assert [moment for moment, _ in bench.tap.posted] == [700, 1400, 2100, 2800]


def test_ports_have_doorbells_of_their_own() -> None:
    bench = Bench(
        move(Piece("hbm0", 0, 64)),
        move(Piece("hbm1", 0, 64), ticket=2, interface="cnic1", peer="de0.cnic1"),
        parameters=DualPathParameters(doorbell_batch=1),
    )
    bench.run()
    assert [moment for moment, _ in bench.tap.posted] == [1 * MICROSECOND] * 2


def test_submitting_can_cost_nothing() -> None:
    bench = Bench(move(Piece("hbm0", 0, 64)), parameters=DualPathParameters(submit_time=0))
    assert [answer for _, answer in bench.run()] == [Moved(1)]
    assert [moment for moment, _ in bench.tap.posted] == [0]


def test_what_is_out_is_bounded_and_pairs_take_turns() -> None:
    limits = TrafficLimits(message_bytes=1000, pair_bytes=2000, pair_messages=8, node_bytes=3000)
    bench = Bench(
        move(Piece("hbm0", 0, 9_000)),
        move(Piece("hbm1", 0, 9_000), ticket=2, peer="de0.cnic1", region="hbm0"),
        limits=limits,
    )
    assert {answer for _, answer in bench.run()} == {Moved(1), Moved(2)}
    assert bench.tap.most_bytes == 3000
    assert {verb.peer for _, verb in bench.tap.posted[:3]} == {"de0.cnic0", "de0.cnic1"}
    assert bench.bytes_at(THERE, "buffer", 0, 9000) == bench.bytes_at(HERE, "hbm0", 0, 9000)
    assert bench.bytes_at(THERE, "hbm0", 0, 9000) == bench.bytes_at(HERE, "hbm1", 0, 9000)


def test_few_messages_of_a_pair_are_out_at_once() -> None:
    questions = [move(Piece("hbm0", 0, 64), ticket=ticket, offset=64 * ticket) for ticket in range(20)]
    bench = Bench(*questions, limits=TrafficLimits(pair_messages=3))
    assert len(bench.run()) == 20
    assert bench.tap.most_messages == 3


def test_a_refused_write_ends_the_move_once_with_its_status() -> None:
    """A pair that fails takes its later moves along; each is answered, none twice."""
    last = PLAN.node(THERE).regions[0].size
    bench = Bench(
        move(Piece("hbm0", 0, 4000), offset=last - 2000),
        move(Piece("hbm0", 0, 64), ticket=2),
        limits=TrafficLimits(message_bytes=1000, pair_bytes=1000),
    )
    assert [answer for _, answer in bench.run()] == [Moved(1, "remote_access_error"), Moved(2, "flushed")]
    failures = [event for _, event in bench.events if isinstance(event, VerbFailed)]
    assert [(event.verb, event.status) for event in failures] == [
        ("write", "remote_access_error"),
        ("write", "flushed"),
    ]
    assert not bench.finished()


def test_a_refused_read_ends_the_pull() -> None:
    bench = Bench(pull(4000, offset=PLAN.node(THERE).regions[0].size - 100))
    assert [answer for _, answer in bench.run()] == [Pulled(1, b"", "remote_access_error")]


def test_a_move_of_nothing_is_answered_at_once() -> None:
    bench = Bench(move())
    assert bench.run() == [(0, Moved(1))]
    assert not bench.events


def test_host_device_copies_go_by_loop_back() -> None:
    bench = Bench(move(Piece("buffer", 0, 256), peer="pe0.cnic0", region="hbm0", offset=64, hop="pe3-4"))
    bench.run()
    assert bench.bytes_at(HERE, "hbm0", 64, 256) == bench.bytes_at(HERE, "buffer", 0, 256)
    (event,) = bench.finished()
    assert event.crossed == ("pe0.dram", "pe0.cnic0.cnic_read", "pe0.cnic0.cnic_write")


COPY_ENGINE = DualPathParameters(copy="copy_engine", copy_engine_time=6_000, pcie_gbyte_s=50.0)


def test_the_copy_engine_passes_the_nic_by() -> None:
    """Each piece is a copy of its own, 6 us to submit; then 2,048 true bytes at 50 GB/s take 41 ns."""
    pieces = [Piece("buffer", 0, 256), Piece("buffer", 512, 256)]
    bench = Bench(
        move(*pieces, peer="pe0.cnic0", region="hbm0", hop="pe3-4"),
        move(Piece("buffer", 0, 128), ticket=2, peer="pe0.cnic0", region="hbm0", offset=1024, hop="pe3-4"),
        move(Piece("hbm1", 0, 128), ticket=3),
        parameters=COPY_ENGINE,
    )
    answers = {answer.ticket: moment for moment, answer in bench.run()}
    assert (answers[1], answers[2]) == (12_000 + 41, 18_000 + 41 + 11)
    assert [verb.peer for _, verb in bench.tap.posted] == ["de0.cnic0"]
    assert bench.bytes_at(HERE, "hbm0", 0, 256) == bench.bytes_at(HERE, "buffer", 0, 256)
    assert bench.bytes_at(HERE, "hbm0", 256, 256) == bench.bytes_at(HERE, "buffer", 512, 256)
    assert bench.bytes_at(HERE, "hbm0", 1024, 128) == bench.bytes_at(HERE, "buffer", 0, 128)
    copies = [event for event in bench.finished() if event.hop == "pe3-4"]
    assert [event.crossed for event in copies] == [("pe0.dram", "pe0.cnic0.copy_engine", "pe0.cnic0.cnic_write")] * 2
    assert [event.began for event in copies] == [0, 12_041]


def test_a_copy_beyond_its_region_is_a_failure() -> None:
    beyond = PLAN.node(HERE).regions[1].size - 64
    bench = Bench(move(Piece("buffer", 0, 128), peer="pe0.cnic0", region="hbm0", offset=beyond), parameters=COPY_ENGINE)
    assert [answer for _, answer in bench.run()] == [Moved(1, "local_protection_error")]


def test_what_it_cannot_take_changes_nothing() -> None:
    bench = Bench()
    for message in (Completion(5), Completion((2 << 40) + 1, CompletionStatus.FLUSHED), Moved(1)):
        with pytest.raises(UnexpectedMessage):
            bench.traffic.receive(0, message)
    assert bench.traffic.deadline() is None


@given(
    sizes=st.lists(st.integers(1, 3000), min_size=1, max_size=12),
    batch=st.integers(1, 4),
    pair_bytes=st.integers(1, 3000),
)
def test_every_move_is_answered_once(sizes: list[int], batch: int, pair_bytes: int) -> None:
    questions = [
        move(Piece("hbm0", 0, size), ticket=ticket, peer=f"de0.cnic{ticket % 2}") for ticket, size in enumerate(sizes)
    ]
    bench = Bench(
        *questions,
        parameters=DualPathParameters(doorbell_batch=batch),
        limits=TrafficLimits(message_bytes=500, pair_bytes=pair_bytes, node_bytes=1500),
    )
    answers = bench.run()
    assert sorted(answer.ticket for _, answer in answers) == list(range(len(sizes)))
    assert bench.tap.most_bytes <= 1500
