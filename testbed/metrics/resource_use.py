"""How many bytes crossed each NIC, PCIe link, wire and memory, and when: for busy shares and for balance.

A resource is what transfer.finished names in `crossed`: NODE.PORT.snic_rx, snic_tx, cnic_read, cnic_write or wire, or
NODE.dram. A transfer's bytes are spread evenly over the time from its handing over, or from the end of the transfer
that crossed the resource before it, to its own end: those that queue for a port are carried one after another.

An emulation's kernel counts too (link.measured, what the switch sends to a port): kept beside, with headers and all.
Rates are not in the log; whoever asks for a share brings them (`busy`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from testbed.events.fidelity_events import LinkMeasured
from testbed.events.kv_events import TransferFinished
from testbed.events.log import Record
from testbed.events.run_events import RunStarted
from testbed.machine import Event
from testbed.metrics.shares import WHOLE_PORT
from testbed.units import MILLISECOND, SECOND, Nanoseconds

BIN: Nanoseconds = 10 * MILLISECOND
"""True time over which bytes are added up; every window is a multiple of it."""
WINDOWS: dict[str, Nanoseconds] = {"100ms": 100 * MILLISECOND, "1s": SECOND, "10s": 10 * SECOND}
"""Windows of balance, in true time. Paper Fig. 13: "a small window", not stated; so three are shown."""
STORAGE_KINDS = ("snic_rx", "snic_tx")
"""Resources whose transfers are storage traffic."""


class Crossing(msgspec.Struct):
    """What crossed one resource."""

    bytes: int = 0
    free_at: Nanoseconds = 0
    """End of the last transfer."""
    bins: dict[int, int] = {}
    """Bytes by number of the bin."""


class Reading(msgspec.Struct, frozen=True, array_like=True):
    """One reading of a port's counters, in true time and true bits."""

    begin: Nanoseconds
    end: Nanoseconds
    bits_per_s: int


class UseState(msgspec.Struct):
    """By resource, and by port for the kernel's counters; also the result."""

    resources: dict[str, Crossing] = {}
    links: dict[str, list[Reading]] = {}
    settings: dict[str, int] = {}
    """True rate of each port that was read, bits per second."""
    dilation: float = 1.0
    first: Nanoseconds | None = None
    """When the first storage transfer was handed to a NIC."""
    last: Nanoseconds = 0
    """End of the last storage transfer."""


class UseFold:
    """Adds up transfers and readings."""

    state = UseState
    takes: frozenset[type[Event]] = frozenset({RunStarted, TransferFinished, LinkMeasured})

    def start(self) -> UseState:
        """Nothing has been carried."""
        return UseState()

    def step(self, state: UseState, record: Record) -> UseState:
        """Takes one transfer or reading."""
        match record.event:
            case RunStarted(dilation=dilation):
                state.dilation = dilation
            case TransferFinished() as event:
                _cross(state, record.t, event)
            case LinkMeasured(port=port, lane=lane) as event if lane == WHOLE_PORT and record.t > 0:
                begin = record.t - round(event.interval / state.dilation)
                state.links.setdefault(port, []).append(Reading(max(0, begin), record.t, event.rate_bits_per_s))
                state.settings[port] = event.setting_bits_per_s
        return state

    def result(self, state: UseState) -> UseState:
        """A copy of all sums."""
        return msgspec.structs.replace(
            state,
            resources={
                name: msgspec.structs.replace(one, bins=dict(one.bins)) for name, one in state.resources.items()
            },
            links={port: list(readings) for port, readings in state.links.items()},
            settings=dict(state.settings),
        )


def _cross(state: UseState, end: Nanoseconds, event: TransferFinished) -> None:
    for resource in event.crossed:
        one = state.resources.setdefault(resource, Crossing())
        one.bytes += event.bytes
        _spread(one.bins, min(max(event.began, one.free_at), end), end, event.bytes)
        one.free_at = max(one.free_at, end)
    if any(kind_of(resource) in STORAGE_KINDS for resource in event.crossed):
        state.first = event.began if state.first is None else min(state.first, event.began)
        state.last = max(state.last, end)


def _spread(bins: dict[int, int], begin: Nanoseconds, end: Nanoseconds, size: int) -> None:
    """Adds `size` bytes to the bins between `begin` and `end`, in proportion; what rounding leaves is in the last."""
    first, last = begin // BIN, end // BIN
    left = size
    for number in range(first, last):
        part = size * ((number + 1) * BIN - max(begin, number * BIN)) // (end - begin)
        bins[number] = bins.get(number, 0) + part
        left -= part
    bins[last] = bins.get(last, 0) + left


def kind_of(resource: str) -> str:
    """Its last word: snic_rx, dram, …"""
    return resource.rpartition(".")[2]


def node_of(resource: str) -> str:
    """The node that has it."""
    return resource.partition(".")[0]


def carried(one: Crossing, begin: Nanoseconds, end: Nanoseconds) -> int:
    """Bytes in the bins from the one in which `begin` lies to that of `end`."""
    low, high = begin // BIN, end // BIN
    return sum(size for number, size in one.bins.items() if low <= number <= high)


def busy(one: Crossing | None, bits_per_s: int, begin: Nanoseconds, end: Nanoseconds) -> float | None:
    """Share of the rate that the resource carried from `begin` to `end`; None without time or rate.

    Bins are not cut, so over less than a hundred of them (1 s) the ends can add a percent or more.
    """
    if end <= begin or bits_per_s <= 0:
        return None
    return (carried(one, begin, end) if one is not None else 0) * 8 * SECOND / (bits_per_s * (end - begin))


def link_busy(readings: Sequence[Reading], bits_per_s: int, begin: Nanoseconds, end: Nanoseconds) -> float | None:
    """The same by the kernel's counters: readings weigh as much as they overlap with the time asked for."""
    parts = [(max(begin, one.begin), min(end, one.end), one.bits_per_s) for one in readings]
    time = sum(high - low for low, high, _ in parts if high > low)
    if not time or bits_per_s <= 0:
        return None
    return sum((high - low) * rate for low, high, rate in parts if high > low) / (time * bits_per_s)


def max_over_avg(
    resources: Mapping[str, Crossing], names: Sequence[str], window: Nanoseconds, begin: Nanoseconds, end: Nanoseconds
) -> tuple[float | None, int]:
    """Mean over windows of the most that one of `names` carried ÷ the mean of all of them, and how many windows.

    Windows are aligned to the run's epoch, those from `begin` to `end` count, those in which none carried a byte do
    not: there is no balance of nothing. None where there is no window (paper Fig. 13, the dashed means).
    """
    width = window // BIN
    sums: list[dict[int, int]] = []
    for name in names:
        own: dict[int, int] = {}
        for number, size in (resources[name].bins if name in resources else {}).items():
            if begin // BIN <= number <= end // BIN:
                own[number // width] = own.get(number // width, 0) + size
        sums.append(own)
    ratios = []
    for number in sorted({number for own in sums for number in own}):
        parts = [own.get(number, 0) for own in sums]
        if any(parts):
            ratios.append(max(parts) * len(parts) / sum(parts))
    return (sum(ratios) / len(ratios) if ratios else None), len(ratios)
