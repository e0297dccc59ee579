"""What the kernel says that a run's links and cores have done, as events in true units (architecture §1: every figure
that is logged is already in true units; the emulation's rate is true ÷ byte_scale ÷ dilation).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from testbed.events.fidelity_events import CpuMeasured, LinkMeasured
from testbed.experiment.packet_budget import packets_per_second
from testbed.experiment.plan import Plan
from testbed.network.wire_profile import modelled
from testbed.units import SECOND
from topologies.fabric import SwitchPort
from topologies.queues import QueueReader

WHOLE_PORT = -1
"""The `lane` of a reading that is of the port as a whole."""
_FIRST_LANE = 0x1_0010


class _Reading(NamedTuple):
    bytes: int
    packets: int
    drops: int


_NOTHING = _Reading(0, 0, 0)


def _earlier(before: _Reading, reading: _Reading) -> _Reading:
    """What to count from: nothing, where a queue was made anew, whose counters begin at 0 again."""
    return _NOTHING if any(was > now for was, now in zip(before, reading, strict=True)) else before


class LinkMeter:
    """Reads every port's queues; each `measure` tells what has passed since the one before."""

    def __init__(self, plan: Plan, ports: Sequence[SwitchPort]) -> None:
        self._scale = plan.byte_scale * plan.dilation
        self._ports = tuple(ports)
        self._readers = {pid: QueueReader(pid) for pid in {port.pid for port in ports}}
        self._last: dict[tuple[str, int], _Reading] = {}
        self._read_at = time.monotonic_ns()
        for key, reading in self._read():
            self._last[key] = reading

    def close(self) -> None:
        """Closes the sockets."""
        for reader in self._readers.values():
            reader.close()

    def measure(self) -> Iterator[LinkMeasured]:
        """One event for each port and for each of its lanes."""
        now = time.monotonic_ns()
        interval, self._read_at = now - self._read_at, now
        settings = {port.name: port.port.rate_bits_per_s for port in self._ports}
        for (port, lane), reading in self._read():
            before = _earlier(self._last.get((port, lane), _NOTHING), reading)
            self._last[port, lane] = reading
            size = reading.bytes - before.bytes
            yield LinkMeasured(
                port=port,
                lane=lane,
                interval=interval,
                bytes=size,
                packets=reading.packets - before.packets,
                drops=reading.drops - before.drops,
                rate_bits_per_s=round(size * 8 * SECOND * self._scale / interval),
                setting_bits_per_s=settings[port],
            )

    def _read(self) -> Iterator[tuple[tuple[str, int], _Reading]]:
        for port in self._ports:
            reader = self._readers[port.pid]
            device = reader.device(port.device)
            root = reader.root(port.device)
            # The queue's own drops are not among the device's.
            queued = 0 if root is None else root.drops
            yield (port.name, WHOLE_PORT), _Reading(device.sent_bytes, device.sent_packets, device.drops + queued)
            if port.fabric.lanes is None:
                continue
            for handle, queue in sorted(reader.classes(port.device).items()):
                if handle >= _FIRST_LANE:
                    yield (port.name, handle - _FIRST_LANE), _Reading(queue.bytes, queue.packets, queue.drops)


class CpuMeter:
    """Pressure and load of the whole machine since the reading before."""

    def __init__(self) -> None:
        self._stalled, self._busy, self._idle = _stalled_us(), *_jiffies()
        self._read_at = time.monotonic_ns()

    def measure(self) -> CpuMeasured:
        """Shares of the time since the last call, in percent; pressure is -1 where the kernel has none (PSI)."""
        now = time.monotonic_ns()
        interval, self._read_at = max(now - self._read_at, 1), now
        before, self._stalled = self._stalled, _stalled_us()
        some = -1.0
        if before is not None and self._stalled is not None:
            some = min(100.0, 100.0 * (self._stalled - before) * 1000 / interval)
        busy, idle = _jiffies()
        spent, rest = busy - self._busy, idle - self._idle
        self._busy, self._idle = busy, idle
        share = 100.0 * spent / (spent + rest) if spent + rest else 0.0
        cores = os.cpu_count() or 1
        return CpuMeasured(round(some, 2), round(share, 2), cores, interval)


def _stalled_us() -> int | None:
    try:
        text = Path("/proc/pressure/cpu").read_text()
    except OSError:  # not built in, or switched off at boot (psi=0)
        return None
    some = text.split("\n", 1)[0]
    return int(some.rpartition("total=")[2])


def _jiffies() -> tuple[int, int]:
    fields = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, idle


def packet_budget(plan: Plan) -> tuple[int, int]:
    """(packets a second if every RoCE port were saturated, packets a second that this machine arbitrates).

    The planner chose rates and MTU for the modelled machine; here it is checked for this one.
    """
    roce = {fabric.name for fabric in plan.fabrics if fabric.roce}
    rates = [port.kernel_rate_bits_per_s for node in plan.nodes for port in node.ports if port.fabric in roce]
    asked = sum(packets_per_second(rate, plan.path_mtu) for rate in rates)
    return asked, modelled(len(os.sched_getaffinity(0))).packets_per_s
