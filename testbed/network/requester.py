"""The requesting half of a queue pair: verbs in, request packets out, completions when the responses have come.

Knows packets, and time as an argument; no memory regions, no addresses, no bytes of a wire. Follows IBA 9.7
with rxe's window and ACK rules (platform.md §8).

Packets are counted without wrapping (`roce.unwrap`). A verb takes its numbers when it is posted: one a packet, and a
READ as many as its response has packets. `acknowledged <= next <= high <= tail` always holds: what is done, what
will be sent next, one past the furthest ever sent, one past the last posted. Going back means `next = acknowledged`.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from testbed.machine import CompareSwap, Completion, CompletionStatus, FetchAdd, Read, Send, Verb, Write
from testbed.network.connection import MAXIMUM_MESSAGE_BYTES, RNR_DELAYS, Connection, ConnectionSettings, Counters
from testbed.network.roce import PSN_MASK, AtomicEth, Opcode, Packet, Reth, Syndrome, unwrap
from testbed.units import Nanoseconds

_FAILURES: Final[dict[int, CompletionStatus]] = {
    Syndrome.INVALID_REQUEST: CompletionStatus.REMOTE_INVALID_REQUEST,
    Syndrome.REMOTE_ACCESS_ERROR: CompletionStatus.REMOTE_ACCESS_ERROR,
    Syndrome.REMOTE_OPERATION_ERROR: CompletionStatus.REMOTE_OPERATION_ERROR,
}
_WRITE_OPCODES: Final = (Opcode.WRITE_FIRST, Opcode.WRITE_MIDDLE, Opcode.WRITE_LAST, Opcode.WRITE_ONLY)
_SEND_OPCODES: Final = (Opcode.SEND_FIRST, Opcode.SEND_MIDDLE, Opcode.SEND_LAST, Opcode.SEND_ONLY)
_LAST_RESPONSES: Final = frozenset({Opcode.READ_RESPONSE_LAST, Opcode.READ_RESPONSE_ONLY})
_WORD_LIMIT: Final = 1 << 64
_EMPTY: Final = memoryview(b"")


def check_verb(verb: Verb) -> None:
    """Raises TypeError for a verb that no queue pair carries, ValueError for a word or address beyond 64 bits."""
    if isinstance(verb, CompareSwap):
        words = {"address": verb.remote.address, "expected": verb.expected, "desired": verb.desired}
    elif isinstance(verb, (Write, Read, FetchAdd)):
        words = {"address": verb.remote.address}
    elif isinstance(verb, Send):
        return
    else:
        raise TypeError(f"{type(verb).__name__} is no verb that a queue pair carries")
    for field, word in words.items():
        if not 0 <= word < _WORD_LIMIT:
            raise ValueError(f"{type(verb).__name__} {field} is {word:#x}; allowed are 64-bit words")
    if not 0 <= verb.remote.key < 1 << 32:
        raise ValueError(f"{type(verb).__name__} key is {verb.remote.key:#x}; allowed are 32 bits")


class WorkRequest:
    """A posted verb and its place in the sequence: packet numbers `first` to `end - 1`.

    A verb that this end refuses (`refusal`) takes no number: it waits for its turn and then fails the connection,
    as a local error of a real NIC does.
    """

    __slots__ = ("data", "end", "fetches", "first", "length", "opcodes", "original", "owned", "refusal", "sink", "verb")

    def __init__(self, verb: Verb, first: int, path_mtu: int, sink: memoryview | None) -> None:
        self.verb = verb
        self.first = first
        self.fetches = isinstance(verb, (Read, CompareSwap, FetchAdd))
        self.original = 0
        self.data = _EMPTY
        self.opcodes = _SEND_OPCODES if isinstance(verb, Send) else _WRITE_OPCODES
        self.refusal: CompletionStatus | None = None
        if isinstance(verb, (Write, Send)):
            self.data = memoryview(verb.data).cast("B")
            self.length = len(self.data)
        else:
            self.length = verb.length if isinstance(verb, Read) else 8
        if not 0 <= self.length <= MAXIMUM_MESSAGE_BYTES:
            self.refusal = CompletionStatus.LOCAL_LENGTH_ERROR
        elif isinstance(verb, Read) and sink is not None and len(sink) < self.length:
            self.refusal = CompletionStatus.LOCAL_PROTECTION_ERROR
        self.end = first + (0 if self.refusal is not None else max(1, -(-self.length // path_mtu)))
        self.owned = sink is None
        if sink is None and isinstance(verb, Read) and self.refusal is None:
            sink = memoryview(bytearray(self.length))
        self.sink = sink

    def completion(self, status: CompletionStatus) -> Completion:
        """The verb's answer; `data` stays empty when the poster gave a sink of its own."""
        data = b""
        if status is CompletionStatus.SUCCESS and self.owned and self.sink is not None:
            data = bytes(self.sink)
        return Completion(self.verb.ticket, status, data, self.original)


class Requester:
    """The send queue of one queue pair."""

    def __init__(self, connection: Connection, settings: ConnectionSettings, counters: Counters) -> None:
        self._peer_number = connection.peer_number
        self._settings = settings
        self._counters = counters
        self._queue: deque[WorkRequest] = deque()
        self._cursor = 0
        """Place in the queue of the request that holds `next`; the ones before it are wholly sent."""
        self._acknowledged = self._next = self._high = self._tail = connection.initial_psn
        self._fetching = 0
        """READs and atomics before the cursor: in flight at the responder."""
        self._retries = 0
        self._rnr_retries = 0
        self._timer: Nanoseconds | None = None
        self._pause: Nanoseconds | None = None
        """Not ready there: nothing is sent before this moment."""
        self._went_back_at = -1
        """Value of `acknowledged` when a response last made us go back; once for each gap."""
        self.failed = False
        self.completions: list[Completion] = []

    def __len__(self) -> int:
        return len(self._queue)

    def post(self, verb: Verb, sink: memoryview | None = None) -> None:
        """Queues `verb`; nothing is sent before `next_packet`. A READ lands in `sink` if one is given.

        After a failure the verb is answered FLUSHED at once. Raises as `check_verb`.
        """
        check_verb(verb)
        if self.failed:
            self.completions.append(Completion(verb.ticket, CompletionStatus.FLUSHED))
            return
        request = WorkRequest(verb, self._tail, self._settings.path_mtu, sink)
        self._queue.append(request)
        self._tail = request.end
        self._refuse_head()

    # --- sending ----------------------------------------------------------------------------------------------------

    def ready(self, now: Nanoseconds) -> bool:
        """True if `next_packet` has one."""
        if self._cursor >= len(self._queue) or (self._pause is not None and now < self._pause):
            return False
        if self._next >= self._acknowledged + self._settings.window_packets:
            return False
        request = self._queue[self._cursor]
        if request.fetches and self._fetching >= self._settings.fetch_depth:
            return False
        return request.refusal is None

    def next_packet(self, now: Nanoseconds) -> Packet | None:
        """The next request packet, or None. Starts the retransmission timer."""
        if not self.ready(now):
            return None
        request = self._queue[self._cursor]
        number = self._next
        if request.fetches:
            packet = self._fetch_packet(request, number)
            self._fetching += 1
            self._next = request.end
        else:
            packet = self._data_packet(request, number)
            self._next = number + 1
        if number < self._high:
            self._counters.resent += 1
        if self._next > self._high:
            self._high = self._next
        if self._next == request.end:
            self._cursor += 1
        if self._timer is None:
            self._timer = now + self._settings.retransmission_timeout
        return packet

    def _data_packet(self, request: WorkRequest, number: int) -> Packet:
        path_mtu = self._settings.path_mtu
        index = number - request.first
        last = number + 1 == request.end
        place = (3 if last else 0) if index == 0 else (2 if last else 1)
        reth = None
        if index == 0 and isinstance(request.verb, Write):
            reth = Reth(request.verb.remote.address, request.verb.remote.key, request.length)
        return Packet(
            request.opcodes[place],
            self._peer_number,
            number & PSN_MASK,
            last or (index + 1) % self._settings.ack_interval_packets == 0,
            reth,
            payload=request.data[index * path_mtu : (index + 1) * path_mtu],
        )

    def _fetch_packet(self, request: WorkRequest, number: int) -> Packet:
        verb, psn = request.verb, number & PSN_MASK
        if isinstance(verb, Read):
            # After a lost response the READ is asked again from the missing packet on (IBA 9.7).
            done = (number - request.first) * self._settings.path_mtu
            reth = Reth(verb.remote.address + done, verb.remote.key, request.length - done)
            return Packet(Opcode.READ_REQUEST, self._peer_number, psn, reth=reth)
        if isinstance(verb, CompareSwap):
            atomic = AtomicEth(verb.remote.address, verb.remote.key, verb.desired, verb.expected)
            return Packet(Opcode.COMPARE_SWAP, self._peer_number, psn, atomic=atomic)
        assert isinstance(verb, FetchAdd)
        atomic = AtomicEth(verb.remote.address, verb.remote.key, verb.addend % _WORD_LIMIT, 0)
        return Packet(Opcode.FETCH_ADD, self._peer_number, psn, atomic=atomic)

    # --- responses --------------------------------------------------------------------------------------------------

    def receive(self, now: Nanoseconds, packet: Packet) -> None:
        """Takes one response packet; old ones and ones for numbers never sent are ignored."""
        number = unwrap(packet.psn, self._acknowledged)
        if not self._acknowledged <= number <= self._high:
            return
        if packet.opcode is Opcode.ACKNOWLEDGE and packet.aeth is not None:
            self._take_acknowledgement(now, packet.aeth.syndrome, number)
        elif number < self._high:
            self._take_fetched(now, packet, number)

    def _take_acknowledgement(self, now: Nanoseconds, syndrome: int, number: int) -> None:
        kind = syndrome >> 5
        if kind == 0:
            if number < self._high and not self._acknowledge(now, number + 1):
                self._go_back_once()
        elif kind == 1:
            self._counters.rnr_naks += 1
            self._take_rnr_nak(now, number, syndrome & 0x1F)
        elif syndrome == Syndrome.SEQUENCE_ERROR:
            # The expected packet may be one that was never sent, if all before it has come in the meantime.
            self._counters.naks_received += 1
            self._acknowledge(now, number)
            self._go_back_once()
        elif syndrome in _FAILURES:
            self._counters.naks_received += 1
            if self._acknowledge(now, number):
                self.fail(_FAILURES[syndrome])
            else:
                self._go_back_once()
        else:
            self._counters.malformed += 1

    def _acknowledge(self, now: Nanoseconds, upto: int) -> bool:
        """Everything before `upto` has been executed. False if a READ or atomic in between still lacks its response.

        Responses come in order, so one that is overtaken is lost (the implied NAK of IBA 9.7).
        """
        before = self._acknowledged
        while self._acknowledged < upto and not self._queue[0].fetches:
            self._acknowledged = min(self._queue[0].end, upto)
            if self._acknowledged == self._queue[0].end:
                self._finish_head()
        if self._acknowledged != before:
            self._progress(now)
        return self._acknowledged >= upto

    def _take_fetched(self, now: Nanoseconds, packet: Packet, number: int) -> None:
        if not self._acknowledge(now, number):
            self._go_back_once()
            return
        head = self._queue[0]
        if packet.opcode is Opcode.ATOMIC_ACKNOWLEDGE:
            if not isinstance(head.verb, (CompareSwap, FetchAdd)) or packet.original is None:
                self._counters.malformed += 1
                return
            head.original = packet.original
        else:
            offset = (number - head.first) * self._settings.path_mtu
            size = min(head.length - offset, self._settings.path_mtu)
            last = number + 1 == head.end
            if (
                not isinstance(head.verb, Read)
                or len(packet.payload) != size
                or (packet.opcode in _LAST_RESPONSES) is not last
            ):
                self._counters.malformed += 1
                return
            assert head.sink is not None
            head.sink[offset : offset + size] = packet.payload
        self._acknowledged = number + 1
        if self._acknowledged == head.end:
            self._finish_head()
        self._progress(now)

    def _take_rnr_nak(self, now: Nanoseconds, number: int, timer_code: int) -> None:
        if not self._acknowledge(now, number):
            self._go_back_once()
            return
        if self._pause is not None:
            return
        self._rnr_retries += 1
        if self._rnr_retries > self._settings.rnr_retry_limit:
            self.fail(CompletionStatus.RNR_RETRY_EXCEEDED)
            return
        self._go_back()
        self._pause = now + RNR_DELAYS[timer_code]

    def _finish_head(self) -> None:
        head = self._queue.popleft()
        self.completions.append(head.completion(CompletionStatus.SUCCESS))
        if self._cursor:
            self._cursor -= 1
            if head.fetches:
                self._fetching -= 1
        self._refuse_head()

    def _refuse_head(self) -> None:
        if self._queue and self._queue[0].refusal is not None:
            self.fail(self._queue[0].refusal)

    def _progress(self, now: Nanoseconds) -> None:
        self._retries = self._rnr_retries = 0
        self._pause = None
        if self._next < self._acknowledged:
            self._next = self._acknowledged
        outstanding = self._acknowledged < self._next
        self._timer = now + self._settings.retransmission_timeout if outstanding else None

    def _go_back_once(self) -> None:
        if self._went_back_at != self._acknowledged:
            self._went_back_at = self._acknowledged
            self._go_back()

    def _go_back(self) -> None:
        self._next = self._acknowledged
        self._cursor = 0
        self._fetching = 0
        self._timer = None

    # --- time and failure -------------------------------------------------------------------------------------------

    def deadline(self) -> Nanoseconds | None:
        """When `wake` is due: a retransmission, or the end of a not-ready pause."""
        if self._pause is None or self._timer is None:
            return self._timer if self._pause is None else self._pause
        return min(self._timer, self._pause)

    def wake(self, now: Nanoseconds) -> None:
        """Ends a pause that is over; goes back, or gives up, when the retransmission timer has run out."""
        if self._pause is not None and now >= self._pause:
            self._pause = None
        if self._timer is not None and now >= self._timer:
            self._counters.timeouts += 1
            self._retries += 1
            if self._retries > self._settings.retry_limit:
                self.fail(CompletionStatus.RETRY_EXCEEDED)
                return
            self._went_back_at = -1
            self._go_back()

    def fail(self, status: CompletionStatus) -> None:
        """The connection is over: the oldest verb ends with `status`, all later ones FLUSHED."""
        self.failed = True
        self._timer = self._pause = None
        while self._queue:
            self.completions.append(self._queue.popleft().completion(status))
            status = CompletionStatus.FLUSHED
        self._cursor = self._fetching = 0
