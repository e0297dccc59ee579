"""The responding half of a queue pair: request packets in, memory touched, response packets out.

Knows packets, memory regions and the receive queue; no time, no addresses, no bytes of a wire. Follows IBA 9.7
(responder) with platform.md §8. One-sided requests touch memory without any software of the node.

Responses leave in the order of their packet numbers; plain ACKs are coalesced (one covers all before it) and wait
for the READ responses and atomics that come before them, since an ACK that overtakes those tells a requester that
they were lost. READ data is fetched when its response is sent, so a later WRITE may be seen by an earlier READ, as
on a real NIC without a fence (IBA 10.8).
"""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import Final

from testbed.network.connection import MAXIMUM_MESSAGE_BYTES, Connection, ConnectionSettings, Counters
from testbed.network.memory_region import Access, RegionError, RegionTable
from testbed.network.roce import PSN_MASK, Aeth, AtomicEth, Opcode, Packet, Reth, Syndrome, unwrap


class Progress(Enum):
    """Where the responder stands within a message."""

    BETWEEN = "between messages"
    WRITING = "within a WRITE"
    RECEIVING = "within a SEND"


MESSAGES: Final[dict[tuple[Progress, Opcode], Progress]] = {
    (Progress.BETWEEN, Opcode.WRITE_FIRST): Progress.WRITING,
    (Progress.WRITING, Opcode.WRITE_MIDDLE): Progress.WRITING,
    (Progress.WRITING, Opcode.WRITE_LAST): Progress.BETWEEN,
    (Progress.BETWEEN, Opcode.WRITE_ONLY): Progress.BETWEEN,
    (Progress.BETWEEN, Opcode.SEND_FIRST): Progress.RECEIVING,
    (Progress.RECEIVING, Opcode.SEND_MIDDLE): Progress.RECEIVING,
    (Progress.RECEIVING, Opcode.SEND_LAST): Progress.BETWEEN,
    (Progress.BETWEEN, Opcode.SEND_ONLY): Progress.BETWEEN,
    (Progress.BETWEEN, Opcode.READ_REQUEST): Progress.BETWEEN,
    (Progress.BETWEEN, Opcode.COMPARE_SWAP): Progress.BETWEEN,
    (Progress.BETWEEN, Opcode.FETCH_ADD): Progress.BETWEEN,
}
"""Which request may come next (IBA 9.7); anything else is an invalid request and changes no memory."""

_WHOLE: Final = frozenset({Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.SEND_FIRST, Opcode.SEND_MIDDLE})
_LAST: Final = frozenset({Opcode.WRITE_LAST, Opcode.SEND_LAST})
_STARTS: Final = frozenset({Opcode.SEND_FIRST, Opcode.SEND_ONLY})
_WRITES: Final = frozenset({Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST, Opcode.WRITE_ONLY})
_SENDS: Final = frozenset({Opcode.SEND_FIRST, Opcode.SEND_MIDDLE, Opcode.SEND_LAST, Opcode.SEND_ONLY})
_FETCHES: Final = frozenset({Opcode.READ_REQUEST, Opcode.COMPARE_SWAP, Opcode.FETCH_ADD})
_EMPTY: Final = memoryview(bytearray())


class _Refused(Exception):
    """The request is answered with a NAK of this syndrome, and the connection fails."""

    def __init__(self, syndrome: Syndrome) -> None:
        self.syndrome = syndrome
        super().__init__(syndrome.name)


class _Answer:
    """READ responses or an atomic's result, still to be sent: packet numbers `next` to `end - 1`."""

    __slots__ = ("data", "end", "next", "original", "start")

    def __init__(self, start: int, end: int, data: memoryview, original: int | None) -> None:
        self.start = start
        self.next = start
        self.end = end
        self.data = data
        self.original = original


class Responder:
    """The receiving side of one queue pair."""

    def __init__(
        self, connection: Connection, settings: ConnectionSettings, regions: RegionTable, counters: Counters
    ) -> None:
        self._peer_number = connection.peer_number
        self._path_mtu = settings.path_mtu
        self._depth = settings.fetch_depth
        self._rnr_syndrome = Syndrome.RNR_NAK | settings.rnr_timer
        self._regions = regions
        self._counters = counters
        self._expected = connection.peer_psn
        self._messages = 0
        self._progress = Progress.BETWEEN
        self._target = _EMPTY
        """Where the present WRITE goes; its whole length was checked with its first packet."""
        self._filled = 0
        self._message = bytearray()
        self._capacity = 0
        self._receives: deque[int] = deque()
        self._answers: deque[_Answer] = deque()
        self._replay: deque[tuple[int, int]] = deque(maxlen=self._depth)
        self._ack: int | None = None
        self._nak: int | None = None
        """Syndrome of a NAK for the expected packet, still to be sent."""
        self._gap_told = False
        """One NAK a gap, and none behind an RNR NAK, until the expected packet comes (IBA 9.7)."""
        self.failed = False
        self.received: list[bytes] = []

    def post_receive(self, capacity: int) -> None:
        """Makes room for one SEND of at most `capacity` bytes."""
        self._receives.append(capacity)

    @property
    def receives(self) -> int:
        """Posted receives that are still free."""
        return len(self._receives)

    # --- requests ---------------------------------------------------------------------------------------------------

    def receive(self, packet: Packet) -> None:
        """Executes one request packet, or answers it again, or tells of the gap before it."""
        if self.failed:
            return
        number = unwrap(packet.psn, self._expected)
        if number > self._expected:
            self._counters.sequence_errors += 1
            if not self._gap_told:
                self._gap_told = True
                self._refuse(Syndrome.SEQUENCE_ERROR)
        elif number < self._expected:
            self._counters.duplicates += 1
            self._repeat(packet, number)
        else:
            try:
                self._execute(packet, number)
            except _Refused as refusal:
                self.failed = True
                self._refuse(refusal.syndrome)

    def _execute(self, packet: Packet, number: int) -> None:
        opcode = packet.opcode
        after = MESSAGES.get((self._progress, opcode))
        if after is None:
            raise _Refused(Syndrome.INVALID_REQUEST)
        if opcode in _STARTS and not self._receives:
            self._gap_told = True
            self._refuse(self._rnr_syndrome)
            return
        if opcode in _FETCHES and len(self._answers) >= 2 * self._depth:
            raise _Refused(Syndrome.INVALID_REQUEST)
        end = number + 1
        if opcode in _WRITES:
            self._write(packet, after)
        elif opcode in _SENDS:
            self._take_message(packet, after)
        elif packet.reth is not None:
            data = self._region(packet.reth, Access.REMOTE_READ)
            end = number + self._packets(packet.reth.length)
            self._answers.append(_Answer(number, end, data, None))
        elif packet.atomic is not None:
            original = self._atomic(packet.atomic, opcode)
            self._replay.append((number, original))
            self._answers.append(_Answer(number, end, _EMPTY, original))
        self._gap_told = False
        if self._nak is not None:
            # The gap closed before it was told, but what came behind it was dropped: tell of that instead.
            self._nak = Syndrome.SEQUENCE_ERROR
        self._progress = after
        self._expected = end
        if after is Progress.BETWEEN:
            self._messages += 1
        if packet.ack_request and opcode not in _FETCHES:
            self._ack = number

    def _write(self, packet: Packet, after: Progress) -> None:
        if packet.reth is not None:
            self._target = self._region(packet.reth, Access.REMOTE_WRITE)
            self._filled = 0
        end = self._filled + self._payload_size(packet)
        length = len(self._target)
        if end > length or (after is Progress.BETWEEN and end != length):
            raise _Refused(Syndrome.INVALID_REQUEST)
        self._target[self._filled : end] = packet.payload
        self._filled = end

    def _take_message(self, packet: Packet, after: Progress) -> None:
        size = self._payload_size(packet)
        if packet.opcode in _STARTS:
            self._capacity = self._receives.popleft()
            self._message = bytearray()
        if len(self._message) + size > self._capacity:
            raise _Refused(Syndrome.INVALID_REQUEST)
        self._message += packet.payload
        if after is Progress.BETWEEN:
            self.received.append(bytes(self._message))

    def _atomic(self, header: AtomicEth, opcode: Opcode) -> int:
        if header.address % 8:
            raise _Refused(Syndrome.INVALID_REQUEST)
        try:
            region = self._regions.find(header.key, header.address, 8, Access.REMOTE_ATOMIC)
        except RegionError:
            raise _Refused(Syndrome.REMOTE_ACCESS_ERROR) from None
        offset = header.address - region.address
        if opcode is Opcode.COMPARE_SWAP:
            return region.memory.compare_swap(offset, header.compare, header.swap_add)
        return region.memory.fetch_add(offset, header.swap_add)

    def _region(self, reth: Reth, access: Access) -> memoryview:
        """The bytes that `reth` names. A message of no bytes needs no region (IBA C9-88)."""
        if reth.length == 0:
            return _EMPTY
        if reth.length > MAXIMUM_MESSAGE_BYTES:
            raise _Refused(Syndrome.INVALID_REQUEST)
        try:
            region = self._regions.find(reth.key, reth.address, reth.length, access)
        except RegionError:
            raise _Refused(Syndrome.REMOTE_ACCESS_ERROR) from None
        offset = reth.address - region.address
        return region.memory.view[offset : offset + reth.length]

    def _payload_size(self, packet: Packet) -> int:
        """Size of the payload, which must be the path MTU unless the packet ends its message."""
        size = len(packet.payload)
        if packet.opcode in _WHOLE:
            allowed = size == self._path_mtu
        else:
            allowed = (1 if packet.opcode in _LAST else 0) <= size <= self._path_mtu
        if not allowed:
            raise _Refused(Syndrome.INVALID_REQUEST)
        return size

    def _packets(self, length: int) -> int:
        return max(1, -(-length // self._path_mtu))

    # --- requests that came before ------------------------------------------------------------------------------------

    def _repeat(self, packet: Packet, number: int) -> None:
        """A duplicate: a READ is executed again, an atomic's result replayed, a WRITE or SEND acknowledged again."""
        if packet.opcode is Opcode.READ_REQUEST and packet.reth is not None:
            end = number + self._packets(packet.reth.length)
            if end > self._expected:
                self._counters.malformed += 1
                return
            try:
                data = self._region(packet.reth, Access.REMOTE_READ)
            except _Refused:
                self._counters.malformed += 1
                return
            self._answer_again(_Answer(number, end, data, None))
        elif packet.atomic is not None:
            for done, original in self._replay:
                if done == number:
                    self._answer_again(_Answer(number, number + 1, _EMPTY, original))
        elif packet.ack_request:
            self._ack = self._expected - 1

    def _answer_again(self, new: _Answer) -> None:
        """Puts an answer in its place among those that are still to be sent.

        What is still to come is not doubled; an answer that is half sent starts over where it is asked for.
        """
        for place, old in enumerate(self._answers):
            if old.end <= new.start:
                continue
            if new.end <= old.start:
                if len(self._answers) < 2 * self._depth:
                    self._answers.insert(place, new)
            elif new.start < old.next:
                self._answers[place] = new
            return
        if len(self._answers) < 2 * self._depth:
            self._answers.append(new)

    # --- sending ------------------------------------------------------------------------------------------------------

    def _refuse(self, syndrome: int) -> None:
        self._ack = None
        self._nak = syndrome

    def ready(self) -> bool:
        """True if `next_packet` has one."""
        return bool(self._answers) or self._ack is not None or self._nak is not None

    def next_packet(self) -> Packet | None:
        """The next response packet, or None."""
        answer = self._answers[0] if self._answers else None
        if self._nak is not None and answer is None:
            syndrome, self._nak = self._nak, None
            self._counters.naks_sent += 1
            return self._acknowledgement(self._expected, syndrome)
        if self._ack is not None and (answer is None or self._ack < answer.next):
            number, self._ack = self._ack, None
            return self._acknowledgement(number, Syndrome.ACK)
        return None if answer is None else self._respond(answer)

    def _aeth(self, syndrome: int = Syndrome.ACK) -> Aeth:
        return Aeth(syndrome, self._messages & PSN_MASK)

    def _acknowledgement(self, number: int, syndrome: int) -> Packet:
        return Packet(Opcode.ACKNOWLEDGE, self._peer_number, number & PSN_MASK, aeth=self._aeth(syndrome))

    def _respond(self, answer: _Answer) -> Packet:
        number = answer.next
        answer.next += 1
        last = answer.next == answer.end
        if last:
            self._answers.popleft()
        if answer.original is not None:
            return Packet(
                Opcode.ATOMIC_ACKNOWLEDGE, self._peer_number, number & PSN_MASK, aeth=self._aeth(),
                original=answer.original,
            )  # fmt: skip
        index = number - answer.start
        if index == 0:
            opcode = Opcode.READ_RESPONSE_ONLY if last else Opcode.READ_RESPONSE_FIRST
        else:
            opcode = Opcode.READ_RESPONSE_LAST if last else Opcode.READ_RESPONSE_MIDDLE
        return Packet(
            opcode, self._peer_number, number & PSN_MASK,
            aeth=None if opcode is Opcode.READ_RESPONSE_MIDDLE else self._aeth(),
            payload=answer.data[index * self._path_mtu : (index + 1) * self._path_mtu],
        )  # fmt: skip

    def abandon(self) -> None:
        """The connection is over: nothing more is sent, nothing more is taken."""
        self.failed = True
        self._answers.clear()
        self._ack = self._nak = None
