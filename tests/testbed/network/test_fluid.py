"""Rates of fluid transfers: never too much, never idle, by lane as the arbiter would."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.network.fluid import BESIDE, FluidPort, Transfer, connected, share
from testbed.network.lanes import LaneTable
from testbed.units import GBIT_PER_S
from tests.testbed.network.test_arbiter import shares as exact_shares

RATE = 100 * GBIT_PER_S
FRAME = 4154


def transfers(ports: list[FluidPort], ways: list[tuple[int, int, int]]) -> list[Transfer]:
    """Transfers over (from, to, lane); even ports are uplinks, odd ones downlinks."""
    made = []
    for number, (source, target, lane) in enumerate(ways):
        transfer = Transfer(number, 1000, lane, (ports[source], ports[target]), 0)
        for port in transfer.ports:
            port.transfers[number] = transfer
        made.append(transfer)
    return made


def ports(count: int, table: LaneTable | None = None) -> list[FluidPort]:
    return [FluidPort(RATE, table or LaneTable()) for _ in range(count)]


def test_one_transfer_has_the_slower_port() -> None:
    fast, slow = FluidPort(RATE, LaneTable()), FluidPort(RATE // 4, LaneTable())
    assert share(transfers([fast, slow], [(0, 1, 0)]), FRAME) == [RATE // 4]


def test_max_min_over_two_bottlenecks() -> None:
    """A and B share the uplink 0; B and C share the downlink 3. C's sender has all the rest."""
    made = transfers(ports(6), [(0, 1, 0), (0, 3, 0), (4, 3, 0)])
    assert share(made, FRAME) == [RATE // 2, RATE // 2, RATE // 2]
    made = transfers(ports(6), [(0, 1, 0), (0, 1, 0), (0, 3, 0), (4, 3, 0)])
    third = RATE // 3
    assert share(made, FRAME) == pytest.approx([third, third, third, RATE - third], abs=2)


@pytest.mark.parametrize(
    ("table", "lanes"),
    [
        (LaneTable(), (0, 1, 3)),
        (LaneTable(), (0, 2)),
        (LaneTable(high_limit=6), (0, 2)),
        (LaneTable(vlarb_high="0:64,1:128,3:192", vlarb_low="2:64"), (0, 1, 3)),
        (LaneTable(high_limit=255), (0, 2)),
    ],
)
def test_lanes_share_as_the_exact_arbiter(table: LaneTable, lanes: tuple[int, ...]) -> None:
    made = transfers(ports(2, table), [(0, 1, lane) for lane in lanes])
    measured = [100 * rate / RATE for rate in share(made, FRAME)]
    exact = exact_shares(table, dict.fromkeys(lanes, FRAME))
    # A weight is exact here, while the arbiter sends whole packets: 192 units are three packets of 65.
    assert measured == pytest.approx([exact[lane] for lane in lanes], abs=0.5)


def test_a_lane_is_shared_by_its_transfers() -> None:
    """Two senders in lane 0 and one in lane 1 towards one receiver: the lane counts, not the sender."""
    made = transfers(ports(8), [(0, 1, 0), (2, 1, 0), (4, 1, 1)])
    assert share(made, FRAME) == pytest.approx([RATE // 4, RATE // 4, RATE // 2], rel=1e-6)


def test_low_lanes_take_what_high_ones_cannot_use() -> None:
    narrow = FluidPort(RATE // 10, LaneTable())
    made = transfers([*ports(3), narrow], [(0, 3, 0), (0, 1, 2)])
    assert share(made, FRAME) == pytest.approx([RATE // 10, RATE - RATE // 10], rel=1e-6)


def test_a_starved_lane_stands_still_and_goes_on() -> None:
    table = LaneTable(high_limit=255)
    made = transfers(ports(2, table), [(0, 1, 0), (0, 1, 2)])
    rates = share(made, FRAME)
    assert rates == [RATE, 0]
    assert made[1].end() is None
    for port in made[0].ports:
        del port.transfers[0]
    assert share([made[1]], FRAME) == [RATE]


def test_connected_finds_all_that_share_ports_and_no_others() -> None:
    all_ports = ports(8)
    made = transfers(all_ports, [(0, 1, 0), (2, 1, 0), (2, 3, 0), (4, 5, 0)])
    assert connected([all_ports[0]]) == made[:3]
    assert connected([all_ports[5]]) == made[3:]
    assert connected([all_ports[7]]) == []


def test_a_transfer_ends_to_the_nanosecond() -> None:
    transfer = Transfer(0, 1000, 0, (FluidPort(RATE, LaneTable()), FluidPort(RATE, LaneTable())), 50)
    transfer.rate = 3 * GBIT_PER_S
    assert transfer.end() == 50 + 2667
    transfer.advance(1_050)
    transfer.rate = GBIT_PER_S
    assert transfer.end() == 1_050 + 5_000


def test_what_goes_beside_the_lanes_has_half_and_what_they_leave() -> None:
    """Whatever the weights are, and for high and low lanes alike."""
    for lanes in ((0,), (2,), (0, 1, 3), (0, 2)):
        made = transfers(ports(2), [(0, 1, BESIDE), *((0, 1, lane) for lane in lanes)])
        rates = share(made, FRAME)
        # The floor of a low lane is taken from both.
        assert rates[0] == pytest.approx(RATE // 2, rel=2e-3), lanes
        assert sum(rates) == pytest.approx(RATE, rel=1e-6)
    narrow = FluidPort(RATE // 10, LaneTable())
    made = transfers([*ports(3), narrow], [(0, 1, BESIDE), (0, 3, 0), (0, 3, 2)])
    assert share(made, FRAME)[0] == pytest.approx(RATE - RATE // 10, rel=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 25), st.integers(1, 5), st.sampled_from([0, 6, 240, 255]))
def test_no_port_is_overfull_and_nothing_waits_without_a_full_port(
    seed: int, count: int, nodes: int, limit: int
) -> None:
    random = Random(seed)
    table = LaneTable(high_limit=limit)
    all_ports = [FluidPort(random.choice((RATE, RATE // 2)), table) for _ in range(2 * nodes)]
    lanes = (BESIDE, 0, 1, 2, 3)
    ways = [(2 * random.randrange(nodes), 2 * random.randrange(nodes) + 1, random.choice(lanes)) for _ in range(count)]
    made = transfers(all_ports, ways)
    rates = share(made, FRAME)
    used = {id(port): 0 for port in all_ports}
    for transfer, rate in zip(made, rates, strict=True):
        assert rate >= 0
        for port in transfer.ports:
            used[id(port)] += rate
    for port in all_ports:
        assert used[id(port)] <= port.rate_bits_per_s
    for transfer in made:
        # Divisions round down, so a full port may lack a few bits per second.
        assert any(used[id(port)] > port.rate_bits_per_s - 2 * count for port in transfer.ports)
