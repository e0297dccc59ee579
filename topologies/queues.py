"""Queues of network devices as the kernel has them: classes, filters, settings and counters, by rtnetlink(7).

Read straight from the kernel, since what `tc` prints is rounded and differs between versions, and since starting a
program for each reading would cost more than what is measured. One socket stays in the namespace where it was made.
Structures: linux/rtnetlink.h, linux/pkt_sched.h, linux/gen_stats.h.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from typing import NamedTuple

from topologies.namespaces import network_of

_RTM_GETLINK, _RTM_NEWLINK = 18, 16
_RTM_GETQDISC, _RTM_NEWQDISC = 38, 36
_RTM_GETTCLASS, _RTM_NEWTCLASS = 42, 40
_RTM_GETTFILTER, _RTM_NEWTFILTER = 46, 44
_NLMSG_ERROR, _NLMSG_DONE = 2, 3
_DUMP = 0x301  # NLM_F_REQUEST | NLM_F_DUMP
_TCA_KIND, _TCA_OPTIONS, _TCA_STATS2 = 1, 2, 7
_TCA_STATS_BASIC, _TCA_STATS_QUEUE = 1, 3
_TCA_HTB_PARMS, _TCA_HTB_RATE64, _TCA_HTB_CEIL64 = 1, 6, 7
_TCA_U32_CLASSID, _TCA_U32_SEL = 1, 5
_IFLA_IFNAME, _IFLA_STATS64 = 3, 23
_TICK_NS = 64
"""Bursts are kept as times, in units of 64 ns (PSCHED_SHIFT 6)."""
_NESTED = 0x8000
ROOT = 0xFFFFFFFF


class Htb(NamedTuple):
    """Settings of an HTB class."""

    rate_bits_per_s: int
    ceil_bits_per_s: int
    burst_bytes: int
    """Rounded by the kernel to what its clock can say."""
    cburst_bytes: int
    quantum: int
    priority: int


class Queue(NamedTuple):
    """One class, or one qdisc, and what has passed it since it was made."""

    handle: int
    parent: int
    kind: str
    bytes: int
    packets: int
    drops: int
    backlog: int
    """Bytes that wait."""
    htb: Htb | None
    limit: int = 0
    """Packets that a pfifo holds at most."""


class Filter(NamedTuple):
    """One u32 filter with one key: what matches goes to class `target`."""

    preference: int
    """The lower is asked first."""
    protocol: int
    """An Ethernet type; 3 for every frame."""
    mask: int
    value: int
    """Compared with the 32 bits at `offset` of the network header, in network order."""
    offset: int
    target: int


class DeviceCounters(NamedTuple):
    """A device's own counters: what went out to the node."""

    sent_bytes: int
    sent_packets: int
    drops: int
    """Both directions."""


class KernelRefused(OSError):
    """The kernel answered a netlink request with an error."""


class QueueReader:
    """Reads the queues of one network namespace."""

    def __init__(self, pid: int) -> None:
        with network_of(pid):
            self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE)
            self._socket.bind((0, 0))
        self._sequence = 0
        self._indexes = {name: index for index, name, _ in self._links()}

    def __enter__(self) -> QueueReader:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def classes(self, device: str) -> dict[int, Queue]:
        """The classes of a device by handle. Raises KeyError for a device that is not there, KernelRefused."""
        return {queue.handle: queue for queue in self._queues(_RTM_GETTCLASS, _RTM_NEWTCLASS, device)}

    def root(self, device: str) -> Queue | None:
        """The root qdisc of a device, or None."""
        found = (queue for queue in self._queues(_RTM_GETQDISC, _RTM_NEWQDISC, device) if queue.parent == ROOT)
        return next(found, None)

    def qdiscs(self, device: str) -> dict[int, Queue]:
        """The qdiscs of a device by the class (or ROOT) that they hang on. Raises as `classes`."""
        return {queue.parent: queue for queue in self._queues(_RTM_GETQDISC, _RTM_NEWQDISC, device)}

    def filters(self, device: str, parent: int = 0x1_0000) -> tuple[Filter, ...]:
        """The u32 filters at a qdisc, in the order in which they are asked. Raises as `classes`.

        A filter of another kind, or with other than one key, is one whose `offset` is -1: it is not of ours.
        """
        index = self._indexes[device]
        found: list[Filter] = []
        for body in self._dump(_RTM_GETTFILTER, _RTM_NEWTFILTER, struct.pack("=BxxxiIII", 0, index, 0, parent, 0)):
            _, ifindex, handle, _, info = struct.unpack_from("=BxxxiIII", body)
            attributes = dict(_attributes(body[20:]))
            if ifindex == index and handle:  # the first of each preference is its classifier, without a handle
                options = dict(_attributes(attributes.get(_TCA_OPTIONS, b"")))
                u32 = attributes.get(_TCA_KIND, b"").rstrip(b"\0") == b"u32"
                if not u32 or _TCA_U32_SEL in options:  # else a hash table that u32 made for itself
                    found.append(_filter(info, options))
        return tuple(sorted(found, key=lambda one: one.preference))

    def device(self, device: str) -> DeviceCounters:
        """The device's own counters. Raises KeyError."""
        for _, name, counters in self._links():
            if name == device:
                return counters
        raise KeyError(device)

    def _queues(self, get: int, new: int, device: str) -> Iterator[Queue]:
        index = self._indexes[device]
        for body in self._dump(get, new, struct.pack("=BxxxiIII", 0, index, 0, 0, 0)):
            _, ifindex, handle, parent, _ = struct.unpack_from("=BxxxiIII", body)
            if ifindex == index:  # a qdisc dump is of all devices
                yield _queue(handle, parent, dict(_attributes(body[20:])))

    def _links(self) -> Iterator[tuple[int, str, DeviceCounters]]:
        for body in self._dump(_RTM_GETLINK, _RTM_NEWLINK, struct.pack("=BxHiII", 0, 0, 0, 0, 0)):
            _, _, index, _, _ = struct.unpack_from("=BxHiII", body)
            found = dict(_attributes(body[16:]))
            name = found[_IFLA_IFNAME].rstrip(b"\0").decode()
            _, tx_packets, _, tx_bytes, _, _, rx_drops, tx_drops = struct.unpack_from(
                "=8Q", found[_IFLA_STATS64]
            )
            yield index, name, DeviceCounters(tx_bytes, tx_packets, rx_drops + tx_drops)

    def _dump(self, get: int, new: int, request: bytes) -> list[bytes]:
        self._sequence += 1
        self._socket.send(struct.pack("=IHHII", 16 + len(request), get, _DUMP, self._sequence, 0) + request)
        bodies: list[bytes] = []
        while True:
            data = self._socket.recv(1 << 18)
            while data:
                length, kind, _, sequence, _ = struct.unpack_from("=IHHII", data)
                body, data = data[16:length], data[(length + 3) & ~3 :]
                if sequence != self._sequence:  # of a request that was broken off
                    continue
                if kind == _NLMSG_DONE:
                    return bodies
                if kind == _NLMSG_ERROR:
                    number = -struct.unpack_from("=i", body)[0]
                    raise KernelRefused(number, f"netlink request {get} was refused")
                if kind == new:
                    bodies.append(body)


def _filter(info: int, options: dict[int, bytes]) -> Filter:
    preference, protocol = info >> 16, socket.ntohs(info & 0xFFFF)
    target = struct.unpack("=I", options.get(_TCA_U32_CLASSID, bytes(4)))[0]
    selector = options.get(_TCA_U32_SEL, bytes(16))
    if selector[2] != 1:
        return Filter(preference, protocol, 0, 0, -1, target)
    mask, value, offset = struct.unpack_from("!II", selector, 16) + struct.unpack_from("=i", selector, 24)
    return Filter(preference, protocol, mask, value, offset, target)


def _queue(handle: int, parent: int, found: dict[int, bytes]) -> Queue:
    kind = found.get(_TCA_KIND, b"").rstrip(b"\0").decode()
    statistics = dict(_attributes(found.get(_TCA_STATS2, b"")))
    size, packets = struct.unpack_from("=QI", statistics.get(_TCA_STATS_BASIC, bytes(12)))
    _, backlog, drops, _, _ = struct.unpack_from("=5I", statistics.get(_TCA_STATS_QUEUE, bytes(20)))
    options = dict(_attributes(found.get(_TCA_OPTIONS, b"")))
    htb = _htb(options) if kind == "htb" and _TCA_HTB_PARMS in options else None
    limit = struct.unpack_from("=I", found[_TCA_OPTIONS])[0] if kind == "pfifo" and _TCA_OPTIONS in found else 0
    return Queue(handle, parent, kind, size, packets, drops, backlog, htb, limit)


def _htb(options: dict[int, bytes]) -> Htb:
    # struct tc_htb_opt: two struct tc_ratespec (the rate is the last word of each), then five words.
    words = struct.unpack_from("=8xI8xI5I", options[_TCA_HTB_PARMS])
    rate, ceil, burst, cburst, quantum, _, priority = words
    if _TCA_HTB_RATE64 in options:
        rate = struct.unpack("=Q", options[_TCA_HTB_RATE64])[0]
    if _TCA_HTB_CEIL64 in options:
        ceil = struct.unpack("=Q", options[_TCA_HTB_CEIL64])[0]
    return Htb(
        rate_bits_per_s=rate * 8,
        ceil_bits_per_s=ceil * 8,
        burst_bytes=burst * _TICK_NS * rate // 1_000_000_000,
        cburst_bytes=cburst * _TICK_NS * ceil // 1_000_000_000,
        quantum=quantum,
        priority=priority,
    )


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        if length < 4:
            return
        yield kind & ~_NESTED, data[4:length]
        data = data[(length + 3) & ~3 :]
