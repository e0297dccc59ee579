"""What a lane table means for the kernel's queues: which HTB leaf each lane gets. Only arithmetic; sets nothing.

The exact arbiter (`testbed.network.arbiter`; OpenSM's QoS page §7, after IBA 7.6.9) lets an entry start packets while
it has sent less than its weight, so the last packet overruns, and the overrun is forgotten. HTB's deficit round robin
remembers it. Both give the same turns if a quantum is a whole number of the lane's frames, hence a lane's frame size is
part of its table (`LaneTable.frame_bytes`, docs/decisions/0010).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from testbed.experiment.plan import FabricPlan
from testbed.network.arbiter import UNIT_BYTES, UNLIMITED, limit_units
from testbed.network.lanes import SERVICE_LEVELS, LaneTable
from topologies.fabric import SwitchPort

LEAF_RATE = 8_000
"""Bits per second that a lane owns: as good as nothing."""
ROOT_BURST = 4_000
"""At most one packet of MTU 4200, so that a lone message does not outrun the link (platform.md §3)."""
LEAVES = 0x1_0010
"""The class of lane 0."""
_ETHERNET = 14
_ROCE = 58
"""What a full RoCE packet adds to the path MTU: Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4."""
_MTU_ROOM = 80
"""Between path MTU and Ethernet MTU, at least (rxe's reserve)."""


class Leaf(NamedTuple):
    """The HTB leaf of one lane."""

    lane: int
    priority: int
    """0: in the high table; 1: in the low one alone."""
    quantum: int
    rate_bits_per_s: int

    @property
    def handle(self) -> int:
        """The class, as 1:10 for lane 0."""
        return LEAVES + self.lane


class PortQueues(NamedTuple):
    """The tree of one port: rate 0 is a port without shaping."""

    rate_bits_per_s: int
    burst_bytes: int
    leaves: tuple[Leaf, ...]
    lane_of_level: tuple[int, ...]
    """The lane of each service level; empty where the port has no lanes and hence no filters."""


def queues_of(port: SwitchPort, table: LaneTable | None = None) -> PortQueues:
    """The tree that a port gets: lanes on RoCE fabrics, one plain class elsewhere, none at rate 0.

    `table` takes the place of the plan's. Raises ValueError for a table on a fabric that has no lanes.
    """
    rate = port.port.kernel_rate_bits_per_s
    longest = port.fabric.mtu + _ETHERNET
    burst = min(ROOT_BURST, longest)
    if table is not None and port.fabric.lanes is None:
        raise ValueError(f"{port.name}: fabric {port.fabric.name} has no lanes")
    table = table or port.fabric.lanes
    if rate == 0:
        return PortQueues(0, 0, (), ())
    if table is None:
        return PortQueues(rate, burst, (Leaf(0, 0, longest, LEAF_RATE),), ())
    levels = tuple(map(table.lane_of, range(SERVICE_LEVELS)))
    return PortQueues(rate, burst, leaves(table, rate, full_frame(port.fabric)), levels)


def full_frame(fabric: FabricPlan) -> int:
    """Bytes of a full packet's frame: the largest path MTU that the fabric's Ethernet MTU carries, and its headers."""
    fitting = [size for size in (4096, 2048, 1024, 512, 256) if size + _MTU_ROOM <= fabric.mtu]
    return (fitting[0] if fitting else fabric.mtu - _MTU_ROOM) + _ROCE


def leaves(table: LaneTable, rate_bits_per_s: int, frame_bytes: int) -> tuple[Leaf, ...]:
    """A leaf for each lane that has a weight. `frame_bytes` are those of lanes whose frames the table does not name."""
    frames = dict.fromkeys(range(table.max_vls), frame_bytes) | table.frames()
    high, low = turns(table.high(), frames), turns(table.low(), frames)
    first = high or low  # where the high table is empty, the low one is all there is
    found = [Leaf(lane, 0, packets * frames[lane], LEAF_RATE) for lane, packets in first.items()]
    for lane, packets in low.items():
        if lane not in first:
            floor = low_floor(table, lane, rate_bits_per_s, frames, {*table.mix(), lane})
            found.append(Leaf(lane, 1, packets * frames[lane], max(LEAF_RATE, floor)))
    return tuple(sorted(found))


def turns(entries: tuple[tuple[int, int], ...], frames: Mapping[int, int]) -> dict[int, int]:
    """Packets that each lane sends while the arbiter goes once around a table: an entry overruns to whole packets."""
    found: dict[int, int] = {}
    for lane, weight in entries:
        if weight:
            found[lane] = found.get(lane, 0) + -(-weight // _units(frames[lane]))
    return found


def low_floor(
    table: LaneTable, lane: int, rate_bits_per_s: int, frames: Mapping[int, int], active: Collection[int]
) -> int:
    """What a lane of the low table alone gets, in bit/s, while the lanes `active` are backlogged (IBA 7.6.9).

    One packet of the low table passes for every `high_limit` × 4,096 bytes of the high one, rounded up to its packets;
    those opportunities go round the active lanes of the low table by weight, also to lanes that have the high one.
    """
    if table.high_limit == UNLIMITED:
        return 0
    high = {one: packets for one, packets in turns(table.high(), frames).items() if one in active}
    low = {one: packets for one, packets in turns(table.low(), frames).items() if one in active}
    if not high or lane not in low:
        return 0
    sent = sum(high.values())
    units = sum(packets * _units(frames[one]) for one, packets in high.items())
    before = -(-limit_units(table.high_limit) * sent // units)  # high packets before a low one
    high_bytes = before * sum(packets * frames[one] for one, packets in high.items()) / sent
    round_bytes = sum(packets * (frames[one] + high_bytes) for one, packets in low.items())
    return int(rate_bits_per_s * low[lane] * frames[lane] / round_bytes)


def _units(frame_bytes: int) -> int:
    return -(-frame_bytes // UNIT_BYTES)
