"""FlowWire and PacketWire beside each other: exact times, agreement, lanes, determinism."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from testbed.machine import Completion, CompletionStatus, FetchAdd, Read, Send, Write
from testbed.network.flow_wire import MESSAGE_OVERHEAD, PACKET_OVERHEAD
from testbed.network.lanes import LaneTable
from testbed.network.wires import Faults, FlowWire, NoQueuePair, PacketWire, WireSettings
from testbed.network.wiring import DanglingQueuePair, MissingMemory
from testbed.units import GBIT_PER_S, MICROSECOND, serialization_time

Make = Callable[..., Any]
RATE = 200 * GBIT_PER_S
SLOW = 400_000_000


def test_flow_times_are_exact(make_driver: Make, make_star: Make) -> None:
    driver = make_driver(FlowWire, make_star("ab", rate=RATE), settings=WireSettings(latency=700))
    driver.post("a", Write(1, "b", remote=driver.remote(), data=bytes(10_000)))
    driver.run()
    carried = 10_000 + 3 * PACKET_OVERHEAD + MESSAGE_OVERHEAD
    assert driver.ends("a") == {1: serialization_time(carried, RATE) + 2 * 700}
    start = driver.now
    driver.post("a", FetchAdd(2, "b", remote=driver.remote(), addend=1))
    driver.run()
    assert driver.ends("a")[2] == start + 2 * 700


def test_packet_times_are_exact(make_driver: Make, make_star: Make) -> None:
    """Both ports of the path serialise the WRITE and its ACK."""
    driver = make_driver(PacketWire, make_star("ab", rate=RATE), settings=WireSettings(latency=700))
    driver.post("a", Write(1, "b", remote=driver.remote(), data=bytes(1000)))
    driver.run()
    request, acknowledgement = 1000 + PACKET_OVERHEAD + 16, PACKET_OVERHEAD + 4
    there = 2 * serialization_time(request, RATE) + 700
    back = 2 * serialization_time(acknowledgement, RATE) + 700
    assert driver.ends("a") == {1: there + back}


FAR = WireSettings(latency=10_000 * MICROSECOND, retransmission_timeout=4_096 << 20)


@pytest.mark.parametrize("wire", [FlowWire, PacketWire])
def test_a_round_trip_is_twice_the_latency_and_each_direction_has_the_rate(
    make_driver: Make, make_star: Make, wire: Any
) -> None:
    """Fault C11: 10 ms one way are 20 ms there and back; bytes of one direction cost the other nothing."""
    driver = make_driver(wire, make_star("ab", rate=RATE), settings=FAR)
    driver.post("a", FetchAdd(1, "b", remote=driver.remote(), addend=1))
    driver.run()
    assert driver.ends("a")[1] == pytest.approx(2 * FAR.latency, abs=100)
    size = 1 << 20
    took = {}
    for names in ("a", "ab"):
        driver = make_driver(wire, make_star("ab", rate=RATE), settings=FAR)
        for name in names:
            peer = "b" if name == "a" else "a"
            driver.post(name, Write(1, peer, remote=driver.remote(), data=bytes(size)))
        driver.run()
        took[names] = [driver.ends(name)[1] for name in names]
    alone = took["a"][0]
    # What the other direction adds is its acknowledgements, one for each few packets at most.
    assert took["ab"] == pytest.approx([alone, alone], abs=0.05 * serialization_time(size, RATE))


@pytest.mark.parametrize("wire", [FlowWire, PacketWire])
def test_latency_does_not_change_the_rate(make_driver: Make, make_star: Make, wire: Any) -> None:
    """Fault C12: twice the bytes take longer by the same, whether a link has 1 us or 200 ms."""
    longer = []
    for latency in (MICROSECOND, 200_000 * MICROSECOND):
        settings = WireSettings(latency=latency, retransmission_timeout=4_096 << 20)
        ends = []
        for size in (1 << 17, 1 << 18):
            driver = make_driver(wire, make_star("ab", rate=SLOW), settings=settings)
            driver.post("a", Write(1, "b", remote=driver.remote(), data=bytes(size)))
            driver.run()
            ends.append(driver.ends("a")[1])
        longer.append(ends[1] - ends[0])
    assert longer[1] == pytest.approx(longer[0], rel=0.001)
    assert longer[0] >= serialization_time(1 << 17, SLOW)


@pytest.mark.parametrize("size", [64, 4096, 65_536, 1 << 20])
@pytest.mark.parametrize("kind", [Write, Read, Send])
def test_both_wires_tell_the_same_time(make_driver: Make, make_star: Make, kind: Any, size: int) -> None:
    ends = []
    for wire in (FlowWire, PacketWire):
        driver = make_driver(wire, make_star("ab", rate=RATE))
        arguments: dict[str, Any] = {"data": bytes(size)} if kind is not Read else {"length": size}
        if kind is not Send:
            arguments["remote"] = driver.remote()
        driver.post("a", kind(1, "b", **arguments))
        driver.run()
        ends.append(driver.ends("a")[1])
    # The packet wire's second port holds the last packet once more, small answers are not free there, and each
    # packet's time is rounded up to whole nanoseconds.
    assert 0 <= ends[1] - ends[0] <= 2 * serialization_time(4200, RATE) + 50 + size // 4096


def test_a_queue_pair_sends_one_message_after_another_and_two_share(make_driver: Make, make_star: Make) -> None:
    plan = make_star("abc", rate=RATE)
    driver = make_driver(FlowWire, plan, settings=WireSettings(latency=0))
    size = 1 << 20
    for ticket in (1, 2):
        driver.post("a", Write(ticket, "b", remote=driver.remote(), data=bytes(size)))
    driver.post("c", Write(1, "b", remote=driver.remote(), data=bytes(size)))
    driver.run()
    alone = serialization_time(size + 256 * PACKET_OVERHEAD + MESSAGE_OVERHEAD, RATE)
    # a's first and c's share b's port for twice the time, then a's second has it alone.
    assert driver.ends("a") == pytest.approx({1: 2 * alone, 2: 3 * alone}, abs=3)
    assert driver.ends("c") == pytest.approx({1: 2 * alone}, abs=3)


def burst_times(driver: Any, level: int) -> list[int]:
    """Time of each of ten 16 KiB WRITEs from a to b at service level 0, 5 ms apart, while c sends at `level`."""
    times = []
    tickets = iter(range(1, 1000))
    for ticket in range(10):
        start = driver.now
        for _ in range(4 if level >= 0 else 0):
            driver.post("c", Write(next(tickets), "b", level, remote=driver.remote(65536), data=bytes(262_144)))
        driver.run(start + 2_000 * MICROSECOND)
        posted = driver.now
        driver.post("a", Write(ticket, "b", 0, remote=driver.remote(), data=bytes(16_384)))
        driver.run(start + 60_000 * MICROSECOND)
        times.append(driver.ends("a")[ticket] - posted)
    return times


@pytest.mark.parametrize("wire", [FlowWire, PacketWire])
def test_a_high_lane_does_not_feel_a_low_one(make_driver: Make, make_star: Make, wire: Any) -> None:
    """The experiment of platform.md §3: 16 KiB at 400 Mbit/s take four packet times alone and beside a low lane."""
    packet = serialization_time(4154, SLOW)

    def worst(level: int) -> int:
        plan = make_star("abc", rate=SLOW, lanes=LaneTable(), levels=(0, 2))
        driver = make_driver(wire, plan, settings=WireSettings(retransmission_timeout=10**10))
        return max(burst_times(driver, level))

    alone, low_lane, same_lane = worst(-1), worst(2), worst(0)
    assert 4 * packet < alone < 5.2 * packet + 2 * MICROSECOND + 2 * packet / 40
    # At most the packet that is on the link, and rarely the one low packet of the high limit.
    assert low_lane <= alone + 2 * packet
    # One queue pair of each: two share the port, so the burst takes about twice as long.
    assert same_lane > 1.7 * alone


@pytest.mark.parametrize(
    ("table", "levels"),
    [(LaneTable(vlarb_high="0:64,1:128,3:192"), (0, 1, 3)), (LaneTable(), (0, 1)), (LaneTable(high_limit=6), (0, 2))],
)
def test_lanes_share_alike_on_both_wires(
    make_driver: Make, make_star: Make, table: LaneTable, levels: tuple[int, ...]
) -> None:
    """Backlogged senders, one a lane, towards one receiver: bytes landed in 20 ms of a 10 Gbit/s port."""
    landed = []
    for wire in (FlowWire, PacketWire):
        plan = make_star("abcd", rate=10 * GBIT_PER_S, lanes=table, levels=levels)
        driver = make_driver(wire, plan, settings=WireSettings(retransmission_timeout=10**11))
        for sender, level in zip("bcd", levels, strict=False):
            for ticket in range(500):
                driver.post(sender, Write(ticket, "a", level, remote=driver.remote(), data=bytes(65_536)))
        driver.run(20_000 * MICROSECOND)
        done = [len(driver.ends(sender)) for sender, _ in zip("bcd", levels, strict=False)]
        landed.append([count / sum(done) for count in done])
    assert landed[0] == pytest.approx(landed[1], abs=0.02)


def test_without_a_limit_a_low_lane_starves_and_ends_in_an_error(make_driver: Make, make_star: Make) -> None:
    plan = make_star("abc", rate=GBIT_PER_S, lanes=LaneTable(high_limit=255), levels=(0, 2))
    driver = make_driver(PacketWire, plan, settings=WireSettings(retransmission_timeout=200 * MICROSECOND))
    for ticket in range(100):
        driver.post("b", Write(ticket, "a", 0, remote=driver.remote(), data=bytes(65_536)))
    driver.run(100 * MICROSECOND)
    driver.post("c", Write(1, "a", 2, remote=driver.remote(), data=bytes(65_536)))
    driver.run()
    statuses = {message.status for _, node, message in driver.told if node == "c"}
    assert statuses == {CompletionStatus.RETRY_EXCEEDED}


@pytest.mark.parametrize("wire", [FlowWire, PacketWire])
def test_the_same_twice_is_the_same(make_driver: Make, make_star: Make, wire: Any) -> None:
    def run() -> list[Any]:
        arguments: dict[str, Any] = {}
        if wire is PacketWire:
            bad = Faults(loss=0.02, duplication=0.1, reordering=0.1, corruption=0.02)
            arguments = {"rng": Random(5), "faults": bad}
        driver = make_driver(wire, make_star("abc", rate=RATE), **arguments)
        random = Random(9)
        for ticket in range(200):
            sender, peer = random.sample("abc", 2)
            place = driver.remote(8 * random.randrange(1000))
            driver.post(sender, random.choice([
                Write(ticket, peer, remote=place, data=random.randbytes(random.randrange(9000))),
                Read(ticket, peer, remote=place, length=random.randrange(9000)),
                FetchAdd(ticket, peer, remote=place, addend=ticket),
                Send(ticket, peer, data=random.randbytes(30)),
            ]))  # fmt: skip
            driver.run(driver.now + random.randrange(1500))
        driver.run()
        assert sum(isinstance(message, Completion) for _, _, message in driver.told) == 200
        return driver.told

    assert run() == run()


@pytest.mark.parametrize("wire", [FlowWire, PacketWire])
def test_a_verb_takes_the_queue_pair_of_its_level_or_else_the_first(
    make_driver: Make, make_star: Make, wire: Any
) -> None:
    driver = make_driver(wire, make_star("ab", rate=RATE, levels=(1, 3)))
    driver.post("a", Write(1, "b", 3, remote=driver.remote(), data=b"x" * 100_000))
    driver.post("a", Write(2, "b", 1, remote=driver.remote(), data=b"y"))
    driver.post("a", Write(3, "b", 0, remote=driver.remote(), data=b"z"))
    driver.run()
    ends = driver.ends("a")
    assert ends[2] <= ends[3] < ends[1]


@pytest.mark.parametrize("wire", [FlowWire, PacketWire])
def test_what_does_not_fit_the_plan_is_named(make_driver: Make, make_star: Make, wire: Any) -> None:
    plan = make_star("ab", rate=RATE)
    driver = make_driver(wire, plan)
    with pytest.raises(NoQueuePair, match="a has no queue pair to 'c'; it has some to b"):
        driver.post("a", Send(1, "c", data=b""))
    with pytest.raises(NoQueuePair, match="nowhere has no queue pair to 'b'; it has some to nobody"):
        driver.post("nowhere", Send(1, "b", data=b""))
    with pytest.raises(ValueError, match="Read address is -0x1"):
        driver.post("a", Read(1, "b", remote=driver.remote(-driver.remote().address - 1), length=1))
    with pytest.raises(MissingMemory, match="the plan gives a a region 'memory'"):
        wire(plan, {})
    half = replace(plan, nodes=plan.nodes[:1])
    with pytest.raises(DanglingQueuePair, match="queue pair 0x10100 of a ends at 0x20000 of b, which has none such"):
        wire(half, driver.memories)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"interface": "front0"}, "queue pair 0x10100 of a is on front0; RoCE ports are cnic0"),
        ({"peer_address": "10.61.0.9"}, "has peer address 10.61.0.9, but its other end says 10.61.0.2"),
        ({"initial_psn": 7}, "has initial PSN 7, but its other end says 1"),
        ({"number": 9}, "queue pair 0x9 of a has number 9, but its other end says 65792"),
    ],
)
def test_ends_that_do_not_meet_are_named_at_once(
    make_driver: Make, make_star: Make, changes: dict[str, Any], sentence: str
) -> None:
    """Known fault D7: a wrong address made everything hang."""
    plan = make_star("ab", rate=RATE)
    a, b = plan.nodes
    crooked = replace(a, queue_pairs=(replace(a.queue_pairs[0], **changes),))
    for wire in (FlowWire, PacketWire):
        with pytest.raises(DanglingQueuePair, match=sentence):
            make_driver(wire, replace(plan, nodes=(crooked, b)))


def test_a_port_tells_what_it_carried(make_driver: Make, make_star: Make) -> None:
    driver = make_driver(PacketWire, make_star("ab", rate=RATE, lanes=LaneTable(), levels=(1,)))
    driver.post("a", Write(1, "b", 1, remote=driver.remote(), data=bytes(8192)))
    driver.run()
    uplink, _ = driver.wire.ports("a", "cnic0")
    _, downlink = driver.wire.ports("b", "cnic0")
    expected = [0, 8192 + 2 * PACKET_OVERHEAD + 16, 0, 0]
    assert uplink.sent_bytes == downlink.sent_bytes == expected
    assert driver.wire.counters("a")["sent"] == 2
    assert driver.wire.counters("b")["received"] == 2
    with pytest.raises(KeyError):
        driver.wire.ports("a", "cnic1")


def test_a_read_sees_the_moment_of_its_arrival_on_the_flow_wire(make_driver: Make, make_star: Make) -> None:
    driver = make_driver(FlowWire, make_star("ab", rate=GBIT_PER_S), settings=WireSettings(latency=1000))
    memory = driver.memories["b", "memory"]
    driver.post("a", Read(1, "b", remote=driver.remote(), length=1000))
    driver.run(1000)
    memory.view[:1000] = b"\x01" * 1000
    driver.run()
    assert [message.data for _, _, message in driver.told] == [bytes(1000)]


@pytest.mark.parametrize("wire", [FlowWire, PacketWire])
def test_nothing_behind_a_local_fault_takes_effect(make_driver: Make, make_star: Make, wire: Any) -> None:
    driver = make_driver(wire, make_star("ab", rate=RATE))
    driver.post("a", FetchAdd(1, "b", remote=driver.remote(), addend=1))
    driver.post("a", Read(2, "b", remote=driver.remote(), length=(1 << 31) + 1))
    driver.post("a", FetchAdd(3, "b", remote=driver.remote(), addend=1))
    driver.run()
    assert [(message.ticket, message.status) for _, _, message in driver.told] == [
        (1, CompletionStatus.SUCCESS), (2, CompletionStatus.LOCAL_LENGTH_ERROR), (3, CompletionStatus.FLUSHED),
    ]  # fmt: skip
    assert driver.memories["b", "memory"].load(0) == 1
    # The peer has seen nothing of it.
    driver.post("b", FetchAdd(1, "a", remote=driver.remote(), addend=1))
    driver.run()
    assert driver.told[-1][2].status is CompletionStatus.RETRY_EXCEEDED


def test_a_failure_frees_the_ports_it_was_using(make_driver: Make, make_star: Make) -> None:
    driver = make_driver(FlowWire, make_star("abc", rate=GBIT_PER_S), settings=WireSettings(latency=1000))
    size = 1 << 20
    driver.post("a", Read(1, "b", remote=driver.remote(1 << 40), length=8))
    driver.post("a", Write(2, "b", remote=driver.remote(), data=bytes([1]) * size))
    driver.post("c", Write(1, "b", remote=driver.remote(), data=bytes([2]) * size))
    driver.run()
    alone = serialization_time(size + 256 * PACKET_OVERHEAD + MESSAGE_OVERHEAD, GBIT_PER_S)
    # a's WRITE has half the port until the NAK is back after 2 µs.
    assert driver.ends("c")[1] == pytest.approx(alone + 1000 + 2000, abs=5)
    assert driver.ends("a") == {1: 2000, 2: 2000}
    assert driver.memories["b", "memory"].view[:size] == bytes([2]) * size
