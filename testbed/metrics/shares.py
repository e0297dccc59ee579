"""What every port and virtual lane carried, and which share of its port a lane had.

Made from link.measured alone; rates are in true units already. A share is of bytes over the whole run.
"""

from __future__ import annotations

import msgspec

from testbed.events.fidelity_events import LinkMeasured
from testbed.events.log import Record
from testbed.machine import Event
from testbed.units import SECOND

WHOLE_PORT = -1
"""Lane number under which a port's own counters are logged."""


class Carried(msgspec.Struct):
    """Sums over the readings of one lane of one port."""

    port: str
    lane: int
    bytes: int = 0
    packets: int = 0
    drops: int = 0
    interval: int = 0
    """Wall nanoseconds of all readings."""
    weighted_bits: int = 0
    """Sum of true rate × wall interval, for the mean rate; in bits, so that 64 bits hold any run."""
    peak_bits_per_s: int = 0
    setting_bits_per_s: int = 0


class ShareState(msgspec.Struct):
    """By "port lane"."""

    lanes: dict[str, Carried] = {}


class LaneShare(msgspec.Struct, frozen=True):
    """One lane of one port over the whole run; `lane` -1 is the port itself."""

    port: str
    lane: int
    bytes: int
    packets: int
    drops: int
    share: float | None
    """Of the bytes of the port's lanes; None for a whole port or one that carried nothing."""
    mean_bits_per_s: int
    peak_bits_per_s: int
    setting_bits_per_s: int


class ShareFold:
    """Sums link.measured by port and lane."""

    state = ShareState
    takes: frozenset[type[Event]] = frozenset({LinkMeasured})

    def start(self) -> ShareState:
        """No reading yet."""
        return ShareState()

    def step(self, state: ShareState, record: Record) -> ShareState:
        """Adds one reading."""
        event = record.event
        if isinstance(event, LinkMeasured):
            lane = state.lanes.setdefault(f"{event.port} {event.lane}", Carried(event.port, event.lane))
            lane.bytes += event.bytes
            lane.packets += event.packets
            lane.drops += event.drops
            lane.interval += event.interval
            lane.weighted_bits += event.rate_bits_per_s * event.interval // SECOND
            lane.peak_bits_per_s = max(lane.peak_bits_per_s, event.rate_bits_per_s)
            lane.setting_bits_per_s = event.setting_bits_per_s
        return state

    def result(self, state: ShareState) -> tuple[LaneShare, ...]:
        """All lanes, by port and number."""
        totals: dict[str, int] = {}
        for lane in state.lanes.values():
            if lane.lane != WHOLE_PORT:
                totals[lane.port] = totals.get(lane.port, 0) + lane.bytes
        found = sorted(state.lanes.values(), key=lambda lane: (lane.port, lane.lane))
        return tuple(_share(lane, totals.get(lane.port, 0)) for lane in found)


def _share(lane: Carried, total: int) -> LaneShare:
    return LaneShare(
        port=lane.port,
        lane=lane.lane,
        bytes=lane.bytes,
        packets=lane.packets,
        drops=lane.drops,
        share=round(lane.bytes / total, 6) if total and lane.lane != WHOLE_PORT else None,
        mean_bits_per_s=lane.weighted_bits * SECOND // lane.interval if lane.interval else 0,
        peak_bits_per_s=lane.peak_bits_per_s,
        setting_bits_per_s=lane.setting_bits_per_s,
    )
