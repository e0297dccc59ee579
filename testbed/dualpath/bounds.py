"""Bottleneck-free bounds of P/D: which resource saturates first while storage NICs of both sides are kept busy.

DualPath's Eq. 1-9 as design dualpath 1.7 re-checks them: for any engines a node (g), storage NICs (s), rates of NICs
and DRAM, and any numbers of prefill and decode nodes (P, D). Exact rationals, so that a bound is a bound; floats are
for people. What is counted is the number of times that one byte read from storage crosses each kind of resource, by
the path that it takes; for a CNIC that is the PCIe side alone, since loop-back makes it at least the wire.

The paper leaves out the KV of missed tokens and the write-back. `miss` and `written` put them back: their bytes for one
byte that is read. Nothing here knows a machine, a clock or an event; `testbed.dualpath.read_paths` has the same hops as
real transfers, and a test holds the two against each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from fractions import Fraction
from typing import NamedTuple

ZERO = Fraction(0)


class Resource(Enum):
    """A kind of resource, on one side; the value is its name in words and summaries."""

    PE_SNIC = "pe.snic"
    DE_SNIC = "de.snic"
    PE_CNIC_READ = "pe.cnic_read"
    PE_CNIC_WRITE = "pe.cnic_write"
    DE_CNIC_READ = "de.cnic_read"
    DE_CNIC_WRITE = "de.cnic_write"
    PE_DRAM = "pe.dram"
    DE_DRAM = "de.dram"


class Crossings(NamedTuple):
    """How often bytes cross a kind of resource."""

    prefill_path: int
    """A byte that a prefill node's SNIC has read."""
    decode_path: int
    """A byte that a decode node's SNIC has read."""
    missed: int
    """A byte of KV that was computed, whichever path the hit took."""
    written: int = 0
    """A byte of KV that is written to storage."""


CROSSINGS: dict[Resource, Crossings] = {
    Resource.PE_SNIC: Crossings(1, 0, 0),
    Resource.DE_SNIC: Crossings(0, 1, 0),
    Resource.PE_CNIC_READ: Crossings(2, 0, 1),  # PE 3, 5; missed: out of HBM, as PE 5
    Resource.PE_CNIC_WRITE: Crossings(1, 1, 0),  # PE 4; DE 5
    Resource.DE_CNIC_READ: Crossings(1, 2, 1, 1),  # PE 8; DE 3, 6; missed: PE 8 or DE 6; written: HBM to buffer
    Resource.DE_CNIC_WRITE: Crossings(2, 1, 2, 1),  # PE 7, 9; DE 7; missed: the return, and PE 9 or DE 7; written
    Resource.PE_DRAM: Crossings(2, 0, 0),  # PE 2, 3
    Resource.DE_DRAM: Crossings(2, 3, 2, 2),  # PE 7, 8; DE 2, 3, 6; missed: the return, and PE 8 or DE 6; written
}
"""Step numbers are those of design dualpath 1.6."""
COPIED_ONCE: dict[Resource, Crossings] = CROSSINGS | {
    Resource.PE_CNIC_READ: Crossings(1, 0, 1),  # PE 5; PE 3 leaves DRAM for HBM and is no read of the CNIC's
    Resource.DE_CNIC_READ: Crossings(0, 1, 0, 1),  # DE 3; PE 8 and DE 6 likewise; written: out of HBM
    Resource.DE_CNIC_WRITE: Crossings(2, 1, 2, 0),  # written: into DRAM, no write towards HBM
}
"""The same where a host-device copy is no loop-back and crosses the PCIe link once, towards its target (what-ifs)."""
_PREFILL_SIDE = (Resource.PE_SNIC, Resource.PE_CNIC_READ, Resource.PE_CNIC_WRITE, Resource.PE_DRAM)
SNICS = (Resource.PE_SNIC, Resource.DE_SNIC)


class Cluster(NamedTuple):
    """Machines and rates. Rates are in one unit of the caller's choice, GB/s where nothing else is said."""

    prefill_nodes: int
    decode_nodes: int
    engines: int = 8
    """g, each with a CNIC of its own."""
    snics: int = 1
    """Storage NICs of a node."""
    cnic: Fraction = Fraction(50)
    """B, each way of one CNIC's PCIe link."""
    snic: Fraction = Fraction(50)
    """One storage NIC."""
    dram: Fraction | None = Fraction(500)
    """M, of one node, reads and writes together; None: never short."""
    loop_back: bool = True
    """Host-device copies cross the CNIC's PCIe link both ways (paper); False: once."""

    @property
    def crossings(self) -> dict[Resource, Crossings]:
        """How often bytes cross each kind of resource here."""
        return CROSSINGS if self.loop_back else COPIED_ONCE

    @property
    def s(self) -> Fraction:
        """The paper's s: storage bandwidth of a node in CNICs."""
        return self.snics * self.snic / self.cnic

    @property
    def storage(self) -> Fraction:
        """B s: what the SNICs of one node read."""
        return self.snics * self.snic

    @property
    def ratio(self) -> Fraction:
        """P/D."""
        return Fraction(self.prefill_nodes, self.decode_nodes)

    def capacity(self, resource: Resource) -> Fraction | None:
        """Of one node; None where it is without limit."""
        if resource in SNICS:
            return self.storage
        return self.dram if resource in (Resource.PE_DRAM, Resource.DE_DRAM) else self.engines * self.cnic

    def nodes(self, resource: Resource) -> int:
        """How many nodes have it."""
        return self.prefill_nodes if resource in _PREFILL_SIDE else self.decode_nodes


class Bound(NamedTuple):
    """What one resource asks of P/D so that it is not full before all SNICs are. None: it asks nothing."""

    resource: Resource
    at_least: Fraction | None = None
    at_most: Fraction | None = None
    possible: bool = True
    """False where no P/D will do."""

    def holds(self, ratio: Fraction) -> bool:
        """Whether this P/D is within; a resource that is exactly full still is."""
        if not self.possible:
            return False
        return (self.at_least is None or ratio >= self.at_least) and (self.at_most is None or ratio <= self.at_most)


class Window(NamedTuple):
    """The P/D that leave no bottleneck but storage, and who sets its ends. Empty where `possible` is False."""

    at_least: Bound | None
    at_most: Bound | None
    possible: bool

    def holds(self, ratio: Fraction) -> bool:
        """Whether this P/D is free of bottlenecks."""
        ends = [end for end in (self.at_least, self.at_most) if end is not None]
        return self.possible and all(end.holds(ratio) for end in ends)


def loads(
    cluster: Cluster,
    *,
    prefill: Fraction = Fraction(1),
    decode: Fraction = Fraction(1),
    miss: Fraction = ZERO,
    written: Fraction = ZERO,
) -> dict[Resource, Fraction]:
    """Load of every resource, 1 when full, while SNICs of either side read at this share of their rate.

    The sums of design 1.7, spread evenly over nodes and engines. A load above 1 cannot happen: then reads slow down.
    """
    read = cluster.prefill_nodes * cluster.storage * prefill, cluster.decode_nodes * cluster.storage * decode
    found = {}
    for resource, crossings in cluster.crossings.items():
        capacity = cluster.capacity(resource)
        if capacity is None:
            continue
        more = crossings.missed * miss + crossings.written * written
        bytes_a_second = crossings.prefill_path * read[0] + crossings.decode_path * read[1] + more * sum(read)
        found[resource] = bytes_a_second / (cluster.nodes(resource) * capacity)
    return found


def bounds(cluster: Cluster, miss: Fraction = ZERO, written: Fraction = ZERO) -> tuple[Bound, ...]:
    """What each resource but the SNICs asks of P/D (Eq. 1-9); the numbers of nodes of `cluster` do not matter."""
    return tuple(
        _bound(resource, cluster, crossings.missed * miss + crossings.written * written)
        for resource, crossings in cluster.crossings.items()
        if resource not in SNICS
    )


def _bound(resource: Resource, cluster: Cluster, more: Fraction) -> Bound:
    capacity = cluster.capacity(resource)
    if capacity is None:
        return Bound(resource)
    room = capacity / cluster.storage
    # A byte that each side's SNICs read, by P nodes and by D nodes: a P + b D <= room × (P or D).
    a = cluster.crossings[resource].prefill_path + more
    b = cluster.crossings[resource].decode_path + more
    if resource in _PREFILL_SIDE:
        if a < room or (a == room and not b):
            return Bound(resource, at_least=b / (room - a) if b else None)
        return Bound(resource, possible=False)
    if b < room and a:
        return Bound(resource, at_most=(room - b) / a)
    return Bound(resource, possible=b < room or (b == room and not a))


def window(cluster: Cluster, miss: Fraction = ZERO, written: Fraction = ZERO) -> Window:
    """All bounds together."""
    lower: Bound | None = None
    upper: Bound | None = None
    possible = True
    for bound in bounds(cluster, miss, written):
        possible = possible and bound.possible
        if bound.at_least is not None and (lower is None or bound.at_least > (lower.at_least or ZERO)):
            lower = bound
        if bound.at_most is not None and (upper is None or bound.at_most < (upper.at_most or ZERO)):
            upper = bound
    if lower and upper and lower.at_least is not None and upper.at_most is not None:
        possible = possible and lower.at_least <= upper.at_most
    return Window(lower, upper, possible)


def binding(found: Mapping[Resource, Fraction]) -> Resource:
    """The resource with the highest load; an SNIC where it ties with others, since reads then run at full rate."""
    return max(found, key=lambda resource: (found[resource], resource in SNICS))


def in_words(value: Fraction) -> str:
    """A ratio for people: 7/2 (3.5)."""
    return str(value) if value.denominator == 1 else f"{value} ({float(value):.3g})"
