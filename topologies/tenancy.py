"""What this host has for runs with neighbours: counters, mitigations, programs, and a kernel that is fair to tenants.

For `doctor`. What is missing here is missing for no run: a mitigation is then not in force, a counter is absent, and
both are said (docs/models/interference.md). Containers bring their own pbzip2 and compiler.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from topologies import counters, mitigations
from topologies.offers import Offer

_AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")


def tenancy() -> Iterator[Offer]:
    """Everything, in the order of docs/models/interference.md."""
    yield _fair_shares()
    for name, needed, otherwise in (
        ("pbzip2", ("pbzip2",), "namespace nodes have Python's bz2 as their neighbour instead"),
        ("C compiler and make", ("make", "cc"), "namespace nodes can have no parallel compile as their neighbour"),
    ):
        missing = [program for program in needed if shutil.which(program) is None]
        if missing:
            remedy = f"apt-get install {'pbzip2' if name == 'pbzip2' else 'make gcc'}"
            yield Offer(name, f"{', '.join(missing)} not installed: {otherwise}", remedy)
        else:
            yield Offer(name, "for neighbours where nodes are namespaces")
    missing = list(counters.absent())
    if missing:
        yield Offer("processor counters", f"none of {', '.join(missing)}: runs name them as absent (no PMU, a virtual "
                                          "machine that does not pass it on, or perf_event_paranoid)")  # fmt: skip
    else:
        yield Offer("processor counters", "cycles, instructions and misses of the server's processes are logged")
    for name, lacking in (
        ("huge pages", mitigations.huge_pages_lacking()),
        ("cache partitioning", mitigations.cache_partition_lacking()),
    ):
        yield Offer(name, lacking or "as a mitigation: there")


def _fair_shares() -> Offer:
    try:
        on = _AUTOGROUP.read_text().strip() == "1"
    except OSError:
        on = False
    if on:
        return Offer("fair shares", "the kernel is fair to containers, and to sessions where nodes are namespaces")
    return Offer(
        "fair shares",
        "no autogroup: where nodes are namespaces each thread of a neighbour counts like the whole server",
        "sysctl kernel.sched_autogroup_enabled=1",
    )
