"""InfiniBand virtual lanes as queues of a switch port: one HTB tree a port, ours entirely, read back after it is set.

The recipe and its measured limits are those of platform.md §3. Each lane is a leaf that owns next to nothing (8 kbit/s)
and borrows up to the link's rate, so the root gates every packet and the link's rate holds; a 99 % : 1 % split of rates
would let a lane run faster than its link. `prio` stands for the high and the low table, `quantum` for the weight.
What the kernel cannot do exactly: a lane that stands in the low table alone has its share as a token rate, which is
right on average (§3.1), not packet by packet. The exact arbiter is `testbed.network.arbiter`.
"""

from __future__ import annotations

from typing import NamedTuple

from testbed.network.lanes import SERVICE_LEVELS, LaneTable, type_of_service
from topologies.fabric import SwitchPort
from topologies.namespaces import network_of
from topologies.programs import run
from topologies.queues import Htb, QueueReader

LEAF_RATE = 8_000
"""Bits per second that a lane owns: as good as nothing."""
LEAF_BURST = 1_000
ROOT_BURST = 4_000
"""At most one packet of MTU 4200, so that a lone message does not outrun the link (platform.md §3)."""
LEAF_LIMIT = 5_000
"""Packets that wait in a lane. More than all windows together, since RoCE fabrics are lossless."""
ETHERNET_HEADER = 14
WEIGHT_UNIT = 64
_ROOT_CLASS = 0x1_0001
_LEAVES = 0x1_0010
UNLIMITED = 255
"""`qos_high_limit` without limit: the low table may starve."""
_HIGH_LIMIT_UNIT = 4_096


class LaneFault(Exception):
    """The kernel's queues are not those that were asked for."""


class Leaf(NamedTuple):
    """The HTB leaf of one lane."""

    lane: int
    priority: int
    quantum: int
    rate_bits_per_s: int

    @property
    def handle(self) -> int:
        """The class, as 1:10 for lane 0."""
        return _LEAVES + self.lane


class PortQueues(NamedTuple):
    """The tree of one port: rate 0 is a port without shaping."""

    rate_bits_per_s: int
    burst_bytes: int
    leaves: tuple[Leaf, ...]
    lane_of_level: tuple[int, ...]


def leaves(table: LaneTable, rate_bits_per_s: int, frame_bytes: int) -> tuple[Leaf, ...]:
    """A leaf for each lane that has a weight. `frame_bytes` is the longest frame, header included."""
    high = _weights(table.high())
    low = _weights(table.low())
    first = high or low  # where the high table is empty, the low one is all there is
    found = [Leaf(lane, 0, quantum, LEAF_RATE) for lane, quantum in _quanta(first, frame_bytes).items()]
    rest = {lane: weight for lane, weight in low.items() if lane not in first}
    for lane, quantum in _quanta(rest, frame_bytes).items():
        floor = low_floor(table, low, lane, rate_bits_per_s, frame_bytes)
        found.append(Leaf(lane, 1, quantum, max(LEAF_RATE, floor)))
    return tuple(sorted(found))


def low_floor(table: LaneTable, low: dict[int, int], lane: int, rate_bits_per_s: int, frame_bytes: int) -> int:
    """What a lane of the low table alone gets, in bit/s, while everything is backlogged (IBA 7.6.9; platform.md §3.1).

    One packet of the low table passes for every `high_limit` × 4,096 bytes of the high one; those packets are shared
    among all lanes of the low table by weight.
    """
    if table.high_limit == UNLIMITED:
        return 0
    high_bytes = max(table.high_limit * _HIGH_LIMIT_UNIT, frame_bytes)
    share_weight = low[lane] * frame_bytes
    return rate_bits_per_s * share_weight // ((high_bytes + frame_bytes) * sum(low.values()))


def queues_of(port: SwitchPort) -> PortQueues:
    """The tree that a port of the plan gets: lanes on RoCE fabrics, one plain class elsewhere, none at rate 0."""
    rate = port.port.kernel_rate_bits_per_s
    frame = port.fabric.mtu + ETHERNET_HEADER
    burst = min(ROOT_BURST, frame)
    if rate == 0:
        return PortQueues(0, 0, (), (0,) * SERVICE_LEVELS)
    if port.fabric.lanes is None:
        return PortQueues(rate, burst, (Leaf(0, 0, frame, LEAF_RATE),), (0,) * SERVICE_LEVELS)
    table = port.fabric.lanes
    return PortQueues(rate, burst, leaves(table, rate, frame), tuple(map(table.lane_of, range(SERVICE_LEVELS))))


def apply(port: SwitchPort, queues: PortQueues) -> tuple[str, ...]:
    """Sets a port's whole tree, reads it back and compares; returns a line for each class as the kernel has it.

    Whatever stood there is replaced. Raises LaneFault with the first difference, ProgramFailed with tc's own words.
    """
    with network_of(port.pid):
        run(["tc", "-batch", "-"], stdin=f"qdisc replace dev {port.device} root handle 2: pfifo limit 1000\n")
        if queues.rate_bits_per_s:
            run(["tc", "-batch", "-"], stdin="\n".join(_commands(port.device, queues)) + "\n")
        else:
            run(["tc", "-batch", "-"], stdin=f"qdisc del dev {port.device} root\n")
    return check(port, queues)


def check(port: SwitchPort, queues: PortQueues) -> tuple[str, ...]:
    """Compares a port's tree with what it should be; returns the classes as the kernel has them. Raises LaneFault."""
    with QueueReader(port.pid) as reader:
        root = reader.root(port.device)
        found = reader.classes(port.device)
    if not queues.rate_bits_per_s:
        if root is not None and root.kind != "noqueue":
            raise LaneFault(f"{port.name}: planned without shaping, the kernel has {root.kind}")
        return ("unshaped",)
    if root is None or root.kind != "htb":
        raise LaneFault(f"{port.name}: the root is {root.kind if root else 'missing'}, planned htb")
    rate = queues.rate_bits_per_s
    expected = {_ROOT_CLASS: Htb(rate, rate, queues.burst_bytes, queues.burst_bytes, _root_quantum(port), 0)}
    for leaf in queues.leaves:
        expected[leaf.handle] = Htb(
            leaf.rate_bits_per_s, rate, LEAF_BURST, queues.burst_bytes, leaf.quantum, leaf.priority
        )
    if set(found) != set(expected):
        names = ", ".join(_handle(handle) for handle in sorted(set(found) ^ set(expected)))
        raise LaneFault(f"{port.name}: classes {names} are missing or foreign")
    for handle, settings in expected.items():
        have = found[handle].htb
        if have is None or not _agree(have, settings, leaf=handle != _ROOT_CLASS):
            raise LaneFault(f"{port.name}: class {_handle(handle)} is {have}, planned {settings}")
    return tuple(_line(handle, found[handle].htb) for handle in sorted(found))


def _weights(entries: tuple[tuple[int, int], ...]) -> dict[int, int]:
    weights: dict[int, int] = {}
    for lane, weight in entries:
        if weight:
            weights[lane] = weights.get(lane, 0) + weight
    return weights


def _quanta(weights: dict[int, int], frame_bytes: int) -> dict[int, int]:
    """Bytes a turn, in the ratio of the weights. Deficit round robin serves one packet a turn to whatever has less
    than a packet's worth, so the lightest lane gets at least that.
    """
    if not weights:
        return {}
    factor = max(1, -(-frame_bytes // (min(weights.values()) * WEIGHT_UNIT)))
    return {lane: weight * WEIGHT_UNIT * factor for lane, weight in weights.items()}


def _root_quantum(port: SwitchPort) -> int:
    return max(60_000, port.fabric.mtu)


def _commands(device: str, queues: PortQueues) -> list[str]:
    rate, burst = f"{queues.rate_bits_per_s}bit", queues.burst_bytes
    bursts = f"burst {burst} cburst {burst}"
    first = queues.leaves[0].lane
    lines = [
        # r2q is never used, since every class has its quantum: no "quantum is big" in the kernel's log (fault C8).
        f"qdisc replace dev {device} root handle 1: htb default {0x10 + first:x} r2q 1",
        f"class add dev {device} parent 1: classid 1:1 htb rate {rate} ceil {rate} {bursts} quantum 60000",
    ]
    for leaf in queues.leaves:
        lines.append(
            f"class add dev {device} parent 1:1 classid {_handle(leaf.handle)} htb rate {leaf.rate_bits_per_s}bit "
            f"ceil {rate} burst {LEAF_BURST} cburst {burst} prio {leaf.priority} quantum {leaf.quantum}"
        )
        own = f"{0x10 + leaf.lane:x}:"
        lines.append(f"qdisc add dev {device} parent {_handle(leaf.handle)} handle {own} pfifo limit {LEAF_LIMIT}")
    if len(queues.leaves) > 1:
        for level, lane in enumerate(queues.lane_of_level):
            lines.append(
                f"filter add dev {device} parent 1: protocol ip prio 1 u32 "
                f"match ip tos {type_of_service(level):#x} 0xfc flowid {_handle(_LEAVES + lane)}"
            )
    return lines


def _handle(handle: int) -> str:
    return f"{handle >> 16:x}:{handle & 0xFFFF:x}"


def _agree(have: Htb, planned: Htb, *, leaf: bool) -> bool:
    def near(found: int, asked: int, step: int = 8) -> bool:
        return abs(found - asked) <= max(step, asked // 50)

    microsecond = planned.ceil_bits_per_s // 8_000_000  # tc keeps rates in bytes per second, bursts in microseconds

    return (
        near(have.rate_bits_per_s, planned.rate_bits_per_s)
        and near(have.ceil_bits_per_s, planned.ceil_bits_per_s)
        and near(have.burst_bytes, planned.burst_bytes, max(8, microsecond))
        and near(have.cburst_bytes, planned.cburst_bytes, max(8, microsecond))
        and (not leaf or (have.quantum == planned.quantum and have.priority == planned.priority))
    )


def _line(handle: int, htb: Htb | None) -> str:
    if htb is None:
        return _handle(handle)
    name = "link" if handle == _ROOT_CLASS else f"vl{handle - _LEAVES}"
    return (
        f"{name} {_handle(handle)} rate {htb.rate_bits_per_s} ceil {htb.ceil_bits_per_s} burst {htb.burst_bytes} "
        f"quantum {htb.quantum} prio {htb.priority}"
    )
