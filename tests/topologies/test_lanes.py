"""Lanes as HTB in the kernel: what was set is what is there, and a change keeps all that it does not mean."""

from __future__ import annotations

import json
import time

import bench_plans
import pytest
from lane_traffic import FRAME, Build, flood, to_gpu

from testbed.network.lanes import LaneTable
from topologies import lane_queues, lanes
from topologies.lane_queues import LEAVES, PortQueues
from topologies.namespaces import network_of
from topologies.programs import ProgramFailed, run
from topologies.queues import QueueReader

pytestmark = pytest.mark.root


def test_what_was_set_is_what_the_kernel_has(build: Build) -> None:
    fabric = build()
    for port in fabric.ports():
        classes = lanes.apply(port, lane_queues.queues_of(port))
        assert classes[0].startswith("link 1:1 rate 100000000 ceil 100000000")
        assert len(classes) == (5 if port.fabric.roce else 2)


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


def test_a_port_without_a_rate_is_unshaped_and_says_so(build: Build) -> None:
    port = to_gpu(build())
    open_port = port._replace(port=bench_plans.port("cnic0", "compute", 3, kernel_rate=0))
    assert lanes.apply(open_port, lane_queues.queues_of(open_port)) == ("unshaped",)


def kernel_lines() -> list[str]:
    """All lines of the kernel's log."""
    return run(["dmesg"]).splitlines()


def test_the_kernel_does_not_complain_about_a_quantum(build: Build) -> None:
    """Fault C8: "quantum of class 10011 is big" appears at no rate from a megabit to 100 Gbit/s."""
    port = to_gpu(build())
    queues = lane_queues.queues_of(port)
    before = kernel_lines()
    for rate in (1_000_000, 10_000_000_000, 100_000_000_000):
        lanes.apply(port, queues._replace(rate_bits_per_s=rate))
    known = set(before)
    assert [line for line in kernel_lines() if "quantum" in line and line not in known] == []


# --- changed live --------------------------------------------------------------------------------------------------

FEWER = LaneTable(max_vls=2, vlarb_high="1:64", vlarb_low="0:64", sl2vl="1,1,0")


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


def test_a_change_that_fails_half_way_is_taken_back(build: Build) -> None:
    """By then the kept classes have their new weights, and the kernel refuses a class of another tree."""
    port = to_gpu(build())
    before = lane_queues.queues_of(port)
    lanes.apply(port, before)
    fewer = lane_queues.queues_of(port, FEWER)
    refused = fewer.leaves[0]._replace(lane=0x1_0000)
    with pytest.raises(ProgramFailed, match="tc -batch"):
        lanes.change(port, before, fewer._replace(leaves=(*fewer.leaves, refused)))
    assert len(lanes.check(port, before)) == 5


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
