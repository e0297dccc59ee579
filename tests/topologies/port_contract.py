"""What every port of a RoCE fabric keeps, ours or a real one: the suite that both are held against.

A port joins by a test class that inherits `PortContract` and has a fixture `world`. gpu0 is behind the port under
test, dpu0 behind one of ours; the network is the demo's, with ports of 100 Mbit/s. Sources: docs/guide/hardware.md,
platform.md §3 (order and one frame a packet), known faults B8, B14, B15.
"""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

import pytest
from lane_traffic import FRAME, flood

from testbed.network.arbiter import Arbiter
from testbed.network.lanes import LaneTable, type_of_service
from topologies import lanes
from topologies.fabric import Fabric, NetworkFault, SwitchPort
from topologies.lane_queues import LEAVES, queues_of
from topologies.meters import WHOLE_PORT, LinkMeter
from topologies.namespaces import network_of
from topologies.probe import probe
from topologies.programs import run
from topologies.queues import QueueReader

ENDS = ("dpu0", "gpu0")
_RECVTOS = 13
WEIGHED = LaneTable(max_vls=2, vlarb_high="0:192,1:64", vlarb_low="0:64", sl2vl="0,1")


class World(Protocol):
    """One kind of port under test."""

    fabric: Fabric

    def queued(self) -> SwitchPort:
        """The port of our switch through whose queues frames leave for gpu0."""

    def set_cable(self, *, up: bool) -> None:
        """Takes the far end of gpu0's link down, or up again."""


@contextmanager
def sockets(fabric: Fabric) -> Iterator[dict[str, socket.socket]]:
    """A datagram socket at each end, which tells marks of service levels."""
    made = {}
    for member in fabric.members():
        if member.port.fabric == "compute" and member.node.name in ENDS:
            with network_of(fabric.pid_of(member.node.name)):
                one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            one.setsockopt(socket.SOL_SOCKET, 33, 1 << 26)  # SO_RCVBUFFORCE
            one.setsockopt(socket.SOL_SOCKET, 32, 1 << 26)  # SO_SNDBUFFORCE
            one.setsockopt(socket.IPPROTO_IP, _RECVTOS, 1)
            one.bind((member.port.address, 0))
            one.settimeout(5)
            made[member.node.name] = one
    try:
        yield made
    finally:
        for one in made.values():
            one.close()


class PortContract:
    """The contract; each test builds a network of its own."""

    @pytest.fixture
    def world(self) -> World:
        raise NotImplementedError("a subclass says which port")

    def test_its_node_has_the_planned_address_and_mtu_and_no_other(self, world: World) -> None:
        shown = json.loads(world.fabric.execute("gpu0", ["ip", "-json", "addr", "show", "cnic0"]))[0]
        assert shown["mtu"] == 4200
        assert [entry["local"] for entry in shown["addr_info"]] == ["10.61.0.3"]
        world.fabric.verify()

    def test_full_frames_pass_between_every_two_ports(self, world: World) -> None:
        assert probe(world.fabric) == 4  # both ways on the front network, both ways on this one

    @pytest.mark.parametrize("way", [ENDS, ENDS[::-1]], ids=["to the port", "from the port"])
    def test_bytes_and_marks_of_service_levels_arrive_as_they_were_sent(
        self, world: World, way: tuple[str, str]
    ) -> None:
        draw = random.Random(7)
        with sockets(world.fabric) as ends:
            source, target = (ends[name] for name in way)
            for level in range(16):
                payload = draw.randbytes((1, 64, 1024, 4096, 4172)[level % 5])
                source.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, type_of_service(level))
                source.sendto(payload, target.getsockname())
                data, control, _, _ = target.recvmsg(8192, 64)
                assert data == payload
                assert control[0][2][0] == type_of_service(level)

    @pytest.mark.parametrize("way", [ENDS, ENDS[::-1]], ids=["to the port", "from the port"])
    def test_frames_arrive_once_and_in_order(self, world: World, way: tuple[str, str]) -> None:
        """RoCE takes reordering for loss, and a fabric for lossless."""
        count = 3_000
        with sockets(world.fabric) as ends:
            source, target = (ends[name] for name in way)
            for number in range(count):
                source.sendto(number.to_bytes(4, "big").ljust(1024, b"."), target.getsockname())
            came = [int.from_bytes(target.recv(2048)[:4], "big") for _ in range(count)]
        assert came == list(range(count))

    def test_its_queues_hold_the_planned_rate_and_shares_of_lanes(self, world: World) -> None:
        """Within half a point of the exact arbiter (issue Ground), and within 3 % of the port's rate."""
        port = world.queued()
        lanes.apply(port, queues_of(port, WEIGHED))
        flood(world.fabric, {0: FRAME, 1: FRAME})
        with QueueReader(port.pid) as reader:
            before, start = reader.classes(port.device), time.monotonic()
            time.sleep(0.8)
            after, took = reader.classes(port.device), time.monotonic() - start
        sent = {lane: after[LEAVES + lane].bytes - before[LEAVES + lane].bytes for lane in (0, 1)}
        arbiter, exact = Arbiter(WEIGHED), {0: 0, 1: 0}
        for _ in range(24_000):
            exact[arbiter.choose({0: FRAME, 1: FRAME})] += FRAME
        assert 100 * sent[0] / sum(sent.values()) == pytest.approx(100 * exact[0] / sum(exact.values()), abs=0.5)
        assert 8 * sum(sent.values()) / took == pytest.approx(100_000_000, rel=0.03)

    def test_a_table_changed_live_loses_nothing(self, world: World) -> None:
        port = world.queued()
        before, after = queues_of(port), queues_of(port, WEIGHED)
        lanes.apply(port, before)
        with sockets(world.fabric) as ends:
            source, target = (ends[name] for name in ENDS)
            for number in range(400):
                source.sendto(number.to_bytes(4, "big").ljust(4096, b"."), target.getsockname())
            lanes.change(port, before, after)
            came = [int.from_bytes(target.recv(8192)[:4], "big") for _ in range(400)]
        assert came == list(range(400))
        lanes.check(port, after)

    def test_what_passes_is_counted(self, world: World) -> None:
        port = world.queued()
        lanes.apply(port, queues_of(port))
        meter = LinkMeter(world.fabric.plan, [port])
        try:
            with sockets(world.fabric) as ends:
                source, target = (ends[name] for name in ENDS)
                for _ in range(50):
                    source.sendto(bytes(1000), target.getsockname())
                    target.recv(2048)
            told = [one for one in meter.measure() if one.lane == WHOLE_PORT]
        finally:
            meter.close()
        assert [(one.port, one.packets, one.drops) for one in told] == [(port.name, 50, 0)]

    def test_a_cable_that_is_pulled_is_named_and_one_put_back_carries(self, world: World) -> None:
        world.set_cable(up=False)
        with pytest.raises(NetworkFault, match=r"cnic0"):
            probe(world.fabric)
        world.set_cable(up=True)
        world.fabric.verify()
        assert probe(world.fabric) == 4

    def test_the_fabrics_stay_apart(self, world: World) -> None:
        with network_of(world.fabric.pid_of("client0")):
            stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with stranger, pytest.raises(OSError, match="Network is unreachable"):
            stranger.sendto(b"x", ("10.61.0.3", 9))

    def test_tear_down_takes_all_of_it(self, world: World) -> None:
        """The fixture `unchanged_host` looks at the rest."""
        world.fabric.tear_down()
        assert world.fabric.names.label not in run(["ip", "-o", "link"])
