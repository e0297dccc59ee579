"""The RoCE form of lanes: DSCP to traffic class, shares by weight (DualPath App. A.1: "DSCP -> TC, four lossless TCs
with PFC, proportional weights"; IEEE 802.1Qaz calls the shares ETS).

A table of traffic classes is put into the words of a lane table, so that one arbiter, one kernel recipe and one set of
counters serve both forms: class n is lane n, all classes stand in one table, and there is no high limit. Knows no port.
"""

from __future__ import annotations

from math import gcd

import msgspec

from testbed.network.lanes import SERVICE_LEVELS, TABLE_ENTRIES, LaneTable, type_of_service

_UNITS_A_PACKET = 64
"""An entry of so many units sends one packet of 4 KB (65 units), as OpenSM's page advises."""
_PACKETS_AN_ENTRY = 3
"""192 units; an entry has at most 255."""
_LAST_DSCP = 63
_ECN_BITS = 2


class TrafficClasses(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One port's traffic classes. Classes are numbered from 0, without gaps."""

    weights: str = "0:33,1:33,2:1,3:33"
    """Each class and its share of the link while all are backlogged, in percent or any other whole number. The paper
    gives no numbers; our choice leaves KV (class 2) about the 1 % that it says remains."""
    dscp: str = "0:0,4:1,8:2,12:3"
    """Class of a DSCP; others are class 0. A soft RNIC marks service level n with DSCP 4 n."""

    def __post_init__(self) -> None:
        """Raises ValueError (msgspec names the path) for classes that cannot be."""
        shares = _pairs("weights", self.weights, 14, (1, 10_000))
        if sorted(shares) != list(range(len(shares))):
            raise ValueError(f"weights: classes are numbered from 0 without gaps, and once each: {self.weights}")
        _pairs("dscp", self.dscp, _LAST_DSCP, (0, len(shares) - 1))
        entries = sum(-(-packets // _PACKETS_AN_ENTRY) for packets in self._packets())
        if entries > TABLE_ENTRIES:
            raise ValueError(
                f"weights: {self.weights} take {entries} entries of {_PACKETS_AN_ENTRY} packets, "
                f"{TABLE_ENTRIES} are allowed; use smaller numbers in the same proportion"
            )

    def lane_table(self) -> LaneTable:
        """The same as lanes: packets of the classes in turn, as many of each as its weight says."""
        left = self._packets()
        entries = []
        while any(left):
            for number, packets in enumerate(left):
                if packets:
                    now = min(packets, _PACKETS_AN_ENTRY)
                    left[number] -= now
                    entries.append(f"{number}:{now * _UNITS_A_PACKET}")
        table = ",".join(entries)
        classes = _pairs("dscp", self.dscp, _LAST_DSCP, (0, len(left) - 1))
        levels = (classes.get(type_of_service(level) >> _ECN_BITS, 0) for level in range(SERVICE_LEVELS))
        # All classes are in the low table: a port whose high table is empty serves it at once, and no limit applies.
        return LaneTable(
            max_vls=len(left),
            high_limit=255,
            vlarb_high="0:0",
            vlarb_low=table,
            sl2vl=",".join(map(str, levels)),
        )

    def _packets(self) -> list[int]:
        """Packets of each class in one round."""
        shares = _pairs("weights", self.weights, 14, (1, 10_000))
        divisor = gcd(*shares.values())
        return [shares[number] // divisor for number in sorted(shares)]


def lanes_of(lanes: LaneTable, classes: TrafficClasses | None) -> LaneTable:
    """The lane table of a fabric, in whichever form it was written."""
    return lanes if classes is None else classes.lane_table()


def _pairs(field: str, text: str, last: int, allowed: tuple[int, int]) -> dict[int, int]:
    pairs: dict[int, int] = {}
    for word in text.split(","):
        first, colon, second = (part.strip() for part in word.partition(":"))
        if not colon or not all(part.isascii() and part.isdecimal() for part in (first, second)):
            raise ValueError(f"{field}: {word!r} is not two whole numbers, as 0:33")
        key, value = int(first), int(second)
        if key > last or not allowed[0] <= value <= allowed[1]:
            raise ValueError(f"{field}: {word!r}; allowed are 0 to {last}, and {allowed[0]} to {allowed[1]} behind it")
        if key in pairs:
            raise ValueError(f"{field} names {key} twice: {text}")
        pairs[key] = value
    return pairs
