"""The one table of limits that a run's readings about itself are held against, with the reason for each.

Knows no events and measures nothing: `testbed.metrics.fidelity` does. docs/models/fidelity.md shows this table, the
console brings it along to its page.
"""

from __future__ import annotations

import msgspec


class Limit(msgspec.Struct, frozen=True):
    """One row of the table of thresholds."""

    name: str
    unit: str
    faithful: float
    """Held while the measured value is at most this."""
    invalid: float
    """Beyond this the run is invalid."""
    reason: str
    """Why the limits stand where they stand."""
    needed: bool = True
    """A wall-clock run without this reading is degraded."""


THRESHOLDS: dict[str, Limit] = {
    row.name: row
    for row in (
        Limit(
            "lateness p99", "ms wall ÷ dilation", 0.5, 2.0,
            "0.5 ms is a twelfth of the shortest decode step we model (5.87 ms, Llama-3-8B at batch 1) and 2 ms a "
            "third of it. Divided by the dilation, because a late wake costs that much true time. A node with fewer "
            "than 100 wakes has no p99 of its own; the wakes of all such nodes are judged together.",
        ),
        Limit(
            "run-queue wait", "% of wall time", 20.0, 50.0,
            "Time in which a node's software or its NIC was ready and had no CPU (schedstat); the worst process "
            "counts. Nodes that share a core wait for each other: 10 to 15 % in undisturbed runs on two cores. Denied "
            "SCHED_FIFO beside one endless loop a core it was 36 %, and no other threshold was crossed. What runs on "
            "cores of the host is left out: its waits are what a run with neighbours measures.",
        ),
        Limit(
            "other processes", "% of CPU time", 10.0, 40.0,
            "CPU time of the machine that neither the run's processes nor its neighbours had. Host work is disturbed "
            "by whoever runs beside it, and only what the experiment has put there may. The bench itself, the kernel "
            "and the engine of containers took 0.2 to 5.6 % in undisturbed runs on two cores. Judged where a host "
            "works, a device is on cores of the host, or silicon has no SCHED_FIFO, by which it goes first otherwise: "
            "beside two endless loops a core its waits alone did not tell (15 %).",
            needed=False,
        ),
        Limit(
            "stopped", "% of looks", 0.0, 10.0,
            "A node or a NIC that a signal has stopped neither waits for a CPU nor wakes late until it goes on; real "
            "hardware does not pause. The host role may be stopped: that it is not needed is what is shown.",
            needed=False,
        ),
        Limit(
            "link over its setting", "%", 2.0, 10.0,
            "HTB by our recipe keeps a port within 1.3 % of its rate (403 to 405 of 400 Mbit/s measured); more than "
            "10 % over means that the port is not shaped at all.",
            needed=False,
        ),
        Limit(
            "drops", "packets per million", 0.0, 10_000.0,
            "The fabrics are lossless as built (queues hold the sum of all windows), so one drop is a fault of the "
            "bench; 1 % throttles a go-back-N connection to a fraction of its rate.",
            needed=False,
        ),
        Limit(
            "resent packets", "packets per million", 1_000.0, 50_000.0,
            "Go-back-N resends a window after a late acknowledgement, which costs a retransmission time-out; one in a "
            "thousand stays inside the spread of a p99, one in twenty does not. Not judged where the experiment has "
            "had a node killed.",
            needed=False,
        ),
        Limit(
            "sequence errors", "packets per million", 0.0, 10_000.0,
            "Links and bridges keep order and lose nothing, so a packet number that is not the expected one says that "
            "a frame was lost, doubled or overtaken on the way, also where the resending has mended it.",
            needed=False,
        ),
        Limit(
            "lost frames", "packets", 0.0, 100.0,
            "What all NICs together have sent, they have received, once the run is quiet. A difference was dropped or "
            "made between a NIC and its peer by something that no queue of ours counts: a firewall, a policer, a full "
            "socket. Not judged where a part of the network is real, or the experiment has had a node killed.",
            needed=False,
        ),
        Limit(
            "ICRC errors", "packets", 0.0, 0.0,
            "A frame whose check fails was changed on the way, which nothing in the emulation does on purpose.",
            needed=False,
        ),
        Limit(
            "send lag p99", "ms", 5.0, 50.0,
            "An open-loop client that sends late offers another load than the experiment asks for; 5 ms is a "
            "hundredth of the mean gap at 2 requests a second and a tenth at 20.",
            needed=False,
        ),
        Limit(
            "host changes", "changes", 0.0, 0.0,
            "Lanes, the bridges' firewall flags, and inside the run's namespaces firewalls, links, routes, fixed "
            "neighbours and policers are the bench's alone. Whatever somebody else has changed there, the run is no "
            "longer the planned one.",
            needed=False,
        ),
        Limit(
            "capture losses", "frames", 0.0, 1_000_000.0,
            "A capture with a gap proves nothing about what is not in it. The run's own figures do not rest on it, so "
            "this alone makes no run invalid before a million.",
            needed=False,
        ),
        Limit(
            "capture drift", "ms", 1.0, 1_000.0,
            "Frames are stamped by the clock of the day, events by the monotonic one. 1 ms apart is the time of a few "
            "full packets on an emulated link: beyond it frames and events can no longer be laid side by side.",
            needed=False,
        ),
        Limit(
            "log gaps", "records", 0.0, 0.0,
            "Every figure is folded from the log; a missing record may be any event.",
        ),
    )
}  # fmt: skip
"""The limits, by name."""

BUSY_HOST = ("lateness p99", "run-queue wait", "other processes", "stopped", "send lag p99")
"""Thresholds that a busy host crosses; their reasons say so."""
