"""Lane tables as leaves of HTB: quanta, priorities and floors, without a kernel."""

from __future__ import annotations

import bench_plans
import pytest
from lane_traffic import FRAME

from testbed.network.arbiter import UNLIMITED
from testbed.network.lanes import LaneTable
from topologies import lane_queues
from topologies.lane_bench import exact_shares
from topologies.lane_queues import Leaf

RATE = 100_000_000


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
