"""InfiniBand virtual lanes as queues of a switch port: one HTB tree a port, ours entirely, read back after it is set.

The recipe and its measured limits are those of platform.md §3. Each lane is a leaf that owns next to nothing (8 kbit/s)
and borrows up to the link's rate, so the root gates every packet and the link's rate holds; a 99 % : 1 % split of rates
would let a lane run faster than its link. `prio` stands for the high and the low table, `quantum` for the weight; what
a table comes to is `topologies.lane_queues`. The exact arbiter is `testbed.network.arbiter`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from testbed.network.lanes import type_of_service
from topologies.fabric import SwitchPort
from topologies.lane_queues import LEAVES, Leaf, PortQueues
from topologies.namespaces import network_of
from topologies.programs import ProgramFailed, run
from topologies.queues import ROOT, Filter, Htb, QueueReader

LEAF_BURST = 1_000
LEAF_LIMIT = 5_000
"""Packets that wait in a lane. More than all windows together, since RoCE fabrics are lossless."""
DRAIN_S = 1.0
"""How long what waits in a lane that goes away may take to leave; then it is dropped, and counted."""
_ROOT_CLASS = 0x1_0001
_ROOT_QUANTUM = 60_000
_IPV4, _ALL = 0x0800, 3
_TOS_MASK = 0x00FC_0000


class LaneFault(Exception):
    """The kernel's queues are not those that were asked for."""


def apply(port: SwitchPort, queues: PortQueues) -> tuple[str, ...]:
    """Sets a port's whole tree, reads it back and compares; returns a line for each class as the kernel has it.

    Whatever stood there is replaced, and what waited in it is dropped. Raises LaneFault with the first difference,
    ProgramFailed with tc's own words.
    """
    lines = [f"qdisc replace dev {port.device} root handle 2: pfifo limit 1000"]
    if queues.rate_bits_per_s:
        # r2q is never used, since every class has its quantum: no "quantum is big" in the kernel's log (fault C8).
        first = LEAVES + queues.leaves[0].lane
        lines.append(f"qdisc replace dev {port.device} root handle 1: htb default {first & 0xFFFF:x} r2q 1")
        lines += _class_lines("add", port.device, queues, queues.leaves)
        lines += _filter_lines(port.device, _filters(queues, 1))
    else:
        lines.append(f"qdisc del dev {port.device} root")
    _tc(port, lines)
    return check(port, queues)


def change(port: SwitchPort, before: PortQueues, queues: PortQueues) -> tuple[str, ...]:
    """As `apply`, from the tree `before` in its place: what waits in lanes that stay is kept, in order.

    Packets are turned over to the new lanes first; a lane that goes away may then run empty for DRAIN_S. A lane that
    moves between the tables while it is backlogged has its new priority from when it has run empty once (HTB).
    Raises LaneFault also where the tree was not as `before`, which is then left alone. A change that fails half way
    puts `before` back, at the price of what waited, before it raises.
    """
    check(port, before)
    if not (before.rate_bits_per_s and queues.rate_bits_per_s):
        return apply(port, queues)
    try:
        _turn_over(port, before, queues)
        return check(port, queues)
    except (LaneFault, ProgramFailed):
        apply(port, before)
        raise


def _turn_over(port: SwitchPort, before: PortQueues, queues: PortQueues) -> None:
    kept = {leaf.lane for leaf in before.leaves}
    with QueueReader(port.pid) as reader:
        old = {found.preference for found in reader.filters(port.device)}
        lines = _class_lines("change", port.device, queues, [leaf for leaf in queues.leaves if leaf.lane in kept])
        new = [leaf for leaf in queues.leaves if leaf.lane not in kept]
        lines += _class_lines("add", port.device, queues, new)[1:]
        lines += _filter_lines(port.device, _filters(queues, 3 if 1 in old else 1))
        lines += [
            f"filter del dev {port.device} parent 1: protocol {'ip' if preference % 2 else 'all'} prio {preference}"
            for preference in sorted(old)
        ]
        _tc(port, lines)
        gone = [LEAVES + lane for lane in sorted(kept - {leaf.lane for leaf in queues.leaves})]
        limit = time.monotonic() + DRAIN_S
        while any(reader.classes(port.device)[handle].backlog for handle in gone) and time.monotonic() < limit:
            time.sleep(0.005)
    _tc(port, [f"class del dev {port.device} classid {_handle(handle)}" for handle in gone])


def check(port: SwitchPort, queues: PortQueues, reader: QueueReader | None = None) -> tuple[str, ...]:
    """Compares a port's tree with what it should be: root, classes, their queues, filters. Raises LaneFault.

    Returns the classes as the kernel has them. A caller that asks often hands its `reader` of the port's namespace.
    """
    if reader is None:
        with QueueReader(port.pid) as own:
            return check(port, queues, own)
    qdiscs = reader.qdiscs(port.device)
    root = qdiscs.get(ROOT)
    if not queues.rate_bits_per_s:
        if root is not None and root.kind != "noqueue":
            raise LaneFault(f"{port.name}: planned without shaping, the kernel has {root.kind}")
        return ("unshaped",)
    if root is None or root.kind != "htb":
        raise LaneFault(f"{port.name}: the root is {root.kind if root else 'missing'}, planned htb")
    found = {handle: one.htb for handle, one in reader.classes(port.device).items()}
    _check_classes(port, queues, found)
    for leaf in queues.leaves:
        below = qdiscs.get(leaf.handle)
        if below is None or (below.kind, below.limit) != ("pfifo", LEAF_LIMIT):
            have = f"{below.kind} limit {below.limit}" if below else "missing"
            raise LaneFault(f"{port.name}: the queue of {_handle(leaf.handle)} is {have}, planned pfifo {LEAF_LIMIT}")
    _check_filters(port, queues, reader.filters(port.device))
    return tuple(_line(handle, found[handle]) for handle in sorted(found))


def _check_classes(port: SwitchPort, queues: PortQueues, found: dict[int, Htb | None]) -> None:
    rate = queues.rate_bits_per_s
    expected = {_ROOT_CLASS: Htb(rate, rate, queues.burst_bytes, queues.burst_bytes, _ROOT_QUANTUM, 0)}
    for leaf in queues.leaves:
        expected[leaf.handle] = Htb(
            leaf.rate_bits_per_s, rate, LEAF_BURST, queues.burst_bytes, leaf.quantum, leaf.priority
        )
    if set(found) != set(expected):
        names = ", ".join(_handle(handle) for handle in sorted(set(found) ^ set(expected)))
        raise LaneFault(f"{port.name}: classes {names} are missing or foreign")
    for handle, settings in expected.items():
        have = found[handle]
        if have is None or not _agree(have, settings, leaf=handle != _ROOT_CLASS):
            raise LaneFault(f"{port.name}: class {_handle(handle)} is {have}, planned {settings}")


def _check_filters(port: SwitchPort, queues: PortQueues, found: tuple[Filter, ...]) -> None:
    planned = {one._replace(preference=0) for one in _filters(queues, 1)}
    have = [one._replace(preference=0) for one in found]
    missing = sorted(planned - set(have))
    foreign = [one for one in have if one not in planned]
    for what, filters in (("missing", missing), ("foreign", foreign)):
        if filters:
            raise LaneFault(f"{port.name}: {len(filters)} filters {what}, the first {filters[0]}")
    if len(have) != len(planned):
        raise LaneFault(f"{port.name}: {len(have)} filters, planned {len(planned)}")
    if found and found[-1].protocol != _ALL:
        raise LaneFault(f"{port.name}: the filter for everything is not the last")


def _filters(queues: PortQueues, preference: int) -> list[Filter]:
    """By service level, then everything else (ARP, say) to the first lane: no frame goes past the classes."""
    if not queues.lane_of_level:
        return []
    ours = [
        Filter(preference, _IPV4, _TOS_MASK, type_of_service(level) << 16, 0, LEAVES + lane)
        for level, lane in enumerate(queues.lane_of_level)
    ]
    return [*ours, Filter(preference + 1, _ALL, 0, 0, 0, queues.leaves[0].handle)]


def _filter_lines(device: str, filters: Iterable[Filter]) -> list[str]:
    return [
        f"filter add dev {device} parent 1: protocol {'all' if one.protocol == _ALL else 'ip'} prio {one.preference} "
        f"u32 match u32 {one.value:#x} {one.mask:#x} at {one.offset} flowid {_handle(one.target)}"
        for one in filters
    ]


def _class_lines(verb: str, device: str, queues: PortQueues, leaves: Iterable[Leaf]) -> list[str]:
    """The link's class, then the leaves; a queue below each that is new."""
    rate, burst = f"{queues.rate_bits_per_s}bit", queues.burst_bytes
    bursts = f"burst {burst} cburst {burst}"
    parent = f"class {verb} dev {device} parent 1:"
    lines = [f"{parent} classid 1:1 htb rate {rate} ceil {rate} {bursts} quantum {_ROOT_QUANTUM}"]
    for leaf in leaves:
        lines.append(
            f"{parent}1 classid {_handle(leaf.handle)} htb rate {leaf.rate_bits_per_s}bit ceil {rate} "
            f"burst {LEAF_BURST} cburst {burst} prio {leaf.priority} quantum {leaf.quantum}"
        )
        if verb == "add":
            own = f"{leaf.handle & 0xFFFF:x}:"
            lines.append(f"qdisc add dev {device} parent {_handle(leaf.handle)} handle {own} pfifo limit {LEAF_LIMIT}")
    return lines


def _tc(port: SwitchPort, lines: list[str]) -> None:
    if lines:
        with network_of(port.pid):
            run(["tc", "-batch", "-"], stdin="\n".join(lines) + "\n")


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
    name = "link" if handle == _ROOT_CLASS else f"vl{handle - LEAVES}"
    return (
        f"{name} {_handle(handle)} rate {htb.rate_bits_per_s} ceil {htb.ceil_bits_per_s} burst {htb.burst_bytes} "
        f"quantum {htb.quantum} prio {htb.priority}"
    )
