"""The simulated twin of an emulation: the plan of a simulation with the rates and delays that the emulation has.

A plain simulation has the modelled hardware's rates and delays. An emulation has others: a port is, in true time,
`byte_scale` times slower for what is not scaled (rings, metadata, prompts, HTTP), and whatever its processes take in
wall time costs a `dilation`-th of that in true time. The twin has both, so what is left between the two is what the
simulation does not know: lateness, jitter, the machines' own CPU time. The wire's delay and rate are of the plan's wire
profile, the self-test of this host; the front network's two delays are measured in another, short emulation. Nothing is
fitted to a latency.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from testbed.experiment.plan import NodePlan, Plan
from testbed.metrics.hops import Hops, VerbTime
from testbed.network.wire_profile import MODELLED, WireProfile
from testbed.units import Nanoseconds

LEAST_BULK_BYTES = 16 * 1024
"""Messages of fewer bytes say more of latencies than of rates."""


class FrontDelays(msgspec.Struct, frozen=True):
    """What an emulation's front network takes, in wall nanoseconds: medians of one calibration run."""

    to_front_end: Nanoseconds
    """A request's way from the client's sending to the front end's step 1."""
    to_client: Nanoseconds
    """A chunk's way from step 13 to the client's event."""


class NotMeasured(ValueError):
    """A log that lacks a part's times; `part` says which."""

    def __init__(self, part: str) -> None:
        self.part = part
        super().__init__(f"the calibration run has no {part}; it takes an emulation whose requests were answered")


def front_delays(hops: Hops, emulated: Plan) -> FrontDelays:
    """The delays in the hops of a run of `emulated`. Raises NotMeasured."""
    if not hops.to_front_end:
        raise NotMeasured("requests that arrived at a front end")
    if not hops.to_client:
        raise NotMeasured("tokens that arrived at a client")
    return FrontDelays(
        to_front_end=round(statistics.median(hops.to_front_end) * emulated.dilation),
        to_client=round(statistics.median(hops.to_client) * emulated.dilation),
    )


def twin_of(emulated: Plan, simulated: Plan, delays: FrontDelays) -> Plan:
    """`simulated`, the plan of the same trial under the simulated clock, as the twin of `emulated`."""
    profile = profile_of(emulated)
    rates = _kernel_rates(emulated)

    def slowed(node: NodePlan) -> NodePlan:
        # The front network keeps its rates: the serialisation is in its measured delays.
        ports = (
            replace(port, rate_bits_per_s=max(1, round(profile.read_rate(rates[port.fabric]) * emulated.dilation)))
            if port.fabric in rates
            else port
            for port in node.ports
        )
        return replace(node, ports=tuple(ports))

    def true(wall: Nanoseconds) -> Nanoseconds:
        return round(wall / emulated.dilation)

    small = profile.verb_round_trip if rates else 0
    wires = [f"{name} READs at {profile.read_rate(rate) / 1e6:.0f} Mbit/s" for name, rate in rates.items()]
    wire = f"small verb {small / 1e3:.0f} us there and back, {', '.join(wires)} ({profile.source}); " if rates else ""
    note = (
        f"twin of an emulation at dilation {emulated.dilation:g} and byte_scale {emulated.byte_scale}, in wall time "
        f"that the dilation divides: {wire}request {delays.to_front_end / 1e3:.0f} us, answer "
        f"{delays.to_client / 1e3:.0f} us (a calibration run)"
    )
    return replace(
        simulated,
        nodes=tuple(slowed(node) for node in simulated.nodes),
        # A READ that lasts fetches each packet's bytes when that packet leaves, as the soft RNIC does; FlowWire would
        # take all of them at its beginning, so a token would look older by half the READ.
        wire="packet",
        wire_latency=true(small) // 2,
        front_delay=true(delays.to_front_end),
        answer_delay=true(delays.to_client),
        notes=(*simulated.notes, note, *([profile.words()] if rates else [])),
    )


class WireCheck(msgspec.Struct, frozen=True):
    """What verbs took in an emulation, beside what the wire profile says of them alone. Wall nanoseconds, medians."""

    small_verb: Nanoseconds | None
    small_verb_of_profile: Nanoseconds
    read_bytes: int
    """Of the largest READs; 0 where there was none of `LEAST_BULK_BYTES`."""
    read: Nanoseconds | None
    read_of_profile: Nanoseconds | None

    def words(self) -> str:
        """One line."""
        small = "not measured" if self.small_verb is None else f"{self.small_verb / 1e3:,.0f} us"
        told = f"small verb {small} (wire profile {self.small_verb_of_profile / 1e3:,.0f} us)"
        if self.read is not None and self.read_of_profile is not None:
            told += f", READ of {self.read_bytes:,} bytes {self.read / 1e3:,.0f} us"
            told += f" ({self.read_of_profile / 1e3:,.0f} us)"
        return told


def wire_check(hops: Sequence[Hops], emulated: Plan) -> WireCheck | None:
    """Holds the verbs of emulations of one plan against its wire profile; None without RDMA. Shown, never fitted to."""
    profile, rates = profile_of(emulated), _kernel_rates(emulated)
    if not rates:
        return None
    rate = min(rates.values())
    verbs = [time for one in hops for time in one.verbs]
    smallest = min((time.bytes for time in verbs), default=0)
    largest = max((time.bytes for time in verbs if time.kind == "read"), default=0)
    bulk = largest if largest >= LEAST_BULK_BYTES else 0
    reads = [time for time in verbs if time.kind == "read" and time.bytes == bulk]
    return WireCheck(
        small_verb=_median([time for time in verbs if time.bytes <= 2 * smallest]) if verbs else None,
        small_verb_of_profile=profile.verb_round_trip,
        read_bytes=bulk,
        read=_median(reads) if reads else None,
        read_of_profile=profile.read_time(rate, bulk, emulated.path_mtu) if reads else None,
    )


def profile_of(emulated: Plan) -> WireProfile:
    """The wire profile that an emulation's plan was made with."""
    return emulated.wire_profile or MODELLED


def _kernel_rates(plan: Plan) -> dict[str, int]:
    """Bits a second that the slowest port of each RoCE fabric is set to."""
    roce = {fabric.name for fabric in plan.fabrics if fabric.roce}
    found: dict[str, int] = {}
    for node in plan.nodes:
        for port in node.ports:
            if port.fabric in roce:
                known = found.get(port.fabric, port.kernel_rate_bits_per_s)
                found[port.fabric] = min(known, port.kernel_rate_bits_per_s)
    return found


def _median(times: Sequence[VerbTime]) -> Nanoseconds:
    """The median of parts' medians, each counted as often as it has values."""
    ordered = sorted(times, key=lambda time: time.p50)
    half, seen = sum(time.n for time in ordered) / 2, 0
    for time in ordered:
        seen += time.n
        if seen >= half:
            return time.p50
    return ordered[-1].p50
