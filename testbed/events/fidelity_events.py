"""Events by which a wall-clock run measures itself: lateness, links, lanes, NICs, captures, hardware, the verdict.

Members of the one schema (`testbed.events.schema`), in a module of their own for length.
"""

from __future__ import annotations

from typing import ClassVar

from testbed.machine import Event
from testbed.units import Nanoseconds


class ClockMeasured(Event, frozen=True, tag="clock.measured"):
    """How late this node woke since the last such event, in *wall* nanoseconds."""

    wakes: int
    p50: Nanoseconds
    p99: Nanoseconds
    worst: Nanoseconds
    level: ClassVar[str] = "debug"


class ClockLate(Event, frozen=True, tag="clock.late"):
    """One wake was later than the threshold, in wall nanoseconds."""

    lateness: Nanoseconds
    level: ClassVar[str] = "warning"


class VerbsMeasured(Event, frozen=True, tag="verbs.measured"):
    """Round trips in *wall* nanoseconds since the last such event, of verbs posted while none was in flight."""

    kind: str
    """read, write, swap, add or send."""
    bytes: int
    """Of the largest message; those of one event lie between two powers of two."""
    n: int
    p50: Nanoseconds
    p99: Nanoseconds
    level: ClassVar[str] = "debug"


class LinkMeasured(Event, frozen=True, tag="link.measured"):
    """A port's counters over `interval` (wall nanoseconds), read from the kernel; rates already in true units."""

    port: str
    lane: int
    """Virtual lane, or -1 for the whole port."""
    interval: Nanoseconds
    bytes: int
    packets: int
    drops: int
    rate_bits_per_s: int
    setting_bits_per_s: int
    level: ClassVar[str] = "debug"


class RnicMeasured(Event, frozen=True, tag="rnic.measured"):
    """A soft RNIC's counters since the last such event."""

    rnic: str
    """The node whose NIC it is; `node` itself is the record's own key."""
    packets_sent: int
    packets_received: int
    resent: int
    naks: int
    icrc_errors: int
    sequence_errors: int
    level: ClassVar[str] = "debug"


class CpuMeasured(Event, frozen=True, tag="cpu.measured"):
    """Share of time in which some task waited for a CPU, in percent (PSI); -1 where the kernel has no PSI."""

    some_percent: float
    busy_percent: float
    cores: int = 0
    """Of the machine; 0 in older logs."""
    interval: Nanoseconds = 0
    """Wall time since the reading before."""
    level: ClassVar[str] = "debug"


class WaitMeasured(Event, frozen=True, tag="wait.measured"):
    """How long one process of the run stood ready to run and had no CPU since the last such event (schedstat)."""

    process: str
    """`node gpu0`, `nic gpu0` for its soft RNIC, `accelerator gpu0` for its device process."""
    interval: Nanoseconds
    """Wall time since the reading before."""
    waited: Nanoseconds
    """Of all its threads together, wall nanoseconds; -1 where the kernel keeps no account."""
    ran: Nanoseconds
    """CPU time of all its threads."""
    looks: int
    """How often the bench looked at its state in that time."""
    stopped: int
    """How many of these looks found it stopped by a signal."""
    fifo: bool = True
    """Whether it goes before whatever else runs here (SCHED_FIFO), as what stands for silicon of its own does."""
    level: ClassVar[str] = "debug"


class HostChanged(Event, frozen=True, tag="host.changed"):
    """What the run rests on is not as the bench has set it: somebody else has changed it."""

    what: str
    """`lanes gpu0.cnic0`, `firewall of dpu0`, `bridge-nf-call-iptables of switch compute`."""
    detail: str
    level: ClassVar[str] = "warning"


class LanesApplied(Event, frozen=True, tag="lanes.applied"):
    """The classes of a port, as read back from the kernel after setting them."""

    port: str
    setting_bits_per_s: int
    classes: tuple[str, ...]


class CaptureFinished(Event, frozen=True, tag="capture.finished"):
    """A capture file is complete."""

    port: str
    file: str
    packets: int
    whole: bool = True
    """False if it reached its limit of size, so that later packets are not in it."""
    lost: int = 0
    """Frames that found no room in the capture's buffer."""
    clock_drift: Nanoseconds = 0
    """How far the clock that stamps frames has moved against the run's own while the capture ran."""


class HardwareEngaged(Event, frozen=True, tag="hardware.engaged"):
    """A real part has taken the place of an emulated one."""

    seam: str
    """port, uplink, rnic, accelerator or storage."""
    place: str
    """What it stands for, as gpu0.cnic0."""
    device: str
    """What it is called where it comes from."""
    facts: tuple[str, ...] = ()
    """What could be read of it, as `driver mlx5_core`; whose time a figure is."""


class FidelityJudged(Event, frozen=True, tag="fidelity.judged"):
    """The verdict: faithful, degraded or invalid, with a reason for each threshold that was crossed."""

    verdict: str
    reasons: tuple[str, ...]


class FaultInjected(Event, frozen=True, tag="fault.injected"):
    """The bench has carried out a fault that the experiment asks for."""

    what: str
    """Node that it befell."""
    kind: str
    """kill: the node's software and its NIC are gone, and do not come back. kill-scheduler, hang-scheduler: its
    scheduler is dead or stands still, and may be replaced."""
    level: ClassVar[str] = "warning"
