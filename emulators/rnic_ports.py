"""The soft RNIC's ports: sockets, lanes, the uplink's arbitration and its pace.

One UDP socket bound to port 4791 receives for all queue pairs of a port; each queue pair sends from a socket of its
own (source port 0xC000 + number), unconnected and with IP_MTU_DISCOVER=DO, so that the kernel sends DF with IP id 0
as the ICRC expects (platform.md §1.2). One `sendto` a packet, no GSO: an arbiter must see packets.

A lane is a round of queue pairs that may have something to send, and at most one built packet at its head. Where
several lanes wait, the arbiter of InfiniBand's two tables chooses; the port then sends no faster than its rate.

It knows nothing of software, memory or completions.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections import deque
from collections.abc import Callable

from emulators.wire_faults import WireDamage, WireFaults
from testbed.experiment.plan import FabricPlan, PortPlan
from testbed.network.arbiter import Arbiter
from testbed.network.lanes import LaneTable, type_of_service
from testbed.network.queue_pair import QueuePair
from testbed.network.roce import FRAME_OVERHEAD_BYTES, UDP_PORT
from testbed.units import MICROSECOND, SECOND

_BUFFER_BYTES = 32 << 20
_LARGEST_DATAGRAM = 1 << 16
_SMALLEST_DATAGRAM = 16
_IP_MTU_DISCOVER, _IP_PMTUDISC_DO = 10, 2
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_QUEUE_PAIR = struct.Struct("!I").unpack_from
_QUEUE_PAIR_MASK = 0xFFFFFF
BATCH = 64
"""Packets taken from a socket, or sent, before the NIC looks at its other work."""
STRIDE = 250 * MICROSECOND
"""Least time between two wakes for the uplink's pace: a wake costs more than a packet, so a fast link sends a few."""
MAKE_UP = 2 * STRIDE
"""Time of sending that a backlogged port may make up for after it woke late."""


class PortCounters:
    """What a port has seen since it was opened."""

    __slots__ = ("bytes_sent", "refused", "strays")

    def __init__(self) -> None:
        self.bytes_sent = 0
        """As the kernel's queues count frames."""
        self.refused = 0
        """Packets that the kernel would not send; lost, the protocol sends them again."""
        self.strays = 0
        """Datagrams for no queue pair of this port."""


class Endpoint:
    """A queue pair and how its packets leave."""

    __slots__ = ("damage", "destination", "lane", "pair", "port", "queued", "send_to", "socket", "touched")

    def __init__(self, pair: QueuePair, port: Port, lane: Lane, sender: socket.socket) -> None:
        self.pair = pair
        self.port = port
        self.lane = lane
        self.socket = sender
        self.send_to = sender.sendto
        self.damage = WireDamage(port.faults, pair.number) if port.faults.any else None
        self.destination = (pair.connection.peer_address, UDP_PORT)
        self.queued = False
        """True while it is in its lane's round."""
        self.touched = False
        """True while the NIC has still to look for its completions."""


class Lane:
    """One virtual lane of a port's egress."""

    __slots__ = ("endpoints", "head", "kept", "number", "sender")

    def __init__(self, number: int) -> None:
        self.number = number
        self.endpoints: deque[Endpoint] = deque()
        self.head: bytes | None = None
        self.sender: Endpoint | None = None
        """Whose packet `head` is."""
        self.kept: deque[tuple[bytes, Endpoint]] = deque()
        """Packets that stood at the heads of lanes of an earlier table; they go before any new one."""

    def fill(self, now: int) -> bool:
        """Puts a packet at the head if there is one; queue pairs without any leave the round."""
        if self.head is not None:
            return True
        if self.kept:
            self.head, self.sender = self.kept.popleft()
            return True
        endpoints = self.endpoints
        while endpoints:
            endpoint = endpoints[0]
            packets = endpoint.pair.packets_to_send(now, 1)
            if packets:
                self.head = packets[0]
                self.sender = endpoint
                if len(endpoints) > 1:
                    endpoints.rotate(-1)
                return True
            endpoint.queued = False
            endpoints.popleft()
        return False


class Port:
    """One RoCE interface of the node."""

    def __init__(self, plan: PortPlan, fabric: FabricPlan, faults: WireFaults | None = None) -> None:
        """Opens the receiving socket. Raises OSError if the address is not there or the port is taken."""
        self.plan = plan
        self.counters = PortCounters()
        self.socket = _udp_socket(plan.address, UDP_PORT)
        self._there = _is_there(plan.interface)
        """Whether there is an interface of that name; two NICs may also speak over loopback."""
        self._table = fabric.lanes or LaneTable()
        self._arbiter = Arbiter(self._table)
        self._rate = plan.kernel_rate_bits_per_s
        self._next_free = 0
        self._idle = True
        self._blocked_until = 0
        self._held_since = 0
        self._batch = 1
        """Packets to take at once: a lone one costs no second call that finds nothing; a stream doubles it."""
        self._buffer = bytearray(_LARGEST_DATAGRAM)
        self._view = memoryview(self._buffer)
        self._endpoints: dict[int, Endpoint] = {}
        self._lanes: dict[int, Lane] = {}
        self._round: tuple[Lane, ...] = ()
        self.waits = False
        """Whether `transmit` is to be called: some queue pair may have something, or had until a moment ago."""
        self._senders: list[socket.socket] = []
        self.faults = faults or WireFaults()

    def add(self, pair: QueuePair) -> Endpoint:
        """Gives a queue pair its sending socket and its lane. Raises OSError if its source port is taken."""
        level = pair.connection.service_level
        number = self._table.lane_of(level)
        lane = self._lanes.setdefault(number, Lane(number))
        self._round = tuple(self._lanes[number] for number in sorted(self._lanes))
        sender = _udp_socket(self.plan.address, pair.port)
        sender.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, type_of_service(level))
        self._senders.append(sender)
        endpoint = Endpoint(pair, self, lane, sender)
        self._endpoints[pair.number] = endpoint
        return endpoint

    def use(self, table: LaneTable) -> None:
        """Arbitrates by another table from the next packet on. Each queue pair's packets keep their order."""
        before = self._round
        self._table, self._arbiter, self._lanes = table, Arbiter(table), {}
        for endpoint in self._endpoints.values():
            number = table.lane_of(endpoint.pair.connection.service_level)
            endpoint.lane = self._lanes.setdefault(number, Lane(number))
        self._round = tuple(self._lanes[number] for number in sorted(self._lanes))
        for lane in before:
            for endpoint in lane.endpoints:
                endpoint.lane.endpoints.append(endpoint)
            if lane.head is not None and lane.sender is not None:
                lane.sender.lane.kept.append((lane.head, lane.sender))
            for packet, sender in lane.kept:
                sender.lane.kept.append((packet, sender))

    def receive(self, now: int, touch: Callable[[Endpoint], None]) -> int:
        """Takes up to a batch of datagrams off the socket; `touch` is told which queue pairs they were for."""
        receive_into, buffer, view, endpoints = self.socket.recv_into, self._buffer, self._view, self._endpoints
        batch = self._batch
        for count in range(batch):
            try:
                size = receive_into(buffer)
            except BlockingIOError:
                self._batch = 1
                return count
            except OSError:
                # The interface has gone under the socket; what is in flight runs into its retry limit.
                if self._there:
                    self.counters.refused += 1
                return count
            endpoint = endpoints.get(_QUEUE_PAIR(buffer, 4)[0] & _QUEUE_PAIR_MASK)
            if endpoint is None or size < _SMALLEST_DATAGRAM:
                self.counters.strays += 1
                continue
            endpoint.pair.receive_packet(now, view[:size])
            if not endpoint.touched:
                touch(endpoint)
        if batch < BATCH:
            self._batch = 2 * batch
        return batch

    @property
    def is_open(self) -> bool:
        """False once its interface has been found to be gone."""
        return self.socket.fileno() >= 0

    def has_gone(self) -> bool:
        """True once, when its interface is found to be gone. The port is closed then, and stays so: an interface of
        that name that comes later is another one, without the run's address.
        """
        if not self._there or _is_there(self.plan.interface):
            return False
        self._there = False
        self.close()
        return True

    def activate(self, endpoint: Endpoint) -> None:
        """The queue pair may have something to send."""
        if not endpoint.queued:
            self.waits = True
            endpoint.queued = True
            endpoint.lane.endpoints.append(endpoint)

    def backlogged(self) -> bool:
        """True if some queue pair may have something to send."""
        return any(lane.head is not None or lane.kept or lane.endpoints for lane in self._round)

    def wake_at(self) -> int:
        """When it is worth waking for the next packet that the rate holds back; sending earlier is no harm."""
        return max(self._next_free, self._blocked_until, self._held_since + STRIDE)

    def transmit(self, clock: Callable[[], int]) -> int:
        """Sends what lanes and rate allow, at most a batch; how many packets that was."""
        for count in range(BATCH):
            now = clock()
            if now < self._next_free or now < self._blocked_until:
                if count:
                    self._held_since = now
                return count
            lane = self._choose(now)
            if lane is None:
                self._idle = True
                self.waits = False
                return count
            packet, endpoint = lane.head, lane.sender
            assert packet is not None
            assert endpoint is not None
            if not self._put_on_wire(now, packet, endpoint):
                return count
            lane.head = None
            frame = len(packet) + FRAME_OVERHEAD_BYTES
            self.counters.bytes_sent += frame
            # Waking late is made up for; having had nothing to send is not.
            earliest = now if self._idle else now - MAKE_UP
            self._idle = False
            begin = self._next_free if self._next_free > earliest else earliest
            self._next_free = begin + frame * 8 * SECOND // self._rate
        return BATCH

    def _choose(self, now: int) -> Lane | None:
        waiting = [lane for lane in self._round if lane.fill(now)]
        if len(waiting) < 2:
            return waiting[0] if waiting else None
        sizes = {lane.number: len(lane.head or b"") + FRAME_OVERHEAD_BYTES for lane in waiting}
        return self._lanes[self._arbiter.choose(sizes)]

    def _put_on_wire(self, now: int, packet: bytes, endpoint: Endpoint) -> bool:
        """False if the kernel's buffer is full, so that the packet must wait."""
        try:
            if endpoint.damage is None:
                endpoint.send_to(packet, endpoint.destination)
            else:
                for damaged in endpoint.damage.packets(packet):
                    endpoint.send_to(damaged, endpoint.destination)
        except BlockingIOError:
            self._blocked_until = now + 100 * MICROSECOND
            return False
        except OSError as error:
            if error.errno == errno.EMSGSIZE:
                raise
            self.counters.refused += 1
        return True

    def close(self) -> None:
        """Closes the sockets."""
        for opened in (self.socket, *self._senders):
            opened.close()


def _is_there(interface: str) -> bool:
    try:
        return socket.if_nametoindex(interface) > 0
    except OSError as fault:
        # Python 3.11 gives no number for a name that there is not; any other fault says nothing of the interface.
        return fault.errno not in (None, errno.ENODEV, errno.ENXIO)


def _udp_socket(address: str, port: int) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    try:
        for option, plain in ((_SO_SNDBUFFORCE, socket.SO_SNDBUF), (_SO_RCVBUFFORCE, socket.SO_RCVBUF)):
            try:
                opened.setsockopt(socket.SOL_SOCKET, option, _BUFFER_BYTES)
            except PermissionError:
                opened.setsockopt(socket.SOL_SOCKET, plain, _BUFFER_BYTES)
        opened.setsockopt(socket.IPPROTO_IP, _IP_MTU_DISCOVER, _IP_PMTUDISC_DO)
        opened.bind((address, port))
    except OSError as error:
        opened.close()
        raise OSError(error.errno, f"UDP {address}:{port}: {os.strerror(error.errno or 0)}") from error
    return opened
