"""Measures lanes at a real switch port: `python -m topologies.lane_bench shares|wait|check`, one JSON list of figures.

- shares: points of a hundred between the kernel's shares and the exact arbiter's, the largest of a table's lanes; one
  figure a drawn table, all lanes backlogged with frames of 1 KB and more.
- wait: how long a lone high frame stood at a port that a low lane saturates, less the idle median, in low frames of the
  link; one figure a frame. Kernel timestamps where it comes into the switch and where it leaves.
- check: microseconds that comparing one port's whole tree with its setting takes.

Makes a network of its own in namespaces and takes it down. Not a run: nothing of it is in the registry, and its
namespaces end with its processes.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from random import Random
from typing import NamedTuple

from testbed.experiment.plan import FabricPlan, NodePlan, Plan, PortPlan
from testbed.network.arbiter import Arbiter
from testbed.network.lanes import LaneTable, type_of_service
from topologies import lanes
from topologies.fabric import Fabric, SwitchPort
from topologies.lane_queues import LEAVES, queues_of
from topologies.namespaces import network_of
from topologies.naming import Names
from topologies.queues import QueueReader

RATE = 100_000_000
FRAME = 4154
SLOT_NS = FRAME * 8 * 1_000_000_000 // RATE
"""What one full frame takes on the link."""
HEADERS = 42
BACKLOG = lanes.LEAF_LIMIT - 200
HIGH, LOW = 0, 2
TARGET = ("10.61.0.3", 9)


class Wait(NamedTuple):
    """One lone frame's stay at the switch."""

    nanoseconds: int
    overtaken: int
    """Frames of others that left between its coming and its leaving."""


class Frame(NamedTuple):
    """A UDP frame as it passed a port."""

    time_ns: int
    """CLOCK_REALTIME, by the kernel."""
    tos: int
    number: int
    """The first four bytes of its payload."""


class FrameTimes:
    """Frames that pass a port from now on: a packet socket, read at the end."""

    def __init__(self, port: SwitchPort) -> None:
        with network_of(port.pid):
            self._socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
        self._socket.setsockopt(socket.SOL_SOCKET, 33, 1 << 28)  # SO_RCVBUFFORCE
        self._socket.setsockopt(socket.SOL_SOCKET, 35, 1)  # SO_TIMESTAMPNS
        self._socket.setblocking(False)
        self._socket.bind((port.device, 3))  # ETH_P_ALL

    def finish(self) -> list[Frame]:
        """What has passed to gpu0, in order. Raises RuntimeError if the kernel had no room for some of it."""
        found = []
        with self._socket:
            while True:
                try:
                    data, control, _, _ = self._socket.recvmsg(64, 64)
                except BlockingIOError:
                    break
                if len(data) >= HEADERS + 4 and data[23] == socket.IPPROTO_UDP:
                    seconds, nanoseconds = struct.unpack_from("=qq", control[0][2])
                    (number,) = struct.unpack_from("!I", data, HEADERS)
                    found.append(Frame(seconds * 1_000_000_000 + nanoseconds, data[15], number))
            if struct.unpack("=II", self._socket.getsockopt(263, 6, 8))[1]:  # SOL_PACKET, PACKET_STATISTICS
                raise RuntimeError("the packet socket lost frames")
        return found


@contextmanager
def network() -> Iterator[Fabric]:
    """Two senders (dpu0, host0) and a receiver (gpu0) on one RoCE fabric."""
    label = os.urandom(3).hex()
    fabric = FabricPlan(name="compute", subnet="10.61.0.0/24", mtu=4200, roce=True, lanes=LaneTable())
    nodes = tuple(
        NodePlan(
            name=name, role="gpu", cores="host", memory_mib=64,
            ports=(PortPlan("cnic0", "compute", f"10.61.0.{number}", f"02:4c:00:3d:00:{number:02x}", RATE, RATE),),
        )
        for number, name in ((2, "dpu0"), (3, "gpu0"), (4, "host0"))
    )  # fmt: skip
    plan = Plan(
        run=f"bench-{label}", label=label, clock="wall", system="blink", kind="blink", seed=1, dilation=1.0,
        byte_scale=1, path_mtu=4096, fabrics=(fabric,), nodes=nodes, parameters={}, workload={}, time_limit_s=60.0,
    )  # fmt: skip
    made = Fabric(plan, Names(plan), {}, lambda _pid, _what: None)
    try:
        made.build()
        yield made
    finally:
        made.tear_down()


def port_of(fabric: Fabric, node: str) -> SwitchPort:
    """The switch's port to a node."""
    return next(port for port in fabric.ports() if port.node.name == node)


def sender(fabric: Fabric, node: str, level: int) -> socket.socket:
    """A datagram socket in a node whose frames carry a service level."""
    with network_of(fabric.pid_of(node)):
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, 32, 1 << 29)  # SO_SNDBUFFORCE: what waits in the lane counts as the sender's
    opened.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, type_of_service(level))
    return opened


def fill(fabric: Fabric, node: str, sizes: dict[int, int]) -> None:
    """Backlogs lanes, by service level, with as many frames of these sizes as a lane holds."""
    opened = {level: sender(fabric, node, level) for level in sizes}
    try:
        for _ in range(BACKLOG):
            for level, size in sizes.items():
                opened[level].sendto(bytes(size - HEADERS), TARGET)
    finally:
        for one in opened.values():
            one.close()


def drain(port: SwitchPort) -> None:
    """Waits until nothing stands at the port."""
    with QueueReader(port.pid) as reader:
        while (root := reader.root(port.device)) is not None and root.backlog:
            time.sleep(0.01)


def lone_frames(fabric: Fabric, count: int, *, saturated: bool) -> list[Wait]:
    """Sends single high frames, some ms apart, while the low lane is idle or backlogged; how long each stood."""
    into, out_of = port_of(fabric, "dpu0"), port_of(fabric, "gpu0")
    if saturated:
        fill(fabric, "host0", {LOW: FRAME})
    random = Random(count)
    with sender(fabric, "dpu0", HIGH) as lone:
        entry, leave = FrameTimes(into), FrameTimes(out_of)
        for number in range(count):
            lone.sendto(struct.pack("!I", number).ljust(FRAME - HEADERS, b"."), TARGET)
            time.sleep(0.005 + random.random() / 200)  # not in step with the link's slots
        with QueueReader(out_of.pid) as reader:
            if saturated and not reader.classes(out_of.device)[LEAVES + LOW].backlog:
                raise RuntimeError("the low lane ran dry before the last high frame")
        time.sleep(0.02)
        drain(out_of)
        came, left = entry.finish(), leave.finish()
    mark = type_of_service(HIGH)
    others = [frame.time_ns for frame in left if frame.tos != mark]
    ends = {frame.number: frame.time_ns for frame in left if frame.tos == mark}
    return [
        Wait(ends[frame.number] - frame.time_ns, sum(frame.time_ns < other < ends[frame.number] for other in others))
        for frame in came
    ]


def waits(fabric: Fabric, count: int = 60, rounds: int = 3) -> tuple[list[Wait], list[Wait]]:
    """Stays at an idle port, and at a saturated one."""
    port = port_of(fabric, "gpu0")
    lanes.apply(port, queues_of(port))
    idle: list[Wait] = []
    loaded: list[Wait] = []
    for _ in range(rounds):
        idle += lone_frames(fabric, count, saturated=False)
        loaded += lone_frames(fabric, count, saturated=True)
    return idle, loaded


def drawn(seed: int) -> tuple[LaneTable, dict[int, int]]:
    """A table of two to four lanes of the high table, and frame sizes of 1 KB and more."""
    random = Random(seed)
    count = random.randint(2, 4)
    sizes = {lane: random.randint(1082, FRAME) for lane in range(count)}
    table = LaneTable(
        max_vls=count,
        vlarb_high=",".join(f"{lane}:{random.randint(1, 255)}" for lane in range(count)),
        vlarb_low="0:64",
        sl2vl=",".join(map(str, range(count))),
        frame_bytes=",".join(f"{lane}:{size}" for lane, size in sizes.items()),
    )
    return table, sizes


def exact_shares(table: LaneTable, sizes: dict[int, int], packets: int = 240_000) -> dict[int, float]:
    """The exact arbiter's shares in percent of the bytes, all lanes of `sizes` always backlogged."""
    arbiter = Arbiter(table)
    sent = dict.fromkeys(sizes, 0)
    for _ in range(packets):
        lane = arbiter.choose(sizes)
        sent[lane] += sizes[lane]
    return {lane: 100 * size / sum(sent.values()) for lane, size in sent.items()}


def _shares() -> list[float]:
    errors = []
    with network() as fabric:
        port = port_of(fabric, "gpu0")
        for seed in range(12):
            table, sizes = drawn(seed)
            lanes.apply(port, queues_of(port, table))
            fill(fabric, "dpu0", sizes)
            with QueueReader(port.pid) as reader:
                before = reader.classes(port.device)
                time.sleep(min(0.8, min(sizes.values()) * BACKLOG * 8 / RATE * 0.8))
                after = reader.classes(port.device)
            sent = {lane: after[LEAVES + lane].bytes - before[LEAVES + lane].bytes for lane in sizes}
            exact = exact_shares(table, sizes)
            errors.append(max(abs(100 * size / sum(sent.values()) - exact[lane]) for lane, size in sent.items()))
    return errors


def _wait() -> list[float]:
    with network() as fabric:
        idle, loaded = waits(fabric)
    base = sorted(wait.nanoseconds for wait in idle)[len(idle) // 2]
    return [(wait.nanoseconds - base) / SLOT_NS for wait in loaded]


def _check() -> list[float]:
    with network() as fabric:
        port = port_of(fabric, "gpu0")
        queues = queues_of(port)
        lanes.apply(port, queues)
        taken = []
        with QueueReader(port.pid) as reader:
            for _ in range(500):
                start = time.perf_counter_ns()
                lanes.check(port, queues, reader)
                taken.append((time.perf_counter_ns() - start) / 1000)
    return taken


MEASURES: dict[str, Callable[[], list[float]]] = {"shares": _shares, "wait": _wait, "check": _check}


def main(arguments: Sequence[str] | None = None) -> int:
    """See the head of this file."""
    parser = argparse.ArgumentParser(description="Measure lanes at a switch port of this host.")
    parser.add_argument("what", choices=MEASURES)
    print(json.dumps(MEASURES[parser.parse_args(arguments).what]()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
