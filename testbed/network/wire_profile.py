"""What a bench's wire can do, in a few figures: those of a self-test of the host, or the modelled ones of a two-core
machine where nobody measured.

The planner bounds the byte scale by them and says in the plan's notes which ones it used; the simulated twin of an
emulation may add them to its modelled hardware. This file knows no host; who measures one hands the figures in.
Sources of the modelled figures: docs/models/fidelity.md, section Calibration.
"""

from __future__ import annotations

import msgspec

from testbed.units import MICROSECOND, Nanoseconds

MODELLED_SOURCE = "modelled"
MEASURED_SOURCE = "measured on this host"


class WireProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One machine's wire. Times are wall time of the bench, not the true time of what is modelled on it."""

    source: str
    """`MODELLED_SOURCE` or `MEASURED_SOURCE`."""
    verb_round_trip: Nanoseconds
    """Median of a 64-byte READ as software sees it, over two idle NICs."""
    verb_round_trip_p99: Nanoseconds
    """Its 99th percentile: what a reader of round trips must expect as jitter."""
    packet_cost: Nanoseconds
    """CPU time of one full packet through NICs, switch and lanes, acknowledgements included."""
    packets_per_s: int
    """Full packets a second of the whole machine, all ports together."""
    rate_error: float
    """What a saturated port carries ÷ what it was set to."""
    lateness_p99: Nanoseconds
    """99th percentile of how late a sleeping SCHED_FIFO process wakes."""
    measured_at: str = ""
    """UTC, ISO 8601; empty where nothing was measured."""

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
