"""InfiniBand QoS: the service-level map and the two arbitration tables of a port.

Strings are those of OpenSM (doc/QoS_management_in_OpenSM.txt §7, after IBA 7.6.9), as the DualPath paper gives them:
`qos_max_vls 4`, `qos_high_limit 240`, `qos_vlarb_high 0:192,1:192,2:0,3:192`, `qos_vlarb_low …`, `qos_sl2vl 0,1,2,3,…`.
"""

from __future__ import annotations

import msgspec


class LaneTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One port's lanes. Weights are in units of 64 bytes; 0 means the entry is skipped."""

    max_vls: int = 4
    """Data lanes in use, 1 to 15 (VL15 is management and not modelled)."""
    high_limit: int = 240
    """Units of 4,096 bytes that the high table may send before one low packet; 255 = without limit."""
    vlarb_high: str = "0:192,1:192,2:0,3:192"
    vlarb_low: str = "0:192,1:192,2:64,3:192"
    sl2vl: str = "0,1,2,3"
    """Virtual lane of service level 0, 1, …; levels not named use the last lane named."""
    frame_bytes: str = ""
    """Ethernet frame that a lane's backlog is made of, as `0:1082,2:106`; lanes not named: a full packet of the path
    MTU. Only the kernel's queues need it, which serve bytes and not packets (docs/models/lanes.md)."""

    backlogged: str = ""
    """Lanes that have something to send when the low table is starved, as `0,2`; empty: all. The kernel gives a lane of
    the low table alone its exact share of that mix as a floor (docs/models/lanes.md)."""

    def __post_init__(self) -> None:
        """Raises ValueError (msgspec names the path) for strings that OpenSM would not take either."""
        if not 1 <= self.max_vls <= 15:
            raise ValueError(f"max_vls is {self.max_vls}; allowed is 1 to 15")
        if not 0 <= self.high_limit <= 255:
            raise ValueError(f"high_limit is {self.high_limit}; allowed is 0 to 255")
        if len(self.sl2vl.split(",")) > SERVICE_LEVELS:
            raise ValueError(f"sl2vl names {len(self.sl2vl.split(','))} lanes; allowed are 1 to {SERVICE_LEVELS}")
        self.frames()
        self.mix()
        sendable = {lane for lane, weight in (*self.high(), *self.low()) if weight}
        for level in range(SERVICE_LEVELS):
            lane = self.lane_of(level)
            if lane not in sendable:
                where = "vlarb_high or vlarb_low"
                raise ValueError(f"sl2vl: level {level} uses lane {lane}, which has no weight in {where}")

    def high(self) -> tuple[tuple[int, int], ...]:
        """The high-priority table: (lane, weight in units of 64 bytes), in order; a lane may be repeated."""
        return _entries("vlarb_high", self.vlarb_high, self.max_vls)

    def low(self) -> tuple[tuple[int, int], ...]:
        """The low-priority table, as `high`."""
        return _entries("vlarb_low", self.vlarb_low, self.max_vls)

    def frames(self) -> dict[int, int]:
        """The frame size of each lane that `frame_bytes` names."""
        if not self.frame_bytes:
            return {}
        found = _pairs("frame_bytes", self.frame_bytes, self.max_vls - 1, FRAME_BYTES)
        if len(dict(found)) < len(found):
            raise ValueError(f"frame_bytes names a lane twice: {self.frame_bytes}")
        return dict(found)

    def mix(self) -> tuple[int, ...]:
        """The lanes that `backlogged` names; all of them where it names none."""
        if not self.backlogged:
            return tuple(range(self.max_vls))
        return tuple(_integer("backlogged", word, 0, self.max_vls - 1) for word in self.backlogged.split(","))

    def lane_of(self, service_level: int) -> int:
        """The virtual lane of a service level 0 to 15."""
        lanes = [_integer("sl2vl", word, 0, self.max_vls - 1) for word in self.sl2vl.split(",")]
        return lanes[min(service_level, len(lanes) - 1)]


SERVICE_LEVELS = 16
TABLE_ENTRIES = 64
"""Most entries of an arbitration table (the range of PortInfo's VLArbHighCap)."""


FRAME_BYTES = (60, 9216)
"""The least and the longest frame, without FCS."""


def type_of_service(service_level: int) -> int:
    """The IPv4 TOS byte that carries a service level on Ethernet: DSCP = 4 × level, so all 16 fit and ECN stays 0.

    Soft RNICs set it on every packet, switch ports and captures read it. ICRC does not cover it (IBA annex A17).
    """
    return service_level << 4


def _entries(field: str, text: str, max_vls: int) -> tuple[tuple[int, int], ...]:
    entries = _pairs(field, text, max_vls - 1, (0, 255))
    if len(entries) > TABLE_ENTRIES:
        raise ValueError(f"{field} has {len(entries)} entries; allowed are 1 to {TABLE_ENTRIES}")
    return entries


def _pairs(field: str, text: str, last_lane: int, allowed: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    pairs = []
    for word in text.split(","):
        lane, colon, number = word.partition(":")
        if not colon:
            what = "lane:bytes, as 0:1082" if field == "frame_bytes" else "lane:weight, as 0:192"
            raise ValueError(f"{field}: {word!r} is not {what}")
        pairs.append((_integer(field, lane, 0, last_lane), _integer(field, number, *allowed)))
    return tuple(pairs)


def _integer(field: str, word: str, low: int, high: int) -> int:
    word = word.strip()
    if not (word.isascii() and word.isdecimal() and low <= int(word) <= high):
        raise ValueError(f"{field}: {word!r} is not a whole number from {low} to {high}")
    return int(word)
