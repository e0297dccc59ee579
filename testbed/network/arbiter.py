"""The virtual-lane arbiter of an InfiniBand port: weighted round robin over two tables with a high limit.

The rule is a function over plain integers and sequences (`next_turn`), so that a soft RNIC, a simulated port and a
compiled loop share one definition; `Arbiter` only keeps its state. Knows no packets, rates or time. Follows OpenSM's
doc/QoS_management_in_OpenSM.txt §7 (IBA 7.6.9) as collected in platform.md §3.2:

- an entry (lane, weight) may start a packet while it has sent fewer than weight × 64 bytes in its turn; a packet is
  never split and its size is rounded up to whole units, so the last one may overrun; weight 0 is skipped;
- the high table goes first until it has sent high_limit × 4,096 bytes, then one packet of the low table goes, if
  there is one, and the count starts again. 255 is without limit; 0 is one packet;
- if the high table has nothing to send, the low table is served at once, which also starts the count again.

Two points are open in the sources and move no share: whether an entry that has used exactly its weight may send
once more (here not), and whether a spent limit is forgotten while the low table is empty (here not: the first low
packet to come goes at once).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from testbed.network.lanes import LaneTable

UNIT_BYTES: Final = 64
LIMIT_UNITS: Final = 4096 // UNIT_BYTES
UNLIMITED: Final = 255


class Turn(NamedTuple):
    """Where an arbiter stands: the present entry of each table, what it has sent, and what the high table may send."""

    high_entry: int
    high_used: int
    low_entry: int
    low_used: int
    high_left: int
    """Units until a low packet must get its turn; 0 or less means now."""


def limit_units(high_limit: int) -> int:
    """Units that the high table may send between two low packets; at least one packet goes even with limit 0."""
    return max(high_limit * LIMIT_UNITS, 1)


def find_entry(lanes: Sequence[int], weights: Sequence[int], entry: int, used: int, ready: int) -> tuple[int, int]:
    """The entry that may send next and what it has used in its turn, or (-1, 0) if none of its lanes is ready.

    The search starts at `entry` with its turn half used, and may come back to it with a new turn.
    """
    count = len(lanes)
    for step in range(count + 1 if count else 0):
        place = (entry + step) % count
        if step:
            used = 0
        if used < weights[place] and ready >> lanes[place] & 1:
            return place, used
    return -1, 0


def next_turn(
    high: tuple[Sequence[int], Sequence[int]],
    low: tuple[Sequence[int], Sequence[int]],
    high_limit: int,
    turn: Turn,
    ready: int,
    sizes: Sequence[int],
) -> tuple[int, Turn]:
    """The lane whose first packet goes next and the turn after it, or (-1, turn) if no lane that is ready has weight.

    `high` and `low` are (lanes, weights); bit l of `ready` is set if lane l has a packet, `sizes[l]` are its bytes.
    """
    high_entry, high_used, low_entry, low_used, high_left = turn
    for table in (0, 1) if high_left > 0 else (1, 0):
        if table == 0:
            entry, used = find_entry(*high, high_entry, high_used, ready)
            if entry < 0:
                continue
            lane = high[0][entry]
            units = -(-sizes[lane] // UNIT_BYTES)
            left = high_left if high_limit == UNLIMITED else high_left - units
            return lane, Turn(entry, used + units, low_entry, low_used, left)
        entry, used = find_entry(*low, low_entry, low_used, ready)
        if entry < 0:
            continue
        lane = low[0][entry]
        units = -(-sizes[lane] // UNIT_BYTES)
        return lane, Turn(high_entry, high_used, entry, used + units, limit_units(high_limit))
    return -1, turn


class Arbiter:
    """One port's arbiter: `next_turn` with its turn kept."""

    def __init__(self, table: LaneTable) -> None:
        self.lanes = table.max_vls
        self._high = _columns(table.high())
        self._low = _columns(table.low())
        self._limit = table.high_limit
        self.turn = Turn(0, 0, 0, 0, limit_units(table.high_limit))

    def next_lane(self, ready: int, sizes: Sequence[int]) -> int:
        """The lane to serve now, or -1. Its packet counts as sent."""
        lane, self.turn = next_turn(self._high, self._low, self._limit, self.turn, ready, sizes)
        return lane

    def choose(self, sizes: Mapping[int, int]) -> int:
        """As `next_lane`, from the bytes of each waiting lane's first packet."""
        ready = 0
        column = [0] * self.lanes
        for lane, size in sizes.items():
            ready |= 1 << lane
            column[lane] = size
        return self.next_lane(ready, column)


def _columns(entries: tuple[tuple[int, int], ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(lane for lane, _ in entries), tuple(weight for _, weight in entries)
