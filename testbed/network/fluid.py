"""Fluid sharing: at which rate each transfer flows while they share ports by lane.

A transfer crosses any number of ports: the sender's uplink, the switch's port to the receiver, PCIe links, memory.
Functions over plain integers; bits per second throughout. Knows no packets, verbs or memory. Modelled after the
arbiter of `testbed.network.arbiter` in the long run:

1. lanes that only the low table serves get their floor: one packet for each high_limit × 4,096 bytes, shared among
   the lanes of the low table that are active at the port (limit 255: no floor);
2. lanes of the high table share what is left by weighted max-min (progressive filling);
3. low lanes get the rest, again by weighted max-min.

What crosses a port beside the NIC whose lanes arbitrate it (`BESIDE`: a GPU's copy engine on a PCIe link) takes turns
with all of that NIC together, as requesters at a PCIe switch do: half of the port is its own, and more where the NIC
leaves more.

A lane's weight is split among its transfers at the port where there are more of them, so that a weight is the same
at all ports and the filling exact for it. A port without lanes (host memory) has no weights and no floor of its own:
what crosses it keeps the weight it has elsewhere, high lanes first. Order of summation is the order of posting;
divisions round down, so no port is ever overfull and the same input gives the same rates on any machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from testbed.network.arbiter import LIMIT_UNITS, UNIT_BYTES, UNLIMITED
from testbed.network.lanes import LaneTable
from testbed.units import SECOND, Nanoseconds

BESIDE: Final = -1
"""In place of a lane: no lane's, and no table holds it back."""
_WEIGHT_SCALE: Final = 1 << 32
"""Lane weights are multiplied by this before they are split, so that splitting keeps its precision."""


class LaneShares:
    """The long-run weights of one arbitration table, by lane."""

    __slots__ = ("high", "limit", "low")

    def __init__(self, table: LaneTable) -> None:
        self.high = _weights(table.high(), table.max_vls)
        self.low = _weights(table.low(), table.max_vls)
        self.limit = table.high_limit


def _weights(entries: Sequence[tuple[int, int]], lanes: int) -> tuple[int, ...]:
    weights = [0] * lanes
    for lane, weight in entries:
        weights[lane] += weight
    return tuple(weights)


class FluidPort:
    """One direction of a link or another resource, and the transfers that cross it now. No table: it has no lanes."""

    __slots__ = ("demand", "rate_bits_per_s", "shares", "transfers")

    def __init__(self, rate_bits_per_s: int, table: LaneTable | None) -> None:
        self.rate_bits_per_s = rate_bits_per_s
        self.shares = None if table is None else LaneShares(table)
        self.transfers: dict[int, Transfer] = {}
        self.demand = 0
        """What its transfers could take at most, by their ports with lanes; counted for ports without."""

    @property
    def binds(self) -> bool:
        """False for a port without lanes that its transfers cannot fill, whatever the others do."""
        return self.shares is not None or self.demand > self.rate_bits_per_s

    def enter(self, transfer: Transfer) -> None:
        """One more transfer, once for each time that it crosses the port."""
        self.transfers[transfer.number] = transfer
        if self.shares is None:
            self.demand += transfer.most()

    def leave(self, transfer: Transfer) -> None:
        """As `enter`, the other way about."""
        self.transfers.pop(transfer.number, None)
        if self.shares is None:
            self.demand -= transfer.most()


class Transfer:
    """Bytes on their way through ports. `left` counts bits times 1e9, so rate × nanoseconds subtracts exactly."""

    __slots__ = ("ended", "high", "lane", "left", "number", "ports", "rate", "since", "version", "weight")

    def __init__(self, number: int, size_bytes: int, lane: int, ports: tuple[FluidPort, ...], now: Nanoseconds) -> None:
        self.number = number
        self.left = size_bytes * 8 * SECOND
        self.lane = lane
        self.ports = ports
        shares = [port.shares for port in ports if port.shares is not None and lane != BESIDE]
        self.high = all(one.high[lane] for one in shares)
        """Whether the high table of every port with lanes serves it."""
        self.weight = min((one.high[lane] or one.low[lane] for one in shares), default=1)
        """Of its lane, at the port where that is least."""
        self.rate = 0
        self.since = now
        self.version = 0
        """Grows with each change of rate; an older appointment for the end is void."""
        self.ended: Callable[[Nanoseconds], None] = _nothing
        """What happens at the end."""

    def advance(self, now: Nanoseconds) -> None:
        """Takes off what has flowed since the last change."""
        self.left -= self.rate * (now - self.since)
        self.since = now

    def most(self) -> int:
        """The rate that its ports with lanes allow at best."""
        return min(port.rate_bits_per_s for port in self.ports if port.shares is not None)

    def end(self) -> Nanoseconds | None:
        """When the last bit has flowed at the present rate; None while it is starved."""
        return self.since + max(0, -(-self.left // self.rate)) if self.rate else None


def _nothing(_now: Nanoseconds) -> None:
    pass


def connected(start: Iterable[FluidPort]) -> list[Transfer]:
    """All transfers that share ports with those of `start`, directly or through others, in order of number.

    Ports that cannot be filled join nobody, unless they are among `start`: one of them may have been full until now.
    """
    waiting = list(start)
    seen = {id(port) for port in waiting}
    found: dict[int, Transfer] = {}
    while waiting:
        for number, transfer in waiting.pop().transfers.items():
            if number not in found:
                found[number] = transfer
                for port in transfer.ports:
                    if id(port) not in seen and port.binds:
                        seen.add(id(port))
                        waiting.append(port)
    return [found[number] for number in sorted(found)]


def share(transfers: Sequence[Transfer], frame_bytes: int) -> list[int]:
    """The rate of each of a connected set of transfers. `frame_bytes` is the size of a full packet's frame.

    A rate is 0 where the high table is without limit and always has something to send: the lane starves.
    """
    if len(transfers) == 1:
        ports = transfers[0].ports
        return [min(port.rate_bits_per_s // ports.count(port) for port in ports)]
    ways = [tuple(port for port in transfer.ports if port.binds) for transfer in transfers]
    room: dict[int, int] = {}
    counts: dict[int, dict[int, int]] = {}
    for way in ways:
        for port in way:
            if id(port) not in room:
                room[id(port)] = port.rate_bits_per_s
                counts[id(port)] = _count(port)
    beside = [place for place, transfer in enumerate(transfers) if transfer.lane == BESIDE]
    high = [place for place, transfer in enumerate(transfers) if transfer.high and transfer.lane != BESIDE]
    low = [place for place, transfer in enumerate(transfers) if not transfer.high]
    rates = [0] * len(transfers)
    if high and low:
        for place in low:
            lane = transfers[place].lane
            floor = min(_floor(port, lane, frame_bytes, counts[id(port)]) for port in ways[place])
            rates[place] = floor
            for port in ways[place]:
                room[id(port)] -= floor
    weights = [_weight(transfer, way, counts) for transfer, way in zip(transfers, ways, strict=True)]
    if not beside:
        _fill(ways, weights, high, room, rates)
        _fill(ways, weights, low, room, rates)
        return rates
    halves = _halves(transfers, beside, ways, weights, high, room)
    _fill(halves, weights, sorted(high + beside), room, rates)
    _fill(ways, weights, low, room, rates)
    _fill(ways, weights, beside, room, rates)
    return rates


def _halves(
    transfers: Sequence[Transfer],
    beside: Sequence[int],
    ways: Sequence[tuple[FluidPort, ...]],
    weights: list[int],
    high: Sequence[int],
    room: dict[int, int],
) -> list[tuple[FluidPort, ...]]:
    """The ways with, for each that goes beside a NIC, a port of half the rate; it weighs what the NIC's high lanes do.

    Its half is what it gets while the NIC's lanes have something to send, high or low; the rest comes last.
    """
    halved = list(ways)
    for place in beside:
        ports = [port for port in transfers[place].ports if port.shares is not None]
        against = [other for other in high if any(port in ways[other] for port in ports)]
        weights[place] = sum(weights[other] for other in against) or _WEIGHT_SCALE
        half = FluidPort(min(port.rate_bits_per_s for port in ports) // 2, None)
        room[id(half)] = half.rate_bits_per_s
        halved[place] = (*ways[place], half)
    return halved


def _count(port: FluidPort) -> dict[int, int]:
    """How often each lane crosses a port; what goes beside the lanes is not counted where there are some."""
    counts: dict[int, int] = {}
    for transfer in port.transfers.values():
        if transfer.lane == BESIDE and port.shares is not None:
            continue
        times = 1 if port.shares is not None else transfer.ports.count(port)
        counts[transfer.lane] = counts.get(transfer.lane, 0) + times
    return counts


def _floor(port: FluidPort, lane: int, frame_bytes: int, counts: dict[int, int]) -> int:
    """What one transfer of a low lane gets while the high table has always something to send."""
    shares = port.shares
    if shares is None:
        return port.rate_bits_per_s // sum(counts.values())
    if shares.limit == UNLIMITED:
        return 0
    if not any(shares.high[other] for other in counts):
        return port.rate_bits_per_s // len(port.transfers)
    turn = max(shares.limit * LIMIT_UNITS * UNIT_BYTES, 1) + frame_bytes
    contenders = sum(shares.low[other] for other in counts)
    return port.rate_bits_per_s * frame_bytes * shares.low[lane] // (turn * max(contenders, 1) * counts[lane])


def _weight(transfer: Transfer, way: Sequence[FluidPort], counts: dict[int, dict[int, int]]) -> int:
    lane, most = transfer.lane, 1
    for port in way:
        if port.shares is not None:
            most = max(most, counts[id(port)].get(lane, 0))
    return max(1, transfer.weight * _WEIGHT_SCALE // most)


def _fill(
    ways: Sequence[Sequence[FluidPort]],
    weights: Sequence[int],
    places: Sequence[int],
    room: dict[int, int],
    rates: list[int],
) -> None:
    """Raises the `places` together, by weight, until each has a port that is full (progressive filling)."""
    members: dict[int, list[int]] = {}
    loads: dict[int, int] = {}
    for place in places:
        for port in ways[place]:
            members.setdefault(id(port), []).append(place)
            loads[id(port)] = loads.get(id(port), 0) + weights[place]
    open_places = set(places)
    while open_places:
        tightest = -1
        for key, load in loads.items():
            # room / load compared without division: exact, and the first port wins a tie.
            if load and (tightest < 0 or room[key] * loads[tightest] < room[tightest] * load):
                tightest = key
        level_room, level_load = room[tightest], loads[tightest]
        for place in members[tightest]:
            if place not in open_places:
                continue
            open_places.discard(place)
            gain = level_room * weights[place] // level_load
            rates[place] += gain
            for port in ways[place]:
                room[id(port)] -= gain
                loads[id(port)] -= weights[place]
