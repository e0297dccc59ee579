"""What an operator has against noisy neighbours, what the paper found it to be worth, and what it costs.

Data only (papers/blink summary, "why the usual means do not help"). `topologies.mitigations` puts them in force on a
real host and says what the host lacks; a simulation has none of them but pinning, which is a CPU set of its own.
"""

from __future__ import annotations

import msgspec

SOURCE = "Blink summary: huge pages, core pinning, cache partitioning by CAT"


class Mitigation(msgspec.Struct, frozen=True):
    """One means of protection."""

    name: str
    """As an experiment's `mitigations` has it."""
    what: str
    """What is done to the server's host processes."""
    paper: str
    """What the paper measured for it; empty where it names it and gives no figure."""
    price: str
    """What cannot be sold any more, or who else pays."""


MITIGATIONS: dict[str, Mitigation] = {
    row.name: row
    for row in (
        Mitigation(
            "pinning",
            "cores of its own for each process of the server, which no neighbour may use",
            "the best single means: throughput -16.3 %, completed requests -17.3 %, P99.9 ITL +30.3 % under "
            "interference",
            "the cores: 6 a GPU by NVIDIA's guide, 48 for a node of 8 GPUs, 38 % of a two-socket EPYC",
        ),
        Mitigation(
            "huge_pages",
            "2 MiB pages for the server's heap, by madvise of glibc's malloc, where the kernel has them",
            "within noise: dTLB misses -16 %, latency and throughput unchanged",
            "memory that fragments",
        ),
        Mitigation(
            "cache_partition",
            "ways of the shared cache that neighbours may not fill (resctrl, Intel CAT or AMD QoS)",
            "misses of the last-level cache from 57.6 to 6.8 %, stalls 7.4 times fewer, P99 ITL moves by less than 4 %",
            "7 of 12 ways: all other tenants of the socket have 5; few classes, and pinning is needed first",
        ),
        Mitigation(
            "priority",
            "a weight of the kernel's fair scheduler as of nice -10, for the server's container",
            "",
            "the neighbours' share whenever the server wants it",
        ),
    )
}
"""By name."""
CACHE_WAYS = (7, 12)
"""Ways for the server of how many, where its share is largest in the paper."""
NICE = -10
WEIGHT = 9.324
"""Of nice -10 beside nice 0: 9548 ÷ 1024 (the kernel's sched_prio_to_weight)."""
