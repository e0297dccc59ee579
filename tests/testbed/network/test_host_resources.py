"""PCIe links and host memory on the flow wire: who shares what, and that resources of rate 0 change nothing."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.dualpath.service_levels import COLLECTIVE, KV
from testbed.experiment.plan import Plan
from testbed.machine import Completion, Read, Write
from testbed.network.fluid import FluidPort, Transfer, connected, share
from testbed.network.lanes import LaneTable
from testbed.network.memory_region import PlainMemory
from testbed.network.wires import FlowWire, WireSettings
from testbed.units import GBIT_PER_S, Nanoseconds
from tests.testbed.dualpath.small_plans import engine_nodes, plan_of, remote

RATE = 80 * GBIT_PER_S
"""10 bytes a nanosecond on every port."""
SIZE = 1 << 20
ALONE = SIZE / 10
"""Nanoseconds for SIZE bytes at a whole port; frames and latency add 2 %."""


def plan(pcie: int = 0, dram: int = 0) -> Plan:
    return plan_of(engine_nodes("pe0", "de0", "de1", room=2 * SIZE, pcie=pcie, dram=dram), rate=RATE)


def ends(plan: Plan, *posts: tuple[str, Write | Read]) -> list[Nanoseconds]:
    """When each of the verbs, all posted at once, is complete; in their order."""
    memories = {(node.name, region.name): PlainMemory(region.size) for node in plan.nodes for region in node.regions}
    wire = FlowWire(plan, memories, settings=WireSettings(latency=0))
    for node, verb in posts:
        wire.post(0, node, verb)
    found: dict[tuple[str, int], Nanoseconds] = {}
    while (moment := wire.deadline()) is not None:
        for node, message in wire.wake(moment):
            assert isinstance(message, Completion)
            found[node, message.ticket] = moment
    return [found[node, verb.ticket] for node, verb in posts]


def write(plan: Plan, ticket: int, way: str, source: str, target: str, level: int = KV, size: int = SIZE) -> Write:
    """`way` is own port and peer's port, as "cnic0>de0.cnic1"."""
    interface, _, peer = way.partition(">")
    where = remote(plan, peer.partition(".")[0], target)
    return Write(ticket, peer, level, interface=interface, remote=where, data=bytes(size), source=source)


def read(plan: Plan, ticket: int, way: str, target: str) -> Read:
    interface, _, peer = way.partition(">")
    where = remote(plan, peer.partition(".")[0], target)
    return Read(ticket, peer, KV, interface=interface, remote=where, length=SIZE)


def about(value: float) -> object:
    return pytest.approx(value, rel=0.03)


def test_a_loop_back_and_what_comes_in_share_the_pcie_link_inwards() -> None:
    """Steps 7 and 9 of the PE read path at a decode engine: both are written over the CNIC's PCIe link."""
    posts = [("pe0", ("cnic0>de0.cnic0", "hbm0", "buffer")), ("de0", ("cnic0>de0.cnic0", "buffer", "hbm0"))]
    for pcie, factor in ((0, 1), (RATE, 2), (2 * RATE, 1)):
        made = plan(pcie=pcie)
        assert ends(made, *((node, write(made, 1, *way)) for node, way in posts)) == [about(factor * ALONE)] * 2


def test_a_loop_back_and_what_leaves_share_the_uplink_with_and_without_pcie() -> None:
    """As in a soft RNIC, whose loop-back waits for the pace of its port."""
    posts = [("de0", ("cnic0>pe0.cnic0", "buffer", "hbm0")), ("de0", ("cnic0>de0.cnic0", "buffer", "hbm0"))]
    for pcie in (0, RATE):
        made = plan(pcie=pcie)
        verbs = [(node, write(made, number, *way)) for number, (node, way) in enumerate(posts)]
        assert ends(made, *verbs) == [about(2 * ALONE)] * 2


def test_a_slow_pcie_link_bounds_both_directions_by_themselves() -> None:
    made = plan(pcie=RATE // 4)
    out = ("pe0", write(made, 1, "cnic0>de0.cnic0", "hbm0", "hbm0"))
    back = ("de0", write(made, 1, "cnic0>pe0.cnic0", "hbm0", "hbm0"))
    assert ends(made, out) == [about(4 * ALONE)]
    assert ends(made, out, back) == [about(4 * ALONE)] * 2


def test_pcie_is_shared_by_the_lanes_of_its_port() -> None:
    made = plan(pcie=RATE // 2)
    kv = ("de1", write(made, 1, "cnic0>de0.cnic0", "hbm0", "hbm0"))
    collective = ("pe0", write(made, 1, "cnic0>de0.cnic0", "hbm0", "hbm0", COLLECTIVE))
    assert ends(made, kv, collective) == [about(4 * ALONE), about(2 * ALONE)]


def test_memory_is_half_duplex_and_shared_by_all_ports_of_a_node() -> None:
    made = plan(dram=2 * RATE)
    posts = [
        ("pe0", write(made, 1, "cnic0>de0.cnic0", "hbm0", "buffer")),
        ("pe0", write(made, 2, "cnic1>de0.cnic1", "hbm1", "buffer")),
        ("de0", write(made, 3, "cnic0>pe0.cnic0", "buffer", "hbm0")),
        ("de0", write(made, 4, "cnic1>pe0.cnic1", "buffer", "hbm1")),
    ]
    assert ends(made, *posts) == [about(2 * ALONE)] * 4


def test_device_memory_is_not_host_memory() -> None:
    made = plan(dram=RATE // 10)
    assert ends(made, ("pe0", write(made, 1, "cnic0>de0.cnic0", "hbm0", "hbm0"))) == [about(ALONE)]
    assert ends(made, ("pe0", write(made, 1, "cnic0>de0.cnic0", "", "hbm0"))) == [about(ALONE)]
    assert ends(made, ("pe0", write(made, 1, "cnic0>de0.cnic0", "buffer", "hbm0"))) == [about(10 * ALONE)]


def test_a_read_takes_from_the_memory_of_its_peer() -> None:
    made = plan(dram=RATE // 2)
    assert ends(made, ("pe0", read(made, 1, "cnic0>de0.cnic0", "buffer"))) == [about(2 * ALONE)]
    assert ends(made, ("pe0", read(made, 1, "cnic0>de0.cnic0", "hbm0"))) == [about(ALONE)]


def test_a_copy_within_host_memory_crosses_it_twice() -> None:
    made = plan(dram=RATE)
    assert ends(made, ("de0", write(made, 1, "cnic0>de0.cnic0", "buffer", "buffer"))) == [about(2 * ALONE)]


def test_memory_that_is_free_again_lets_those_who_waited_go_on() -> None:
    """Two writes from a memory of one port's rate; when the short one ends, the long one has it all."""
    made = plan(dram=RATE)
    long = ("de0", write(made, 1, "cnic0>pe0.cnic0", "buffer", "hbm0"))
    short = ("de0", write(made, 2, "cnic1>pe0.cnic1", "buffer", "hbm1", size=SIZE // 4))
    assert ends(made, long, short) == [about(1.25 * ALONE), about(0.5 * ALONE)]


@settings(deadline=None)
@given(st.integers(0, 1 << 30))
def test_ample_resources_change_nothing(seed: int) -> None:
    """Rates that nothing can fill give the very moments of a plan without them."""
    random = Random(seed)
    without, ample = plan(), plan(pcie=100 * RATE, dram=100 * RATE)
    nodes = ("pe0", "de0", "de1")
    posts = []
    for ticket in range(12):
        source, target = random.choice(nodes), random.choice(nodes)
        port = f"cnic{random.randrange(2)}"
        region = random.choice(("buffer", "hbm0"))
        size, level = random.randrange(1, SIZE), KV if source == target else random.choice((KV, COLLECTIVE))
        posts.append((source, (ticket, f"{port}>{target}.{port}", "buffer", region, level, size)))
    times = [ends(made, *((node, write(made, *fields)) for node, fields in posts)) for made in (without, ample)]
    assert times[0] == times[1]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 25), st.integers(1, 4), st.sampled_from([0, 6, 240, 255]))
def test_memory_is_never_overfull_and_never_idle_while_somebody_waits(
    seed: int, count: int, nodes: int, limit: int
) -> None:
    random = Random(seed)
    table = LaneTable(high_limit=limit)
    links = [FluidPort(random.choice((RATE, RATE // 2)), table) for _ in range(2 * nodes)]
    memories = [FluidPort(random.randrange(RATE // 4, 3 * RATE), None) for _ in range(nodes)]
    for number in range(count):
        sender, receiver = random.randrange(nodes), random.randrange(nodes)
        ways = [links[2 * sender], links[2 * receiver + 1]]
        ways += random.choice(([], [memories[sender]], [memories[receiver]], [memories[sender], memories[receiver]]))
        transfer = Transfer(number, 1000, random.randrange(4), tuple(ways), 0)
        for port in transfer.ports:
            port.enter(transfer)
    used = {id(port): 0 for port in (*links, *memories)}
    for link in links:
        members = connected([link])
        rates = share(members, 4154)
        assert all(rate >= 0 for rate in rates)
        for transfer, rate in zip(members, rates, strict=True):
            transfer.rate = rate
    everybody = {transfer.number: transfer for link in links for transfer in link.transfers.values()}
    for transfer in everybody.values():
        for port in transfer.ports:
            used[id(port)] += transfer.rate
    for port in (*links, *memories):
        assert used[id(port)] <= port.rate_bits_per_s
    for transfer in everybody.values():
        assert any(used[id(port)] > port.rate_bits_per_s - 3 * count for port in transfer.ports)
