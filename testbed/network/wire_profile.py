"""What a bench's wire can do, in a few figures: those of a self-test of the host, or the modelled ones of a two-core
machine where nobody measured.

The planner bounds the byte scale by the packets a second; the plan's notes and the simulated twin of an emulation take
what a verb and a READ get of a port of some rate. Whoever uses a figure says which profile it is of. This file knows no
host; who measures one hands the figures in. Sources of the modelled figures: docs/models/fidelity.md, Calibration.
"""

from __future__ import annotations

import math
from itertools import pairwise

import msgspec

from testbed.network.roce import BTH_BYTES, FRAME_OVERHEAD_BYTES, ICRC_BYTES
from testbed.units import MICROSECOND, SECOND, Nanoseconds

MODELLED_SOURCE = "modelled"
MEASURED_SOURCE = "measured on this host"


BULK_READ_BYTES, BULK_PATH_MTU = 64 * 1024, 4096
"""The READ whose time says what a port gives: a front end's poll of 4,096 slots' metadata, sixteen packets."""


class PortBench(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a self-test measured over two ports of one rate (`emulators.port_bench`). Wall time."""

    verb_round_trip: Nanoseconds
    verb_round_trip_p99: Nanoseconds
    bulk_read: Nanoseconds
    packets_per_s: float
    """Full packets one way; 0 where they were not counted."""
    packet_cost: Nanoseconds
    """CPU of both NICs for one of them."""


class PortFigure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What software gets of RoCE ports with their lanes, one verb at a time. Wall time."""

    rate_bits_per_s: int
    """What the ports of both nodes were set to."""
    verb_round_trip: Nanoseconds
    """Median of a 64-byte READ, by software that sleeps until its completion."""
    bulk_read: Nanoseconds
    """Median of a READ of `BULK_READ_BYTES` at `BULK_PATH_MTU`."""

    @property
    def read_share(self) -> float:
        """The rate at which a wire in series takes as long for the bulk READ as these ports did ÷ their setting.

        A wire in series sends each packet at both ports of its path, one packet after the other. Below 1 where the
        NICs' CPU and pace are the limit, above where the lanes' bursts hide a part of a READ.
        """
        bits = bits_in_series(BULK_READ_BYTES, BULK_PATH_MTU)
        return bits * SECOND / max(1, self.bulk_read - self.verb_round_trip) / self.rate_bits_per_s


def bits_in_series(message: int, path_mtu: int) -> int:
    """Bits that a path of two ports sends one after the other for a READ's response: its frames, the first twice."""
    packets = max(1, -(-message // path_mtu))
    headers = FRAME_OVERHEAD_BYTES + BTH_BYTES + ICRC_BYTES
    return 8 * (message + min(message, path_mtu) + (packets + 1) * headers)


class WireProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One machine's wire. Times are wall time of the bench, not the true time of what is modelled on it."""

    source: str
    """`MODELLED_SOURCE` or `MEASURED_SOURCE`."""
    verb_round_trip: Nanoseconds
    """Of a 64-byte READ as sleeping software sees it: the median of the medians at each rate, which shows no trend."""
    verb_round_trip_p99: Nanoseconds
    """The median of their 99th percentiles: what a reader of round trips must expect as jitter."""
    packet_cost: Nanoseconds
    """CPU time of the two NICs for one full packet through the lanes, acknowledgements included."""
    packets_per_s: int
    """Full packets a second of the whole machine, all ports together."""
    rate_error: float
    """What a saturated port carries ÷ what it was set to."""
    lateness_p99: Nanoseconds
    """99th percentile of how late a sleeping SCHED_FIFO process wakes."""
    measured_at: str = ""
    """UTC, ISO 8601; empty where nothing was measured."""
    ports: tuple[PortFigure, ...] = ()
    """By rising rate; empty where nothing was measured."""

    def read_rate(self, rate_bits_per_s: int) -> int:
        """Bits a second of a wire in series on which READs take as long as over ports of this kernel rate.

        Between two measured rates the share is interpolated; below the first it is the first's, beyond the last the
        rate itself stays what it is there. Without figures of ports: their rate.
        """
        if not self.ports:
            return rate_bits_per_s
        rate = min(rate_bits_per_s, self.ports[-1].rate_bits_per_s)
        return max(1, round(rate * _between([(port.rate_bits_per_s, port.read_share) for port in self.ports], rate)))

    def read_time(self, rate_bits_per_s: int, message: int, path_mtu: int) -> Nanoseconds:
        """Round trip of one READ of so many bytes over ports of this kernel rate."""
        rate = self.read_rate(rate_bits_per_s)
        return self.verb_round_trip + bits_in_series(message, path_mtu) * SECOND // rate

    def words(self) -> str:
        """One line for notes, reports and consoles."""
        when = f" at {self.measured_at}" if self.measured_at else ""
        return (
            f"wire profile, {self.source}{when}: {self.packets_per_s} packets/s, READ of 64 bytes "
            f"{self.verb_round_trip / MICROSECOND:.0f} us (p99 {self.verb_round_trip_p99 / MICROSECOND:.0f} us), "
            f"a port carries {100 * self.rate_error:.1f} % of its setting, wakes {self.lateness_p99 / MICROSECOND:.0f} "
            "us late (p99)"
        )


MODELLED = WireProfile(
    source=MODELLED_SOURCE,
    verb_round_trip=110 * MICROSECOND,
    verb_round_trip_p99=250 * MICROSECOND,
    packet_cost=40 * MICROSECOND,
    packets_per_s=45_000,
    rate_error=1.0,
    lateness_p99=250 * MICROSECOND,
)
"""A two-core machine: about 40 us of CPU a packet and 45,000 packets a second through per-packet arbitration
(platform.md §0.1); round trips and lateness are estimates, and a port is taken to carry its setting."""


def modelled(cores: int) -> WireProfile:
    """The modelled figures of a machine with so many cores: packets go up with them, times stay."""
    return msgspec.structs.replace(MODELLED, packets_per_s=MODELLED.packets_per_s * cores // 2)


def _between(figures: list[tuple[int, float]], rate: int) -> float:
    """The figure at a rate, straight between neighbours on a logarithmic axis of rates; the end's beyond the ends."""
    if rate <= figures[0][0]:
        return figures[0][1]
    for (low, before), (high, after) in pairwise(figures):
        if rate <= high:
            return before + (after - before) * math.log(rate / low) / math.log(high / low)
    return figures[-1][1]
