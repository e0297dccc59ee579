"""The simulated twin of an emulation: the plan of a simulation with the rates and delays that the emulation has.

A plain simulation has the modelled hardware's rates and delays. An emulation has others: a port is, in true time,
`byte_scale` times slower for what is not scaled (rings, metadata, prompts, HTTP), and whatever its processes take in
wall time costs a `dilation`-th of that in true time. The twin has both, so what is left between the two is what the
simulation does not know: lateness, jitter, the machines' own CPU time. Delays and the wire's rate come from
`PartCosts`, each measured by itself in another emulation; nothing is fitted to a latency.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from testbed.experiment.plan import NodePlan, Plan
from testbed.metrics.hops import Hops, VerbTime
from testbed.network.roce import BTH_BYTES, FRAME_OVERHEAD_BYTES, ICRC_BYTES
from testbed.units import SECOND, Nanoseconds

LEAST_BULK_BYTES = 16 * 1024
"""Messages of fewer bytes say more of latencies than of rates."""


class PartCosts(msgspec.Struct, frozen=True):
    """What an emulation's parts cost, in wall nanoseconds: medians of one calibration run."""

    verb_round_trip: Nanoseconds
    """Of the smallest verbs, posting to completion."""
    wire_rate_bits_per_s: int
    """At which the twin's wire, which serialises a packet at both ports of its path, takes as long for the largest
    READs as the emulation did. More than the kernel's rate where the lanes' bursts hide a part of a READ."""
    to_front_end: Nanoseconds
    """A request's way from the client's sending to the front end's step 1."""
    to_client: Nanoseconds
    """A chunk's way from step 13 to the client's event."""


class NotMeasured(ValueError):
    """A log that lacks a part's times; `part` says which."""

    def __init__(self, part: str) -> None:
        self.part = part
        super().__init__(f"the calibration run has no {part}; it takes an emulation whose requests were answered")


def part_costs(hops: Hops, emulated: Plan) -> PartCosts:
    """The costs in the hops of a run of `emulated`. Raises NotMeasured."""
    if not hops.to_front_end:
        raise NotMeasured("requests that arrived at a front end")
    if not hops.to_client:
        raise NotMeasured("tokens that arrived at a client")
    if not hops.verbs:
        raise NotMeasured("verbs.measured")
    smallest = min(time.bytes for time in hops.verbs)
    round_trip = _median([time for time in hops.verbs if time.bytes <= 2 * smallest])
    largest = max((time.bytes for time in hops.verbs if time.kind == "read"), default=0)
    roce = {fabric.name for fabric in emulated.fabrics if fabric.roce}
    ports = [port for node in emulated.nodes for port in node.ports if port.fabric in roce]
    rate = min(port.kernel_rate_bits_per_s for port in ports)
    if largest >= LEAST_BULK_BYTES:
        bulk = _median([time for time in hops.verbs if time.kind == "read" and time.bytes == largest])
        rate = _bits_in_series(largest, emulated.path_mtu) * SECOND // max(1, bulk - round_trip)
    dilated = emulated.dilation
    return PartCosts(
        verb_round_trip=round_trip,
        wire_rate_bits_per_s=rate,
        to_front_end=round(statistics.median(hops.to_front_end) * dilated),
        to_client=round(statistics.median(hops.to_client) * dilated),
    )


def twin_of(emulated: Plan, simulated: Plan, costs: PartCosts) -> Plan:
    """`simulated`, the plan of the same trial under the simulated clock, as the twin of `emulated`."""
    roce = {fabric.name for fabric in emulated.fabrics if fabric.roce}

    rate = max(1, round(costs.wire_rate_bits_per_s * emulated.dilation))

    def slowed(node: NodePlan) -> NodePlan:
        # The front network keeps its rates: the serialisation is in its measured delays.
        ports = (replace(port, rate_bits_per_s=rate) if port.fabric in roce else port for port in node.ports)
        return replace(node, ports=tuple(ports))

    def true(wall: Nanoseconds) -> Nanoseconds:
        return round(wall / emulated.dilation)

    note = (
        f"twin of an emulation at dilation {emulated.dilation:g} and byte_scale {emulated.byte_scale}: its RoCE ports' "
        "rates in true time; from a calibration run, in wall time that the dilation divides: small verb "
        f"{costs.verb_round_trip / 1e3:.0f} us there and back, wire {costs.wire_rate_bits_per_s / 1e6:.0f} Mbit/s, "
        f"request {costs.to_front_end / 1e3:.0f} us, answer {costs.to_client / 1e3:.0f} us"
    )
    profile = emulated.wire_profile
    unused = () if profile is None else (f"not used by the twin, whose costs are calibrated: {profile.words()}",)
    return replace(
        simulated,
        nodes=tuple(slowed(node) for node in simulated.nodes),
        # A READ that lasts fetches each packet's bytes when that packet leaves, as the soft RNIC does; FlowWire would
        # take all of them at its beginning, so a token would look older by half the READ.
        wire="packet",
        wire_latency=true(costs.verb_round_trip) // 2,
        front_delay=true(costs.to_front_end),
        answer_delay=true(costs.to_client),
        notes=(*simulated.notes, note, *unused),
    )


def _bits_in_series(message: int, path_mtu: int) -> int:
    """Bits that a path of two ports sends one after the other for a READ's response: its frames, one of them twice."""
    packets = -(-message // path_mtu)
    headers = FRAME_OVERHEAD_BYTES + BTH_BYTES + ICRC_BYTES
    return 8 * (message + packets * headers) * (packets + 1) // packets


def _median(times: Sequence[VerbTime]) -> Nanoseconds:
    """The median of parts' medians, each counted as often as it has values."""
    ordered = sorted(times, key=lambda time: time.p50)
    half, seen = sum(time.n for time in ordered) / 2, 0
    for time in ordered:
        seen += time.n
        if seen >= half:
            return time.p50
    return ordered[-1].p50
