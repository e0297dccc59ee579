"""Lane tables as HTB: the arithmetic, what the kernel has, and the shares that come out."""

from __future__ import annotations

import json
import socket
import sys
import time
from collections.abc import Callable, Collection, Iterator

import bench_plans
import pytest

from testbed.experiment.plan import Plan
from testbed.network.arbiter import UNLIMITED
from testbed.network.lanes import LaneTable
from testbed.network.traffic_classes import TrafficClasses
from topologies import lane_bench, lane_queues, lanes
from topologies.fabric import Fabric, SwitchPort
from topologies.lane_bench import exact_shares
from topologies.lane_queues import LEAVES, Leaf, PortQueues
from topologies.lanes import LEAF_LIMIT
from topologies.namespaces import network_of
from topologies.naming import Names
from topologies.programs import run
from topologies.queues import QueueReader

RATE = 100_000_000
FRAME = 4154


def leaves_of(table: LaneTable, frame: int = FRAME) -> dict[int, Leaf]:
    return {leaf.lane: leaf for leaf in lane_queues.leaves(table, RATE, frame)}


def test_the_papers_table_as_leaves() -> None:
    leaves = leaves_of(LaneTable())
    assert {lane: leaf.priority for lane, leaf in leaves.items()} == {0: 0, 1: 0, 2: 1, 3: 0}
    # An entry of 192 sends three packets of 65 units, one of 64 sends one.
    assert {lane: leaf.quantum / FRAME for lane, leaf in leaves.items()} == {0: 3, 1: 3, 2: 1, 3: 3}
    # 237 packets of the high table for each low packet, of which lane 2 has one in ten.
    assert leaves[2].rate_bits_per_s == pytest.approx(RATE / 2380, abs=1)


def test_a_quantum_is_a_whole_number_of_the_lanes_own_frames() -> None:
    leaves = leaves_of(LaneTable(frame_bytes="0:1082,3:106"))
    assert leaves[0].quantum == 12 * 1082  # 17 units each
    assert leaves[1].quantum == 3 * FRAME
    assert leaves[3].quantum == 96 * 106  # 2 units each


def test_weights_below_a_packet_are_one_packet() -> None:
    leaves = leaves_of(LaneTable(vlarb_high="0:1,1:2,3:130", vlarb_low="2:1"))
    assert [leaves[lane].quantum / FRAME for lane in (0, 1, 3)] == [1, 1, 2]


def test_a_repeated_entry_adds_up() -> None:
    table = LaneTable(max_vls=2, vlarb_high="0:64,1:64,0:64", vlarb_low="0:0", sl2vl="0,1")
    assert [leaf.quantum / FRAME for leaf in leaves_of(table).values()] == [2, 1]


def test_without_a_high_table_the_low_one_has_the_link() -> None:
    found = leaves_of(LaneTable(max_vls=2, vlarb_high="0:0", vlarb_low="0:64,1:192", sl2vl="0,1"))
    assert [leaf.priority for leaf in found.values()] == [0, 0]
    assert found[1].quantum == 3 * found[0].quantum


def test_an_unlimited_high_table_may_starve_the_low_one() -> None:
    assert leaves_of(LaneTable(high_limit=UNLIMITED))[2].rate_bits_per_s == lane_queues.LEAF_RATE


@pytest.mark.parametrize(
    ("table", "active", "frames"),
    [
        (LaneTable(), (0, 1, 2, 3), {}),
        (LaneTable(), (0, 2), {}),
        (LaneTable(high_limit=6), (0, 1, 2), {}),
        (LaneTable(high_limit=10, frame_bytes="2:1082"), (0, 1, 2, 3), {2: 1082}),
        (LaneTable(high_limit=0, vlarb_low="2:200"), (0, 2), {}),
    ],
)
def test_a_low_lanes_floor_is_the_exact_arbiters(
    table: LaneTable, active: tuple[int, ...], frames: dict[int, int]
) -> None:
    sizes = {lane: frames.get(lane, FRAME) for lane in range(4)}
    floor = lane_queues.low_floor(table, 2, RATE, sizes, active)
    shares = exact_shares(table, {lane: sizes[lane] for lane in active})
    assert 100 * floor / RATE == pytest.approx(shares[2], rel=0.02)


def test_the_frame_of_a_full_packet() -> None:
    sizes = [lane_queues.full_frame(bench_plans.fabrics(mtu)[1]) for mtu in (1500, 4200, 9000)]
    assert sizes == [1082, 4154, 4154]


# --- in the kernel -------------------------------------------------------------------------------------------------

Build = Callable[..., Fabric]
in_kernel = pytest.mark.usefixtures("unchanged_host")


@pytest.fixture
def build(label: str) -> Iterator[Build]:
    made: list[Fabric] = []

    def make(table: LaneTable | None = None, mtu: int = 4200, **changes: object) -> Fabric:
        for other in made:
            other.tear_down()
        plan: Plan = bench_plans.demo_plan(label, fabrics=bench_plans.fabrics(mtu, lanes=table), **changes)
        fabric = Fabric(plan, Names(plan), {}, lambda _pid, _what: None)
        made.append(fabric)
        fabric.build()
        return fabric

    yield make
    for fabric in made:
        fabric.tear_down()


def to_gpu(fabric: Fabric) -> SwitchPort:
    return next(port for port in fabric.ports() if port.name == "gpu0.cnic0")


@pytest.mark.root
@in_kernel
def test_what_was_set_is_what_the_kernel_has(build: Build) -> None:
    fabric = build()
    for port in fabric.ports():
        classes = lanes.apply(port, lane_queues.queues_of(port))
        assert classes[0].startswith("link 1:1 rate 100000000 ceil 100000000")
        assert len(classes) == (5 if port.fabric.roce else 2)


@pytest.mark.root
@in_kernel
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("qdisc replace dev {} root handle 5: tbf rate 10mbit burst 5000 latency 10ms", "the root is tbf, planned htb"),
        ("class add dev {} parent 1:1 classid 1:99 htb rate 1mbit", "1:99 are missing or foreign"),
        ("class change dev {} parent 1:1 classid 1:11 htb rate 8kbit ceil 50mbit quantum 12288", "class 1:11 is Htb"),
        ("class change dev {} classid 1:1 htb rate 200mbit burst 4000 cburst 4000", "class 1:1 is Htb"),
        ("filter del dev {} parent 1: protocol ip prio 1", "16 filters missing"),
        ("filter add dev {} parent 1: protocol ip prio 5 u32 match ip tos 0 0xfc flowid 1:11", "1 filters foreign"),
        ("qdisc replace dev {} parent 1:11 handle 11: pfifo limit 1", "the queue of 1:11 is pfifo limit 1, planned"),
    ],
)
def test_queues_that_somebody_changed_are_named(build: Build, command: str, message: str) -> None:
    port = to_gpu(build())
    queues = lane_queues.queues_of(port)
    lanes.apply(port, queues)
    with network_of(port.pid):
        run(["tc", *command.format(port.device).split()])
    with pytest.raises(lanes.LaneFault, match=message):
        lanes.check(port, queues)
    lanes.apply(port, queues)  # and can be put right


@pytest.mark.root
@in_kernel
def test_more_than_a_gigabit_is_set_and_not_ignored(build: Build) -> None:
    nodes = tuple(
        node if node.name != "gpu0" else
        type(node)(name="gpu0", role="gpu", cores="hardware", memory_mib=64,
                   ports=(bench_plans.port("cnic0", "compute", 3, kernel_rate=25_000_000_000),))
        for node in bench_plans.demo_nodes()
    )  # fmt: skip
    port = to_gpu(build(nodes=nodes))
    assert "rate 25000000000 ceil 25000000000" in lanes.apply(port, lane_queues.queues_of(port))[0]
    with network_of(port.pid):
        assert "big" not in run(["tc", "-s", "class", "show", "dev", port.device])


@pytest.mark.root
@in_kernel
def test_a_port_without_a_rate_is_unshaped_and_says_so(build: Build) -> None:
    port = to_gpu(build())
    open_port = port._replace(port=bench_plans.port("cnic0", "compute", 3, kernel_rate=0))
    assert lanes.apply(open_port, lane_queues.queues_of(open_port)) == ("unshaped",)


FLOOD = """
import socket, sys
flows = [tuple(map(int, word.split(":"))) for word in sys.argv[1].split(",")]  # TOS:frames:payload
sockets = []
for mark, _, _ in flows:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, 32, 1 << 29)  # SO_SNDBUFFORCE
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, mark)
    sockets.append(s)
for turn in range(max(frames for _, frames, _ in flows)):
    for s, (_, frames, size) in zip(sockets, flows):
        if turn < frames: s.sendto(bytes(size), ("10.61.0.3", 9))  # not connected, so refusals are nothing to it
"""
HEADERS = 42


def flood(fabric: Fabric, sizes: dict[int, int], frames: int = LEAF_LIMIT - 200) -> None:
    """Fills lanes of gpu0's port, named by service level, with frames of these sizes."""
    words = ",".join(f"{level << 4}:{frames}:{size - HEADERS}" for level, size in sizes.items())
    fabric.execute("dpu0", [sys.executable, "-c", FLOOD, words])


def measured(
    port: SwitchPort, lanes_used: Collection[int], window_s: float
) -> tuple[dict[int, float], float, dict[int, int]]:
    """Each lane's share in percent, the port's rate in bit/s and packets by lane, while all are backlogged."""
    with QueueReader(port.pid) as reader:
        before, start = reader.classes(port.device), time.monotonic()
        time.sleep(window_s)
        after, end = reader.classes(port.device), time.monotonic()
    handles = {lane: LEAVES + lane for lane in lanes_used}
    dry = [lane for lane, handle in handles.items() if after[handle].backlog == 0]
    assert not dry, f"the flood was too short: lanes {dry} ran dry"
    sent = {lane: after[handle].bytes - before[handle].bytes for lane, handle in handles.items()}
    packets = {lane: after[handle].packets - before[handle].packets for lane, handle in handles.items()}
    total = sum(sent.values())
    return {lane: 100 * size / total for lane, size in sent.items()}, total * 8 / (end - start), packets


TINY_RATE = 4_000_000
"""For frames so small that the flood would not keep up with the port."""


UNEQUAL = LaneTable(vlarb_high="0:64,1:128,2:0,3:192")
TWO_LOW = LaneTable(max_vls=2, vlarb_high="0:0", vlarb_low="0:64,1:192", sl2vl="0,1")
HIGH_NUMBERS = LaneTable(max_vls=10, vlarb_high="8:64,9:192", vlarb_low="0:64", sl2vl="0,0,0,0,0,0,0,0,8,9")
CASES = {
    "platform.md 1": (LaneTable(), {0: FRAME, 1: FRAME, 3: FRAME}),
    "platform.md 2": (LaneTable(), {0: FRAME, 1: FRAME, 2: FRAME, 3: FRAME}),
    "platform.md 3": (LaneTable(), {0: FRAME, 2: FRAME}),
    "platform.md 4": (UNEQUAL, {0: FRAME, 1: FRAME, 3: FRAME}),
    "platform.md 5": (LaneTable(frame_bytes="0:1082"), {0: 1082, 1: FRAME, 3: FRAME}),
    "platform.md 6, tiny": (LaneTable(frame_bytes="0:106"), {0: 106, 1: FRAME}),
    "low only": (TWO_LOW, {0: FRAME, 1: FRAME}),
    "traffic classes": (TrafficClasses(weights="0:10,1:5,2:1,3:10").lane_table(), dict.fromkeys(range(4), FRAME)),
    "lanes 8 and 9": (HIGH_NUMBERS, {8: FRAME, 9: FRAME}),
}


def hold_against_the_arbiter(build: Build, table: LaneTable, sizes: dict[int, int]) -> None:
    fabric = build(table)
    port = to_gpu(fabric)
    asked = TINY_RATE if min(sizes.values()) < 1000 else RATE
    lanes.apply(port, lane_queues.queues_of(port)._replace(rate_bits_per_s=asked))
    flood(fabric, sizes)
    tiny = asked == TINY_RATE
    # As long as the shortest lane's backlog lasts, and some left.
    window_s = 1.3 if tiny else min(0.8, min(sizes.values()) * (LEAF_LIMIT - 200) * 8 / asked * 0.8)
    shares, rate, _ = measured(port, sizes, window_s)
    expected = exact_shares(table, sizes)
    print(f"kernel {shares}, exact {expected}, {rate / 1e6:.2f} Mbit/s")
    assert rate == pytest.approx(asked, rel=0.05)
    # A window ends within a turn: of tiny frames it holds only some thirty, of others some hundred.
    assert shares == pytest.approx(expected, abs=2 if tiny else 0.5)


@pytest.mark.root
@in_kernel
@pytest.mark.parametrize("case", CASES)
def test_the_kernels_shares_are_the_exact_arbiters(build: Build, case: str) -> None:
    hold_against_the_arbiter(build, *CASES[case])


@pytest.mark.root
@in_kernel
def test_the_shares_of_drawn_tables(build: Build, soak: bool) -> None:
    for seed in range(40 if soak else 4):
        hold_against_the_arbiter(build, *lane_bench.drawn(seed))


@pytest.mark.root
@in_kernel
@pytest.mark.parametrize("limit", [6, 30])
def test_a_low_lanes_floor_in_the_kernel(build: Build, limit: int) -> None:
    """Within a fifth of the exact arbiter's, over at least 20 low packets, everything backlogged."""
    table, sizes = LaneTable(high_limit=limit), dict.fromkeys(range(4), FRAME)
    fabric = build(table)
    port = to_gpu(fabric)
    lanes.apply(port, lane_queues.queues_of(port))
    flood(fabric, sizes)
    shares, _, packets = measured(port, sizes, 1.0 if limit == 6 else 4.2)
    print(f"kernel {shares[2]:.4f} %, exact {exact_shares(table, sizes)[2]:.4f} %, {packets[2]} packets")
    assert packets[2] >= (20 if limit < 30 else 10)
    assert shares[2] == pytest.approx(exact_shares(table, sizes)[2], rel=0.2)


# --- changed live --------------------------------------------------------------------------------------------------

FEWER = LaneTable(max_vls=2, vlarb_high="1:64", vlarb_low="0:64", sl2vl="1,1,0")


@pytest.mark.root
@in_kernel
def test_a_table_changed_live_loses_nothing_and_leaves_nothing(build: Build) -> None:
    fabric = build()
    port = to_gpu(fabric)
    before, after = lane_queues.queues_of(port), lane_queues.queues_of(port, FEWER)
    lanes.apply(port, before)
    for old, new, gone in ((before, after, {2, 3}), (after, before, set())):
        sizes = dict.fromkeys((2, 3) if gone else (0, 1), FRAME)
        flood(fabric, sizes, 100)
        with QueueReader(port.pid) as reader:
            waiting = reader.root(port.device)
            classes = lanes.change(port, old, new)
            assert {line.split()[0] for line in classes} == {"link", "vl0", "vl1"} | (set() if gone else {"vl2", "vl3"})
            while reader.root(port.device).backlog:  # type: ignore[union-attr]
                time.sleep(0.01)
            root = reader.root(port.device)
            assert waiting is not None
            assert root is not None
            assert root.drops == 0
            filters = reader.filters(port.device)
            assert {one.target - LEAVES for one in filters} == ({0, 1} if gone else {0, 1, 2, 3})
            assert len({one.preference for one in filters}) == 2
            assert set(reader.qdiscs(port.device)) >= {LEAVES + 0, LEAVES + 1}
            assert len(reader.qdiscs(port.device)) == len(new.leaves) + 1
    with QueueReader(port.pid) as reader:
        assert reader.device(port.device).drops == 0


@pytest.mark.root
@in_kernel
def test_setting_one_thing_keeps_the_others(build: Build) -> None:
    """Faults C3, C6: a rate changed live keeps lanes and filters; a table changed live keeps the rate."""
    port = to_gpu(build())
    queues = lane_queues.queues_of(port)
    lanes.apply(port, queues)
    slower = queues._replace(rate_bits_per_s=50_000_000)
    classes = lanes.change(port, queues, slower)
    assert [line.split()[0] for line in classes] == ["link", "vl0", "vl1", "vl2", "vl3"]
    assert "rate 50000000" in classes[0]
    fewer = lane_queues.queues_of(port, FEWER)._replace(rate_bits_per_s=50_000_000)
    classes = lanes.change(port, slower, fewer)
    assert "rate 50000000 ceil 50000000" in classes[0]
    open_queues = PortQueues(0, 0, (), ())
    assert lanes.change(port, fewer, open_queues) == ("unshaped",)  # truly removed
    with QueueReader(port.pid) as reader:
        assert reader.classes(port.device) == {}
    assert len(lanes.change(port, open_queues, queues)) == 5


@pytest.mark.root
@in_kernel
def test_a_tree_that_is_not_as_it_was_left_is_not_changed(build: Build) -> None:
    port = to_gpu(build())
    queues = lane_queues.queues_of(port)
    lanes.apply(port, queues)
    with network_of(port.pid):
        run(["tc", "class", "add", "dev", port.device, "parent", "1:1", "classid", "1:99", "htb", "rate", "1mbit"])
    with pytest.raises(lanes.LaneFault, match="1:99"):
        lanes.change(port, queues, lane_queues.queues_of(port, FEWER))
    with QueueReader(port.pid) as reader:
        assert len(reader.classes(port.device)) == 6


@pytest.mark.root
@in_kernel
def test_a_link_that_went_down_and_up_is_as_before(build: Build) -> None:
    """Fault C20: addresses, routes, queues and the bridge's table stand after a flap of either end, frames pass."""
    fabric = build()
    port = to_gpu(fabric)
    queues = lane_queues.queues_of(port)
    lanes.apply(port, queues)
    shown = ["ip", "-json", "addr", "show", "dev", "cnic0"], ["ip", "-json", "route"]

    def state() -> list[object]:
        found: list[object] = [json.loads(fabric.execute("gpu0", words)) for words in shown]
        with network_of(port.pid):
            known = json.loads(run(["bridge", "-json", "fdb", "show", "dev", port.device]))
        found.append([(entry["mac"], entry.get("state")) for entry in known])
        return found

    before = state()
    for pid, device in ((port.pid, port.device), (fabric.pid_of("gpu0"), "cnic0")):
        with network_of(pid):
            run(["ip", "link", "set", device, "down"])
            run(["ip", "link", "set", device, "up"])
        limit = time.monotonic() + 5
        while state() != before and time.monotonic() < limit:
            time.sleep(0.05)
        assert state() == before
        lanes.check(port, queues)
    with QueueReader(port.pid) as reader:
        passed = reader.classes(port.device)[LEAVES].packets
        flood(fabric, {0: FRAME}, 10)
        time.sleep(0.1)
        assert reader.classes(port.device)[LEAVES].packets - passed >= 10


@pytest.mark.root
@in_kernel
def test_frames_that_no_level_marks_are_shaped_too(build: Build) -> None:
    """Fault C14: classes follow DSCP alone; ECN bits do not matter, and ARP goes to the first lane, never past."""
    fabric = build()
    port = to_gpu(fabric)
    lanes.apply(port, lane_queues.queues_of(port))
    with QueueReader(port.pid) as reader:
        flood(fabric, {1: FRAME}, 10)
        with network_of(fabric.pid_of("dpu0")), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10 | 2)  # level 1 with ECT(0)
            out.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, 6)  # lost on the way (fault C15)
            out.sendto(b"ecn", ("10.61.0.3", 9))
        with network_of(fabric.pid_of("dpu0")), socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind(("cnic0", 0))
            raw.send(bytes.fromhex("024c003d0003 024c003d0002 0806") + bytes(46))
        time.sleep(0.1)
        passed = {handle - LEAVES: one.packets for handle, one in reader.classes(port.device).items()}
        root = reader.root(port.device)
    assert (passed[1], passed[0], passed[2], passed[3]) == (11, 1, 0, 0)
    assert root is not None
    assert root.packets == 12


@pytest.mark.root
@in_kernel
@pytest.mark.parametrize("priority", [0x1_0000, 0x1_0000 | (LEAVES + 3), 6])
def test_a_priority_set_in_a_node_does_not_choose_the_lane(build: Build, priority: int) -> None:
    """Fault C15: HTB takes a socket's priority for the name of a class, or of the root to pass by all classes; on the
    way between namespaces the kernel clears it, and the level's DSCP alone chooses at the far hop."""
    fabric = build()
    port = to_gpu(fabric)
    lanes.apply(port, lane_queues.queues_of(port))
    with network_of(fabric.pid_of("dpu0")), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
        for level, frames in ((0, 3), (1, 5)):
            out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, level << 4)
            out.setsockopt(socket.SOL_SOCKET, socket.SO_PRIORITY, priority)  # after IP_TOS, which sets it as well
            for _ in range(frames):
                out.sendto(b"marked", ("10.61.0.3", 9))
    time.sleep(0.1)
    with QueueReader(port.pid) as reader:
        passed = {handle - LEAVES: one.packets for handle, one in reader.classes(port.device).items()}
    assert [passed[lane] for lane in range(4)] == [3, 5, 0, 0]


@pytest.mark.root
@in_kernel
def test_a_short_probe_arrives_at_the_set_rate(build: Build) -> None:
    """Fault C9: 30 KB at 500 kbit/s take half a second; no more than a full frame or two leave at once."""
    fabric = build()
    port, rate, frames, size = to_gpu(fabric), 500_000, 30, 1042
    lanes.apply(port, lane_queues.queues_of(port)._replace(rate_bits_per_s=rate))
    with network_of(fabric.pid_of("gpu0")):
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind(("10.61.0.3", 4000))
        listener.settimeout(3)
    with network_of(fabric.pid_of("dpu0")):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    arrivals = []
    with listener, out:
        for _ in range(frames):
            out.sendto(bytes(size - HEADERS), ("10.61.0.3", 4000))
        for _ in range(frames):
            listener.recv(1 << 16)
            arrivals.append(time.monotonic())
    shortest = ((frames - 1) * size - 2 * FRAME) * 8 / rate
    print(f"{arrivals[-1] - arrivals[0]:.3f} s, at least {shortest:.3f} s")
    assert shortest <= arrivals[-1] - arrivals[0] <= 2 * frames * size * 8 / rate


def kernel_lines() -> list[str]:
    """All lines of the kernel's log."""
    return run(["dmesg"]).splitlines()


@pytest.mark.root
@in_kernel
def test_the_kernel_does_not_complain_about_a_quantum(build: Build) -> None:
    """Fault C8: "quantum of class 10011 is big" appears at no rate from a megabit to 100 Gbit/s."""
    port = to_gpu(build())
    queues = lane_queues.queues_of(port)
    before = kernel_lines()
    for rate in (1_000_000, 10_000_000_000, 100_000_000_000):
        lanes.apply(port, queues._replace(rate_bits_per_s=rate))
    known = set(before)
    assert [line for line in kernel_lines() if "quantum" in line and line not in known] == []


@pytest.mark.root
@in_kernel
@pytest.mark.parametrize("mtu", [1500, 4200, 9000])
def test_full_frames_pass_and_longer_ones_do_not(build: Build, mtu: int) -> None:
    """Faults B14, B15: both ends read the same MTU, and a datagram of just that size passes unfragmented."""
    fabric = build(mtu=mtu)
    port = to_gpu(fabric)
    ends = [(fabric.pid_of("dpu0"), "cnic0"), (fabric.pid_of("gpu0"), "cnic0"), (port.pid, port.device)]
    for pid, device in ends:
        with network_of(pid):
            assert json.loads(run(["ip", "-json", "link", "show", "dev", device]))[0]["mtu"] == mtu
    with network_of(fabric.pid_of("gpu0")):
        listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        listener.bind(("10.61.0.3", 4000))
        listener.settimeout(2)
    with network_of(fabric.pid_of("dpu0")):
        out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    with listener, out:
        out.setsockopt(socket.IPPROTO_IP, 10, 2)  # IP_MTU_DISCOVER = IP_PMTUDISC_DO
        out.sendto(bytes(mtu - 28), ("10.61.0.3", 4000))
        assert len(listener.recv(1 << 16)) == mtu - 28
        with pytest.raises(OSError, match="Message too long"):
            out.sendto(bytes(mtu - 27), ("10.61.0.3", 4000))
