"""What the fidelity verdict knows of a run so far: readings of its clocks, links, NICs and CPUs, folded from events.

`testbed.metrics.fidelity` judges them. It knows events, and not how much of anything is too much.
"""

from __future__ import annotations

import msgspec

from testbed.events.client_events import RequestSent
from testbed.events.fidelity_events import (
    CaptureFinished,
    ClockLate,
    ClockMeasured,
    CpuMeasured,
    FaultInjected,
    HardwareEngaged,
    HostChanged,
    LinkMeasured,
    RnicMeasured,
    WaitMeasured,
)
from testbed.events.host_events import NeighbourMeasured, ProcessorCalibrated
from testbed.events.log import Record
from testbed.events.run_events import NodeReady, NodeStopped, RunStarted
from testbed.machine import Event
from testbed.units import MILLISECOND, Nanoseconds

SHORTEST_READING: Nanoseconds = 50 * MILLISECOND
"""Link readings over less wall time than this say more about the reader's timing than about the link."""
GRAIN_PACKETS = 2
"""Packets that a reading may have above its setting without being over it: the port's burst of one, which is credit
from before, and one for counting whole packets. At 10 Mbit/s they are 1.3 % of half a second."""
REAL_NETWORK = ("port", "uplink", "rnic")
"""Seams of hardware behind which frames come and go that no NIC of ours has counted."""


class FidelityState(msgspec.Struct):
    """Readings so far."""

    clock: str = ""
    dilation: float = 1.0
    nodes: dict[str, str] = {}
    """Role by node, of those that were ready at the barrier."""
    planned: tuple[str, ...] = ()
    """Nodes that the run had by its own word; empty where it said none."""
    stopped: dict[str, int] = {}
    """Exit code of the nodes whose log has its end, in the order of their ends (a set has none to snapshot)."""
    late: dict[str, list[tuple[int, int, int, int]]] = {}
    """By node: wakes, p50, p99, worst of each reading, in wall nanoseconds."""
    late_wakes: int = 0
    link_excess: dict[str, float] = {}
    """By port or lane: the highest reading over its setting, in percent of it; 0 where none was over."""
    drops: dict[str, int] = {}
    packets: dict[str, int] = {}
    resent: dict[str, int] = {}
    sent: dict[str, int] = {}
    icrc_errors: dict[str, int] = {}
    sequence_errors: dict[str, int] = {}
    received: dict[str, int] = {}
    waited: dict[str, int] = {}
    """By process: wall nanoseconds that it stood ready and had no CPU, since the epoch."""
    watched: dict[str, int] = {}
    """By process: wall nanoseconds over which that was measured."""
    looks: dict[str, int] = {}
    stopped_looks: dict[str, int] = {}
    not_first: tuple[str, ...] = ()
    """Processes that were seen without SCHED_FIFO: the host's load slows them."""
    changes: tuple[str, ...] = ()
    """What somebody has changed behind the run's back, in words."""
    missed_frames: dict[str, int] = {}
    drift: dict[str, int] = {}
    part_real: bool = False
    """A port or NIC of the run is a real one, whose frames nobody counts at both ends."""
    real_parts: tuple[str, ...] = ()
    """What has taken the place of emulated parts, in words."""
    real_rnics: tuple[str, ...] = ()
    """Nodes whose verbs a device carries out, in its own time."""
    part_killed: bool = False
    """The experiment has had a node die: frames to it are lost, and sent again, on purpose."""
    struck: tuple[str, ...] = ()
    """Nodes that the experiment has done something to: that a process of theirs was stopped is no news."""
    waits_unknown: bool = False
    """This kernel keeps no account of waits for a CPU."""
    displaced: tuple[str, ...] = ()
    """Nodes that the experiment has put on cores of the host."""
    host_works: bool = False
    """A host does work of the server."""
    busy: Nanoseconds = 0
    """CPU time that the machine spent."""
    ours: Nanoseconds = 0
    """What of it the run's processes and its neighbours had."""
    had: Nanoseconds = 0
    """CPU time that there was."""
    lags: list[Nanoseconds] = []
    next_seq: dict[str, int] = {}
    gaps: dict[str, int] = {}


def take(state: FidelityState, record: Record) -> None:
    """Takes one reading. What was measured before the epoch (t < 0) is set-up and does not count."""
    _follow_seq(state, record)
    match record.event:
        case RunStarted(clock=clock, dilation=dilation, nodes=nodes, displaced=displaced):
            state.clock, state.dilation, state.planned, state.displaced = clock, dilation, nodes, displaced
        case NodeReady(role=role):
            state.nodes[record.node] = role
        case NodeStopped(code=code):
            state.stopped[record.node] = code
        case RequestSent(lag=lag):
            state.lags.append(lag)
        case RnicMeasured(rnic=rnic):
            _take_nic(state, rnic, record.event)
        case HostChanged(what=what, detail=detail):
            state.changes = (*state.changes, f"{what}: {detail}")
        case HardwareEngaged(seam=seam, place=place, device=device):
            state.real_parts = (*state.real_parts, f"{seam} {place} is {device}")
            state.part_real = state.part_real or seam in REAL_NETWORK
            if seam == "rnic":
                state.real_rnics = (*state.real_rnics, place)
        case ProcessorCalibrated():
            state.host_works = True
        case FaultInjected(what=node, kind=kind):
            state.part_killed = state.part_killed or kind == "kill"
            state.struck = (*state.struck, node)
        case event if record.t >= 0:
            _take_reading(state, record.node, event)


def _follow_seq(state: FidelityState, record: Record) -> None:
    missing = record.seq - state.next_seq.get(record.node, 0)
    if missing:
        state.gaps[record.node] = state.gaps.get(record.node, 0) + abs(missing)
    state.next_seq[record.node] = record.seq + 1


def _take_reading(state: FidelityState, node: str, event: Event) -> None:
    match event:
        case ClockMeasured(wakes=wakes, p50=p50, p99=p99, worst=worst):
            readings = state.late.setdefault(node, [])
            if wakes > 0:
                readings.append((wakes, p50, p99, worst))
        case ClockLate():
            state.late_wakes += 1
        case LinkMeasured():
            place = event.port if event.lane < 0 else f"{event.port} VL{event.lane}"
            _add(state.drops, place, event.drops)
            _add(state.packets, place, event.packets)
            if event.interval >= SHORTEST_READING and event.setting_bits_per_s > 0:
                share = 1.0 - min(1.0, GRAIN_PACKETS / max(1, event.packets))
                excess = 100.0 * share * event.rate_bits_per_s / event.setting_bits_per_s - 100.0
                state.link_excess[place] = max(0.0, excess, state.link_excess.get(place, 0.0))
        case CpuMeasured(busy_percent=percent, cores=cores, interval=interval):
            state.busy += round(percent * cores * interval / 100)
            state.had += cores * interval
        case NeighbourMeasured(cpu=cpu):
            state.ours += cpu
        case WaitMeasured(process=process):
            state.ours += event.ran
            if event.waited < 0:
                state.waits_unknown = True
            else:
                _add(state.waited, process, event.waited)
                _add(state.watched, process, event.interval)
            _add(state.looks, process, event.looks)
            _add(state.stopped_looks, process, event.stopped)
            if not event.fifo and process not in state.not_first:
                state.not_first = (*state.not_first, process)
        case CaptureFinished(port=port):
            _add(state.missed_frames, port, event.lost)
            state.drift[port] = abs(event.clock_drift)


def _take_nic(state: FidelityState, rnic: str, event: RnicMeasured) -> None:
    """Counts of before the epoch count too: what was sent then was received too, perhaps after it."""
    _add(state.sent, rnic, event.packets_sent)
    _add(state.received, rnic, event.packets_received)
    _add(state.resent, rnic, event.resent)
    _add(state.icrc_errors, rnic, event.icrc_errors)
    _add(state.sequence_errors, rnic, event.sequence_errors)


def _add(counts: dict[str, int], key: str, value: int) -> None:
    counts[key] = counts.get(key, 0) + value
