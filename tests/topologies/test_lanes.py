"""Lane tables as HTB: the arithmetic, what the kernel has, and the shares that come out."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import bench_plans
import pytest

from testbed.experiment.plan import Plan
from testbed.network.arbiter import Arbiter
from testbed.network.lanes import LaneTable
from topologies import lanes
from topologies.fabric import Fabric, SwitchPort
from topologies.namespaces import network_of
from topologies.naming import Names
from topologies.programs import run
from topologies.queues import QueueReader

RATE = 100_000_000
FRAME = 4214


def test_the_papers_table_as_leaves() -> None:
    leaves = {leaf.lane: leaf for leaf in lanes.leaves(LaneTable(), RATE, FRAME)}
    assert {lane: leaf.priority for lane, leaf in leaves.items()} == {0: 0, 1: 0, 2: 1, 3: 0}
    assert {lane: leaf.quantum for lane, leaf in leaves.items()} == {0: 12288, 1: 12288, 2: 8192, 3: 12288}
    # 240 × 4,096 bytes of the high table for each low packet, of which lane 2 has 64 of 640 parts.
    assert leaves[2].rate_bits_per_s / RATE == pytest.approx(0.000427, rel=0.01)


def test_weights_below_a_packet_keep_their_ratio() -> None:
    table = LaneTable(vlarb_high="0:1,1:2,3:3", vlarb_low="2:1")
    quanta = [leaf.quantum for leaf in lanes.leaves(table, RATE, FRAME) if leaf.priority == 0]
    assert quanta[0] >= FRAME
    assert [quantum / quanta[0] for quantum in quanta] == [1, 2, 3]


def test_a_repeated_entry_adds_up() -> None:
    table = LaneTable(max_vls=2, vlarb_high="0:64,1:64,0:64", vlarb_low="0:0", sl2vl="0,1")
    assert [leaf.quantum for leaf in lanes.leaves(table, RATE, FRAME)] == [2 * 64 * 64 * 2, 64 * 64 * 2]


def test_without_a_high_table_the_low_one_has_the_link() -> None:
    table = LaneTable(max_vls=2, vlarb_high="0:0", vlarb_low="0:64,1:192", sl2vl="0,1")
    found = lanes.leaves(table, RATE, FRAME)
    assert [leaf.priority for leaf in found] == [0, 0]
    assert found[1].quantum == 3 * found[0].quantum


def test_an_unlimited_high_table_may_starve_the_low_one() -> None:
    table = LaneTable(high_limit=lanes.UNLIMITED)
    assert next(leaf for leaf in lanes.leaves(table, RATE, FRAME) if leaf.lane == 2).rate_bits_per_s == lanes.LEAF_RATE


# --- in the kernel -------------------------------------------------------------------------------------------------

Build = Callable[..., Fabric]
in_kernel = pytest.mark.usefixtures("unchanged_host")


@pytest.fixture
def build(label: str) -> Iterator[Build]:
    made: list[Fabric] = []

    def make(table: LaneTable | None = None, **changes: object) -> Fabric:
        plan: Plan = bench_plans.demo_plan(label, fabrics=bench_plans.fabrics(lanes=table), **changes)
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
        classes = lanes.apply(port, lanes.queues_of(port))
        assert classes[0].startswith("link 1:1 rate 100000000 ceil 100000000")
        assert len(classes) == (5 if port.fabric.roce else 2)


@pytest.mark.root
@in_kernel
def test_a_rate_changed_live_keeps_the_lanes(build: Build) -> None:
    port = to_gpu(build())
    queues = lanes.queues_of(port)
    lanes.apply(port, queues)
    classes = lanes.apply(port, queues._replace(rate_bits_per_s=50_000_000))
    assert [line.split()[0] for line in classes] == ["link", "vl0", "vl1", "vl2", "vl3"]
    assert "rate 50000000" in classes[0]


@pytest.mark.root
@in_kernel
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("qdisc replace dev {} root handle 5: tbf rate 10mbit burst 5000 latency 10ms", "the root is tbf, planned htb"),
        ("class add dev {} parent 1:1 classid 1:99 htb rate 1mbit", "1:99 are missing or foreign"),
        ("class change dev {} parent 1:1 classid 1:11 htb rate 8kbit ceil 50mbit quantum 12288", "class 1:11 is Htb"),
        ("class change dev {} classid 1:1 htb rate 200mbit burst 4000 cburst 4000", "class 1:1 is Htb"),
    ],
)
def test_queues_that_somebody_changed_are_named(build: Build, command: str, message: str) -> None:
    port = to_gpu(build())
    queues = lanes.queues_of(port)
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
    assert "rate 25000000000 ceil 25000000000" in lanes.apply(port, lanes.queues_of(port))[0]
    with network_of(port.pid):
        assert "big" not in run(["tc", "-s", "class", "show", "dev", port.device])


@pytest.mark.root
@in_kernel
def test_a_port_without_a_rate_is_unshaped_and_says_so(build: Build) -> None:
    port = to_gpu(build())
    open_port = port._replace(port=bench_plans.port("cnic0", "compute", 3, kernel_rate=0))
    assert lanes.apply(open_port, lanes.queues_of(open_port)) == ("unshaped",)


FLOOD = """
import socket, sys
marks, count, size = [int(word) for word in sys.argv[1].split(",")], int(sys.argv[2]), int(sys.argv[3])
sockets = []
for mark in marks:
    s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    s.setsockopt(socket.SOL_SOCKET, 32, 1 << 28)  # SO_SNDBUFFORCE
    s.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, mark)
    s.connect(("10.61.0.3", 9)); sockets.append(s)
data = bytes(size)
for _ in range(count):
    for s in sockets:
        try: s.send(data)
        except ConnectionRefusedError: pass
"""


def measured(fabric: Fabric, levels: list[int]) -> tuple[dict[int, float], float]:
    """Backlogs the levels at gpu0's port; returns each lane's share in percent and the port's rate in bit/s."""
    port = to_gpu(fabric)
    lanes.apply(port, lanes.queues_of(port))
    marks = ",".join(str(level << 4) for level in levels)
    fabric.execute("dpu0", [sys.executable, "-c", FLOOD, marks, "4000", "4172"])
    with QueueReader(port.pid) as reader:
        before, start = reader.classes(port.device), time.monotonic()
        time.sleep(0.6)
        after, end = reader.classes(port.device), time.monotonic()
    lane_handles = {handle - 0x1_0010: handle for handle in after if handle >= 0x1_0010}
    sent = {lane: after[handle].bytes - before[handle].bytes for lane, handle in lane_handles.items()}
    backlogged = [level for level in levels if after[0x1_0010 + level].backlog > 0]
    assert backlogged == levels, "the flood was too short: some lane ran dry"
    total = sum(sent.values())
    return {lane: 100 * size / total for lane, size in sent.items()}, total * 8 / (end - start)


def exact(table: LaneTable, levels: list[int]) -> dict[int, float]:
    """The shares in percent that the exact arbiter gives, all of `levels` always backlogged with full frames."""
    arbiter = Arbiter(table)
    sent = dict.fromkeys(range(table.max_vls), 0)
    for _ in range(200_000):
        sent[arbiter.choose({table.lane_of(level): FRAME for level in levels})] += 1
    return {lane: 100 * packets / 200_000 for lane, packets in sent.items()}


@pytest.mark.root
@in_kernel
@pytest.mark.parametrize(
    ("table", "levels"),
    [
        (LaneTable(), [0, 1, 3]),
        (LaneTable(), [0, 2]),
        (LaneTable(), [0, 1, 2, 3]),
        (LaneTable(vlarb_high="0:64,1:128,2:0,3:192"), [0, 1, 3]),
        (LaneTable(max_vls=2, vlarb_high="0:0", vlarb_low="0:64,1:192", sl2vl="0,1"), [0, 1]),
        (LaneTable(max_vls=10, vlarb_high="8:64,9:192", vlarb_low="0:64", sl2vl="0,0,0,0,0,0,0,0,8,9"), [8, 9]),
    ],
)
def test_the_kernels_shares_are_the_exact_arbiters(build: Build, table: LaneTable, levels: list[int]) -> None:
    shares, rate = measured(build(table), levels)
    assert rate == pytest.approx(RATE, rel=0.05)
    expected = exact(table, levels)
    for lane, share in shares.items():
        assert share == pytest.approx(expected.get(lane, 0), abs=2)
