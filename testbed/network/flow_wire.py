"""FlowWire: verbs as fluid transfers that share ports by lane, for runs with many nodes or many bytes.

No packets: a WRITE, a SEND and the response of a READ are transfers of their frames' bytes at a rate that changes
only when another one starts or ends; requests of READs, atomics and acknowledgements take the latency alone. It has
no clock: `now` is handed in, the rest are appointments.

What a queue pair promises is kept: its verbs go out one after another, take effect at the peer in that order and
complete in it. A WRITE's bytes land when its last bit arrives; a READ sees the memory of the moment in which its
request arrives. A refused request ends with the status that its NAK would give, and both ends fail.

Modelled: no loss, no window, no packet boundaries; a silent peer costs (retry limit + 1) timeouts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final

from testbed.machine import (
    CompareSwap,
    Completion,
    CompletionStatus,
    FetchAdd,
    Message,
    Read,
    Received,
    Send,
    Verb,
    Write,
)
from testbed.network.appointments import Appointments
from testbed.network.channels import Channel, Channels
from testbed.network.connection import MAXIMUM_MESSAGE_BYTES, RNR_DELAYS, Connection
from testbed.network.fluid import BESIDE, FluidPort
from testbed.network.host_resources import HostMemory, PortPaths
from testbed.network.memory_region import Access, LocalMemory, RegionError, RegionTable
from testbed.network.port import ONE_LANE
from testbed.network.requester import check_verb
from testbed.network.roce import BTH_BYTES, FRAME_OVERHEAD_BYTES, ICRC_BYTES
from testbed.network.wiring import WirePlan, WireSettings, Wiring, message_bytes, take_data
from testbed.units import Nanoseconds

PACKET_OVERHEAD: Final = FRAME_OVERHEAD_BYTES + BTH_BYTES + ICRC_BYTES
"""Bytes of each frame besides its payload and extension headers."""
MESSAGE_OVERHEAD: Final = 16
"""The RETH of a WRITE; a READ's response has 4 to 8 bytes of AETH, counted alike."""


class _Work:
    """A posted verb on its way, and its answer so far."""

    __slots__ = ("data", "original", "verb")

    def __init__(self, verb: Verb) -> None:
        self.verb = verb
        self.data = b""
        self.original = 0


class _End:
    """One end of a reliable connection: its unanswered verbs, and the channels of its requests and their answers."""

    __slots__ = (
        "answered", "answers", "arrived", "connection", "copies", "failed", "failing", "node", "requests", "works",
    )  # fmt: skip

    def __init__(self, node: str, connection: Connection, requests: Channel, answers: Channel) -> None:
        self.node = node
        self.connection = connection
        self.requests = requests
        self.answers = answers
        self.works: deque[_Work] = deque()
        self.failing = False
        """A failure is on its way; nothing after it takes effect at the peer."""
        self.failed = False
        self.copies: PortPaths | None = None
        """The port, where its loop-back is a copy that passes the wire by (`testbed.network.host_design`)."""
        self.arrived: Nanoseconds = 0
        """When the latest request is at the peer: one that takes longer holds back those behind it."""
        self.answered: Nanoseconds = 0
        """The same of answers, at this end."""


class FlowWire:
    """The `Wire` (see `testbed.network.wires`) in which transfers are fluid."""

    def __init__(
        self,
        plan: WirePlan,
        memories: Mapping[tuple[str, str], LocalMemory],
        *,
        settings: WireSettings | None = None,
    ) -> None:
        self._settings = settings or WireSettings()
        self._wiring = Wiring(plan, memories)
        self._appointments = Appointments()
        self._channels = Channels(self._appointments, self._wiring.path_mtu + PACKET_OVERHEAD)
        self._news: list[tuple[str, Message]] = []
        self._news_at: Nanoseconds = 0
        self._cut: set[str] = set()
        self._byte_scale = plan.byte_scale
        self._image_keys = {(node.name, region.key) for node in plan.nodes for region in node.regions if region.bulk}
        nodes = {node.name: node for node in plan.nodes}
        self._designs = {name: node.host_design for name, node in nodes.items()}
        self._paths = {
            address: PortPaths(port, nodes[port.node].pcie_bits_per_s, self._designs[port.node])
            for address, port in self._wiring.ports.items()
        }
        self._memory = HostMemory(plan.nodes)
        self._ends = {key: self._make_end(key[0], connection) for key, connection in self._wiring.connections.items()}

    def _make_end(self, node: str, connection: Connection) -> _End:
        table = self._wiring.ports[connection.address].lanes or ONE_LANE
        lane = table.lane_of(connection.service_level)
        own, far = self._paths[connection.address], self._paths[connection.peer_address]
        design = self._designs[node]
        if own is far and design.copies != "cnic":
            beside = design.copies == "copy_engine" and not design.pcie_classes
            end = _End(node, connection, *(Channel((), BESIDE if beside else lane) for _ in range(2)))
            end.copies = own
            return end
        if own is far:
            return _End(node, connection, Channel(own.loop(), lane), Channel(own.loop(), lane))
        return _End(node, connection, Channel(own.up + far.down, lane), Channel(far.up + own.down, lane))

    # --- the Wire protocol ------------------------------------------------------------------------------------------

    def post(self, now: Nanoseconds, node: str, verb: Verb) -> None:
        """`node` posts `verb`. Raises NoQueuePair; whatever the peer does wrong ends in the completion."""
        end = self._ends[node, self._wiring.number_for(node, verb)]
        check_verb(verb)
        size = message_bytes(verb)
        self._appointments.advance(now)
        if end.failed:
            self._tell(now, node, Completion(verb.ticket, CompletionStatus.FLUSHED))
            return
        work = _Work(take_data(verb))
        end.works.append(work)
        carried = self._carried(end, verb, size) if isinstance(verb, (Write, Send)) else 0
        through, delay = self._inside(end, verb) if carried else ((), 0)
        self._channels.send(now, end.requests, carried, partial(self._depart, end, work, delay), through)

    def wake(self, now: Nanoseconds) -> list[tuple[str, Message]]:
        """(node, completion or received SEND) of all that happened up to `now`, in order."""
        self._appointments.advance(now)
        news, self._news = self._news, []
        return news

    def deadline(self) -> Nanoseconds | None:
        """When something happens next, or None."""
        return self._news_at if self._news else self._appointments.deadline()

    def cut(self, node: str) -> None:
        """From now on nothing leaves or reaches `node`, as if its cables were pulled."""
        self._cut.add(node)

    def _tell(self, now: Nanoseconds, node: str, message: Message) -> None:
        if not self._news:
            self._news_at = now
        self._news.append((node, message))

    def _inside(self, end: _End, verb: Verb) -> tuple[tuple[FluidPort, ...], Nanoseconds]:
        """What the data cross besides the wire, and by how much that makes them later."""
        memories = self._memory.crossed(end.node, end.connection.peer, verb)
        delay = self._memory.delay(memories)
        if end.copies is None:
            return memories, delay
        from_host, to_host = self._memory.ends(end.node, verb)
        return end.copies.copied(from_host=from_host, to_host=to_host) + memories, delay

    def _latency(self, end: _End) -> Nanoseconds:
        """Of the way to the peer; a copy within a node has that of its submission alone."""
        return self._settings.latency if end.copies is None else 0

    def _carried(self, end: _End, verb: Verb, size: int) -> int:
        """True bytes of the frames that carry a message of `size` bytes, or of an image of so many."""
        if isinstance(verb, Write | Read) and (end.connection.peer, verb.remote.key) in self._image_keys:
            size *= self._byte_scale
        if end.copies is not None:
            return size
        return size + max(1, -(-size // self._wiring.path_mtu)) * PACKET_OVERHEAD + MESSAGE_OVERHEAD

    # --- the life of a verb -----------------------------------------------------------------------------------------

    def _depart(self, end: _End, work: _Work, delay: Nanoseconds, now: Nanoseconds) -> None:
        """The request's last bit has left."""
        end.arrived = max(end.arrived, now + self._latency(end) + delay)
        self._appointments.at(end.arrived, partial(self._arrive, end, work))

    def _arrive(self, end: _End, work: _Work, now: Nanoseconds) -> None:
        """The whole request is at the peer."""
        if end.failed or end.failing:
            return
        peer = self._ends[end.connection.peer, end.connection.peer_number]
        if not 0 <= message_bytes(work.verb) <= MAXIMUM_MESSAGE_BYTES:
            status = CompletionStatus.LOCAL_LENGTH_ERROR
        elif peer.failed or self._is_cut(end):
            self._give_up(now, end)
            return
        elif isinstance(work.verb, Send) and self._settings.receives == 0:
            waits = RNR_DELAYS[self._settings.rnr_timer] * self._settings.rnr_retry_limit
            self._fail_at(now + waits, end, CompletionStatus.RNR_RETRY_EXCEEDED)
            return
        else:
            status = self._execute(now, end, work)
        if status is CompletionStatus.SUCCESS:
            answer = self._carried(end, work.verb, len(work.data)) if isinstance(work.verb, Read) else 0
            through, delay = self._inside(end, work.verb) if answer else ((), 0)
            self._channels.send(now, end.answers, answer, partial(self._answered, end, work, delay), through)
            return
        end.failing = True
        if status is not CompletionStatus.LOCAL_LENGTH_ERROR:
            self._fail(peer, CompletionStatus.FLUSHED, now)
        self._channels.send(now, end.answers, 0, partial(self._refused, end, status))

    def _execute(self, now: Nanoseconds, end: _End, work: _Work) -> CompletionStatus:
        """The request's effect on the peer's memory, or the status that the peer's NAK would give."""
        verb, regions = work.verb, self._wiring.regions[end.connection.peer]
        try:
            match verb:
                case Write():
                    place = _find(regions, verb.remote.key, verb.remote.address, len(verb.data), Access.REMOTE_WRITE)
                    place[:] = verb.data
                case Read():
                    work.data = bytes(
                        _find(regions, verb.remote.key, verb.remote.address, verb.length, Access.REMOTE_READ)
                    )
                case CompareSwap() | FetchAdd():
                    if verb.remote.address % 8:
                        return CompletionStatus.REMOTE_INVALID_REQUEST
                    work.original = _atomic(regions, verb)
                case Send():
                    if len(verb.data) > self._settings.receive_bytes:
                        return CompletionStatus.REMOTE_INVALID_REQUEST
                    self._tell(now, end.connection.peer, Received(end.node, bytes(verb.data)))
        except RegionError:
            return CompletionStatus.REMOTE_ACCESS_ERROR
        return CompletionStatus.SUCCESS

    def _answered(self, end: _End, work: _Work, delay: Nanoseconds, now: Nanoseconds) -> None:
        """The answer's last bit has left the peer."""
        end.answered = max(end.answered, now + self._latency(end) + delay)
        self._appointments.at(end.answered, partial(self._complete, end, work))

    def _complete(self, end: _End, work: _Work, now: Nanoseconds) -> None:
        if end.failed or end.works[0] is not work:
            return
        if self._is_cut(end):
            self._give_up(now, end)
            return
        end.works.popleft()
        self._tell(now, end.node, Completion(work.verb.ticket, CompletionStatus.SUCCESS, work.data, work.original))

    # --- failure ----------------------------------------------------------------------------------------------------

    def _is_cut(self, end: _End) -> bool:
        return end.node in self._cut or end.connection.peer in self._cut

    def _give_up(self, now: Nanoseconds, end: _End) -> None:
        silence = self._settings.retransmission_timeout * (self._settings.retry_limit + 1)
        self._fail_at(now + silence, end, CompletionStatus.RETRY_EXCEEDED)

    def _refused(self, end: _End, status: CompletionStatus, now: Nanoseconds) -> None:
        """The NAK has left the peer, behind the answers before it."""
        self._fail_at(max(end.answered, now + self._latency(end)), end, status)

    def _fail_at(self, moment: Nanoseconds, end: _End, status: CompletionStatus) -> None:
        end.failing = True
        self._appointments.at(moment, partial(self._fail, end, status))

    def _fail(self, end: _End, status: CompletionStatus, now: Nanoseconds) -> None:
        """The oldest verb ends with `status`, all later ones FLUSHED; the end takes nothing more."""
        if end.failed:
            return
        end.failed = True
        self._channels.close(now, end.requests)
        self._channels.close(now, end.answers)
        while end.works:
            self._tell(now, end.node, Completion(end.works.popleft().verb.ticket, status))
            status = CompletionStatus.FLUSHED


def _find(regions: RegionTable, key: int, address: int, length: int, access: Access) -> memoryview:
    """The bytes asked for; a message of no bytes needs no region (IBA C9-88). Raises RegionError."""
    if length == 0:
        return memoryview(bytearray())
    region = regions.find(key, address, length, access)
    offset = address - region.address
    return region.memory.view[offset : offset + length]


def _atomic(regions: RegionTable, verb: CompareSwap | FetchAdd) -> int:
    region = regions.find(verb.remote.key, verb.remote.address, 8, Access.REMOTE_ATOMIC)
    offset = verb.remote.address - region.address
    if isinstance(verb, CompareSwap):
        return region.memory.compare_swap(offset, verb.expected, verb.desired)
    return region.memory.fetch_add(offset, verb.addend % (1 << 64))
