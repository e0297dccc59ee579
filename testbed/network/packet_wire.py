"""PacketWire: queue pairs, ports, lanes and links simulated packet by packet, in one process.

Each RoCE port is a NIC: a round of queue pairs a lane feeds an arbitrated uplink, which a link joins to the switch;
the switch has an arbitrated port towards each NIC. Packets are the real datagrams, ICRC included, so faults on a
link meet the same checks as on a real one. It has no socket and no clock: `now` is handed in and what happens
in between is kept as appointments, so runs with the same seed are the same.

Modelled: both ports of a path serialise a packet (a store-and-forward switch); all other latency is one number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from random import Random

from testbed.machine import Message, Verb
from testbed.network.appointments import Appointments
from testbed.network.connection import ConnectionSettings
from testbed.network.lanes import LaneTable
from testbed.network.link import NO_FAULTS, Faults, Link
from testbed.network.memory_region import LocalMemory
from testbed.network.port import EgressPort
from testbed.network.queue_pair import QueuePair
from testbed.network.roce import FRAME_OVERHEAD_BYTES, PacketError, destination_queue_pair
from testbed.network.wiring import PortWiring, WirePlan, WireSettings, Wiring, take_data
from testbed.units import Nanoseconds

_HEAD_START = 2
"""Frames that a NIC keeps ready in each lane of its uplink: the link never idles, and the arbiter still decides."""

Frame = tuple[str, int, bytes]
"""Destination address, service level and datagram."""


class _End:
    """A queue pair, the NIC that serves it, and its lane there."""

    __slots__ = ("lane", "nic", "node", "pair", "queued", "timer")

    def __init__(self, node: str, pair: QueuePair, nic: _Nic, lane: int) -> None:
        self.node = node
        self.pair = pair
        self.nic = nic
        self.lane = lane
        self.queued = False
        """True while it is in its lane's round."""
        self.timer: Nanoseconds | None = None
        """The earliest wake that is on the heap for it."""


class _Nic:
    """One RoCE port: its uplink, its switch port, the two links, and the queue pairs by lane."""

    def __init__(self, wiring: PortWiring, delay: Nanoseconds, faults: Faults, random: Random | None) -> None:
        self.node = wiring.node
        self.address = wiring.address
        self.uplink: EgressPort[Frame] = EgressPort(wiring.rate_bits_per_s, wiring.lanes)
        self.downlink: EgressPort[bytes] = EgressPort(wiring.rate_bits_per_s, wiring.lanes)
        self.to_switch = Link(delay, faults, random)
        self.from_switch = Link(delay, faults, random)
        self.ends: dict[int, _End] = {}
        self.rounds: list[deque[_End]] = [deque() for _ in range(self.uplink.table.max_vls)]
        table: LaneTable = self.uplink.table
        self.lane_of = tuple(table.lane_of(level) for level in range(16))

    def activate(self, end: _End) -> None:
        """`end` may have packets to send."""
        if not end.queued:
            end.queued = True
            self.rounds[end.lane].append(end)

    def feed(self, now: Nanoseconds) -> list[_End]:
        """Tops up the uplink's lanes, one packet of each queue pair in turn. Returns those that sent."""
        served: list[_End] = []
        for lane, waiting in enumerate(self.rounds):
            while waiting and self.uplink.backlog(lane) < _HEAD_START:
                end = waiting.popleft()
                packets = end.pair.packets_to_send(now, 1)
                if not packets:
                    end.queued = False
                    continue
                connection = end.pair.connection
                frame = connection.peer_address, connection.service_level, packets[0]
                self.uplink.offer(now, lane, len(packets[0]) + FRAME_OVERHEAD_BYTES, frame)
                waiting.append(end)
                served.append(end)
        return served


class PacketWire:
    """The `Wire` (see `testbed.network.wires`) that simulates every packet.

    `faults` act on all links and need `rng`. `counters(node)` and `port(node, interface)` are for tests and reports.
    """

    def __init__(
        self,
        plan: WirePlan,
        memories: Mapping[tuple[str, str], LocalMemory],
        *,
        rng: Random | None = None,
        faults: Faults = NO_FAULTS,
        settings: WireSettings | None = None,
    ) -> None:
        self._settings = settings or WireSettings()
        self._wiring = Wiring(plan, memories)
        delay = self._settings.latency // 2
        self._nics = {address: _Nic(port, delay, faults, rng) for address, port in self._wiring.ports.items()}
        self._ends: dict[tuple[str, int], _End] = {}
        self._appointments = Appointments()
        self._news: list[tuple[str, Message]] = []
        self._news_at: Nanoseconds = 0
        self._cut: set[str] = set()
        self._connect()

    def _connect(self) -> None:
        chosen = self._settings
        behaviour = ConnectionSettings(
            path_mtu=self._wiring.path_mtu,
            retransmission_timeout=chosen.retransmission_timeout,
            retry_limit=chosen.retry_limit,
            rnr_retry_limit=chosen.rnr_retry_limit,
            rnr_timer=chosen.rnr_timer,
        )
        for (node, number), connection in self._wiring.connections.items():
            pair = QueuePair(connection, self._wiring.regions[node], behaviour)
            pair.connect()
            for _ in range(chosen.receives):
                pair.post_receive(chosen.receive_bytes)
            nic = self._nics[connection.address]
            end = _End(node, pair, nic, nic.lane_of[connection.service_level])
            self._ends[node, number] = end
            nic.ends[number] = end

    # --- the Wire protocol ------------------------------------------------------------------------------------------

    def post(self, now: Nanoseconds, node: str, verb: Verb) -> None:
        """`node` posts `verb`. Raises NoQueuePair; whatever the peer does wrong ends in the completion."""
        end = self._ends[node, self._wiring.number_for(node, verb)]
        self._appointments.advance(now)
        end.pair.post(take_data(verb))
        self._serve(now, end)

    def wake(self, now: Nanoseconds) -> list[tuple[str, Message]]:
        """(node, completion or received SEND) of all that happened up to `now`, in order."""
        self._appointments.advance(now)
        news, self._news = self._news, []
        return news

    def deadline(self) -> Nanoseconds | None:
        """When something happens next, or None."""
        return self._news_at if self._news else self._appointments.deadline()

    def cut(self, node: str) -> None:
        """From now on no packet leaves or reaches `node`, as if its cables were pulled."""
        self._cut.add(node)

    def counters(self, node: str) -> dict[str, int]:
        """The counters of all queue pairs of `node`, added up (`connection.Counters`)."""
        total: dict[str, int] = {}
        for end in self._ends.values():
            if end.node == node:
                for name, value in end.pair.counters.as_dict().items():
                    total[name] = total.get(name, 0) + value
        return total

    def ports(self, node: str, interface: str) -> tuple[EgressPort[Frame], EgressPort[bytes]]:
        """The uplink of a node's interface, and the switch's port towards it. Raises KeyError."""
        for address, port in self._wiring.ports.items():
            if (port.node, port.interface) == (node, interface):
                nic = self._nics[address]
                return nic.uplink, nic.downlink
        raise KeyError((node, interface))

    # --- what happens -----------------------------------------------------------------------------------------------

    def _serve(self, now: Nanoseconds, end: _End) -> None:
        """Looks after a queue pair that something happened to: news, packets, timer."""
        pair = end.pair
        news: list[Message] = [*pair.poll_completions()]
        for message in pair.poll_received():
            news.append(message)
            pair.post_receive(self._settings.receive_bytes)
        if news:
            if not self._news:
                self._news_at = now
            self._news += [(end.node, message) for message in news]
        if pair.has_packets(now):
            end.nic.activate(end)
            self._feed(now, end.nic)
        self._watch(end)

    def _watch(self, end: _End) -> None:
        due = end.pair.deadline()
        if due is not None and (end.timer is None or due < end.timer):
            end.timer = due
            self._appointments.at(due, partial(self._ring, end))

    def _ring(self, end: _End, now: Nanoseconds) -> None:
        if end.timer != now:
            return
        end.timer = None
        due = end.pair.deadline()
        if due is not None and due <= now:
            end.pair.wake(now)
            self._serve(now, end)
        else:
            self._watch(end)

    def _feed(self, now: Nanoseconds, nic: _Nic) -> None:
        idle = nic.uplink.deadline() is None
        served = nic.feed(now)
        moment = nic.uplink.deadline()
        if idle and moment is not None:
            self._appointments.at(moment, partial(self._uplink_free, nic))
        for end in served:
            self._watch(end)

    def _uplink_free(self, nic: _Nic, now: Nanoseconds) -> None:
        frames = nic.uplink.wake(now)
        if (moment := nic.uplink.deadline()) is not None:
            self._appointments.at(moment, partial(self._uplink_free, nic))
        if nic.node not in self._cut:
            for address, level, datagram in frames:
                if address == nic.address:  # loop-back takes its turn at the uplink's arbiter and never leaves the NIC
                    self._appointments.at(now, partial(self._arrive, nic, datagram))
                    continue
                for arrival, copy in nic.to_switch.carry(now, datagram):
                    self._appointments.at(arrival, partial(self._switch, address, level, copy))
        self._feed(now, nic)

    def _switch(self, address: str, level: int, datagram: bytes, now: Nanoseconds) -> None:
        nic = self._nics[address]
        idle = nic.downlink.deadline() is None
        nic.downlink.offer(now, nic.lane_of[level], len(datagram) + FRAME_OVERHEAD_BYTES, datagram)
        moment = nic.downlink.deadline()
        if idle and moment is not None:
            self._appointments.at(moment, partial(self._downlink_free, nic))

    def _downlink_free(self, nic: _Nic, now: Nanoseconds) -> None:
        datagrams = nic.downlink.wake(now)
        if (moment := nic.downlink.deadline()) is not None:
            self._appointments.at(moment, partial(self._downlink_free, nic))
        for datagram in datagrams:
            for arrival, copy in nic.from_switch.carry(now, datagram):
                self._appointments.at(arrival, partial(self._arrive, nic, copy))

    def _arrive(self, nic: _Nic, datagram: bytes, now: Nanoseconds) -> None:
        if nic.node in self._cut:
            return
        try:
            end = nic.ends.get(destination_queue_pair(datagram))
        except PacketError:
            return
        if end is not None:
            end.pair.receive_packet(now, datagram)
            self._serve(now, end)
