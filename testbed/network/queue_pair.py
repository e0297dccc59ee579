"""A reliable-connection queue pair without I/O: verbs and datagrams in, datagrams and completions out.

Shaped after aioquic: `post`, `receive_packet(now, datagram)`, `packets_to_send(now, budget)`, `deadline()`,
`wake(now)`, `poll_completions()`. Knows its two addresses only because the ICRC covers them; it opens no socket and
reads no clock. States follow IBA 10.3 (the send-queue-drained and send-queue-error states, which a reliable
connection without live migration does not need, are left out).

Posting only queues. However many verbs were posted, one `packets_to_send` drains them: the doorbell is the caller's.
After any failure the oldest verb ends with its status and all others FLUSHED, so no verb is ever left unanswered.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from testbed.machine import Completion, CompletionStatus, Received, Verb
from testbed.network.connection import Connection, ConnectionSettings, Counters
from testbed.network.memory_region import RegionTable
from testbed.network.requester import Requester
from testbed.network.responder import Responder
from testbed.network.roce import RESPONSES, Buffer, Flow, Packet, PacketError, WrongIcrc, source_port
from testbed.units import Nanoseconds


class State(Enum):
    """What a queue pair is."""

    RESET = "reset"
    INIT = "init"
    READY_TO_RECEIVE = "ready to receive"
    READY_TO_SEND = "ready to send"
    ERROR = "error"


class Move(Enum):
    """What may be done to a queue pair."""

    INITIALISE = "initialise"
    ENABLE_RECEIVE = "enable receive"
    ENABLE_SEND = "enable send"
    FAIL = "fail"
    RESET = "reset"


TRANSITIONS: Final[dict[tuple[State, Move], State]] = {
    (State.RESET, Move.INITIALISE): State.INIT,
    (State.INIT, Move.ENABLE_RECEIVE): State.READY_TO_RECEIVE,
    (State.READY_TO_RECEIVE, Move.ENABLE_SEND): State.READY_TO_SEND,
    (State.INIT, Move.FAIL): State.ERROR,
    (State.READY_TO_RECEIVE, Move.FAIL): State.ERROR,
    (State.READY_TO_SEND, Move.FAIL): State.ERROR,
    (State.RESET, Move.RESET): State.RESET,
    (State.INIT, Move.RESET): State.RESET,
    (State.READY_TO_RECEIVE, Move.RESET): State.RESET,
    (State.READY_TO_SEND, Move.RESET): State.RESET,
    (State.ERROR, Move.RESET): State.RESET,
}
"""Moves that are legal (IBA 10.3); any other raises IllegalMove and changes nothing."""

RECEIVING: Final = frozenset({State.READY_TO_RECEIVE, State.READY_TO_SEND})
"""States in which packets are taken; in all others they are dropped silently."""


class QueuePairError(Exception):
    """A queue pair was used against its rules; our fault, never the peer's."""


class IllegalMove(QueuePairError):
    """The state has no such move."""

    def __init__(self, number: int, state: State, move: Move) -> None:
        self.number = number
        self.state = state
        self.move = move
        super().__init__(f"queue pair {number:#x} is in state {state.value!r}, which has no move {move.value!r}")


class CannotPost(QueuePairError):
    """Work was posted in a state that takes none."""

    def __init__(self, number: int, state: State, work: str) -> None:
        self.number = number
        self.state = state
        super().__init__(f"queue pair {number:#x} cannot take a {work} in state {state.value!r}")


class QueuePair:
    """One end of a reliable connection, in state RESET until moved on.

    `regions` are those of the node that owns this end; requests of the peer act on them. Memory given to `post`
    (a WRITE's data, a READ's sink) must stay valid until the completion, as with a real NIC.
    """

    def __init__(
        self, connection: Connection, regions: RegionTable, settings: ConnectionSettings | None = None
    ) -> None:
        self.connection = connection
        self.settings = settings or ConnectionSettings()
        self.counters = Counters()
        self.state = State.RESET
        self.turn = 0
        """How many connections there were before this one."""
        self._regions = regions
        self._outbound = Flow(connection.address, connection.peer_address, source_port(connection.number))
        self._inbound = Flow(connection.peer_address, connection.address, source_port(connection.peer_number))
        self._respond_next = True
        self._build_halves()

    @property
    def number(self) -> int:
        """Own number, 24 bits; peers' packets name it."""
        return self.connection.number

    @property
    def port(self) -> int:
        """UDP source port of this queue pair's packets."""
        return self._outbound.port

    def _build_halves(self) -> None:
        self._requester = Requester(self.connection, self.settings, self.counters)
        self._responder = Responder(self.connection, self.settings, self._regions, self.counters)

    def change(self, move: Move) -> None:
        """Makes `move`. FAIL flushes all verbs; RESET forgets them. Raises IllegalMove and then changes nothing."""
        after = TRANSITIONS.get((self.state, move))
        if after is None:
            raise IllegalMove(self.number, self.state, move)
        self.state = after
        if move is Move.RESET:
            self._build_halves()
        elif move is Move.FAIL:
            self._requester.fail(CompletionStatus.FLUSHED)
            self._responder.abandon()

    def connect(self) -> None:
        """The three moves from RESET to READY_TO_SEND."""
        for move in (Move.INITIALISE, Move.ENABLE_RECEIVE, Move.ENABLE_SEND):
            self.change(move)

    def reconnect(self, turns: int = 1) -> None:
        """From any state through RESET to READY_TO_SEND, `turns` connections on (`Connection.renewed`).

        The way out of ERROR (IBA 10.3). Both ends must take the same turns: until the peer has, requests run into its
        silence or its NAKs and end in RETRY_EXCEEDED, never in a success. Verbs without completion are FLUSHED and
        can still be polled; receives are forgotten and must be posted anew.
        """
        if (self.state, Move.FAIL) in TRANSITIONS:
            self.change(Move.FAIL)
        left = self._requester.completions, self._responder.received
        self.connection = self.connection.renewed(turns)
        self.turn += turns
        self.change(Move.RESET)
        self._requester.completions, self._responder.received = left
        self.connect()

    # --- work --------------------------------------------------------------------------------------------------------

    def post(self, verb: Verb, sink: memoryview | None = None) -> None:
        """Queues `verb`; in state ERROR it is answered FLUSHED at once. A READ lands in `sink` if one is given.

        Raises CannotPost before READY_TO_SEND, ValueError or TypeError for a verb that cannot be encoded.
        """
        if self.state not in (State.READY_TO_SEND, State.ERROR):
            raise CannotPost(self.number, self.state, type(verb).__name__)
        self._requester.post(verb, sink)
        self._note_failures()

    def post_receive(self, capacity: int) -> None:
        """Makes room for one SEND of at most `capacity` bytes. Raises CannotPost in state RESET."""
        if self.state is State.RESET:
            raise CannotPost(self.number, self.state, "receive")
        self._responder.post_receive(capacity)

    @property
    def receives(self) -> int:
        """Posted receives that no SEND has taken yet."""
        return self._responder.receives

    @property
    def outstanding(self) -> int:
        """Verbs that have no completion yet."""
        return len(self._requester)

    def poll_completions(self) -> list[Completion]:
        """Completions since the last call, in the order of posting."""
        done = self._requester.completions
        if done:
            self._requester.completions = []
        return done

    def poll_received(self) -> list[Received]:
        """SENDs that have landed whole since the last call."""
        landed = self._responder.received
        if not landed:
            return []
        self._responder.received = []
        return [Received(self.connection.peer, data) for data in landed]

    # --- the wire -----------------------------------------------------------------------------------------------------

    def receive_packet(self, now: Nanoseconds, datagram: Buffer) -> None:
        """Takes one UDP payload. What is damaged, foreign or unexpected is dropped and counted; nothing is raised."""
        if self.state not in RECEIVING:
            return
        try:
            packet = self._inbound.parse(datagram)
        except WrongIcrc:
            self.counters.icrc_errors += 1
            return
        except PacketError:
            self.counters.malformed += 1
            return
        self.counters.received += 1
        if packet.queue_pair != self.connection.number:
            self.counters.malformed += 1
        elif packet.opcode not in RESPONSES:
            self._responder.receive(packet)
        elif self.state is State.READY_TO_SEND:
            self._requester.receive(now, packet)
        self._note_failures()

    def has_packets(self, now: Nanoseconds) -> bool:
        """True if `packets_to_send` would return something."""
        return self._responder.ready() or self._requester.ready(now)

    def packets_to_send(self, now: Nanoseconds, budget: int = 1 << 30) -> list[bytes]:
        """At most `budget` UDP payloads for the peer; requests and responses take turns."""
        packets: list[bytes] = []
        while len(packets) < budget and (packet := self._next_packet(now)) is not None:
            packets.append(self._outbound.build(packet))
        self.counters.sent += len(packets)
        return packets

    def _next_packet(self, now: Nanoseconds) -> Packet | None:
        self._respond_next = not self._respond_next
        if self._respond_next:
            return self._responder.next_packet() or self._requester.next_packet(now)
        return self._requester.next_packet(now) or self._responder.next_packet()

    def deadline(self) -> Nanoseconds | None:
        """When `wake` is due, or None."""
        return self._requester.deadline()

    def wake(self, now: Nanoseconds) -> None:
        """Does what is due at `now`: retransmission, the end of a not-ready pause, or giving up."""
        self._requester.wake(now)
        self._note_failures()

    def _note_failures(self) -> None:
        if self.state is State.ERROR:
            return
        if self._responder.failed:
            # The last responses and the NAK itself still leave; the peer must learn why (IBA 9.9).
            self._requester.fail(CompletionStatus.FLUSHED)
            self.state = State.ERROR
        elif self._requester.failed:
            self._responder.abandon()
            self.state = State.ERROR
