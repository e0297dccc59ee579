"""The front network of a simulation: requests to the server and answers back, over ports of a rate and a delay.

An emulation has a real TCP connection here. The model: every node has one full-duplex port; a message is sent on its
sender's port when what was sent before has left, then on its receiver's port of the switch in the same way, and
arrives a fixed delay later. There is no loss and no congestion window. The sizes of HTTP are ours, measured on the
wire format of design serving §4.2: a request is its prompt and about 500 bytes of head and JSON, a chunk of an answer
its text and about 250 bytes a token. Turns of agents are no HTTP: their sizes are those of the very frames that an
emulation sends (`testbed.serving.turn_frames`).
"""

from __future__ import annotations

from collections.abc import Mapping

from testbed.clocks.arrivals import Arrivals
from testbed.machine import MachineError, Message
from testbed.serving.requests import Abandon, Refused, Submit, Tokens
from testbed.serving.turn_frames import frame
from testbed.serving.turns import SubmitTurn, TurnAdvanced, TurnFailed
from testbed.units import Nanoseconds, serialization_time

REQUEST_BYTES = 500
CHUNK_BYTES = 250
REFUSAL_BYTES = 400
SEGMENT_BYTES = 1448
"""What one TCP segment carries at MTU 1500 with time stamps."""
SEGMENT_OVERHEAD_BYTES = 66
"""Ethernet, IPv4 and TCP headers with time stamps."""


def wire_size(message: Message) -> int:
    """Bytes on the wire of a message between client and server. Raises MachineError for any other."""
    match message:
        case Submit(request=request):
            size = REQUEST_BYTES + len(request.prompt.encode())
        case Abandon():
            size = 0
        case Tokens(tokens=tokens, texts=texts):
            size = CHUNK_BYTES * max(len(tokens), 1) + sum(len(text.encode()) for text in texts)
        case Refused():
            size = REFUSAL_BYTES
        case SubmitTurn() | TurnAdvanced() | TurnFailed():
            size = len(frame(message))
        case _:
            raise MachineError(f"{type(message).__name__} does not travel on the front network")
    return size + max(1, -(-size // SEGMENT_BYTES)) * SEGMENT_OVERHEAD_BYTES


class FrontNetwork:
    """Carries messages between clients and one server. Names are (node, machine)."""

    def __init__(
        self,
        server: tuple[str, str],
        clients: Mapping[str, str],
        *,
        rates_bits_per_s: Mapping[str, int],
        delay: Nanoseconds,
        answer_delay: Nanoseconds | None = None,
    ) -> None:
        self._server = server
        self._clients = dict(clients)
        self._rates = dict(rates_bits_per_s)
        self._delay = delay
        self._answer_delay = delay if answer_delay is None else answer_delay
        self._asker: dict[str, str] = {}
        self._sending_until = dict.fromkeys(self._rates, 0)
        self._receiving_until = dict.fromkeys(self._rates, 0)
        self._arrivals = Arrivals()

    def send(self, now: Nanoseconds, node: str, message: Message) -> None:
        """`message` leaves `node`. Raises MachineError for one that belongs nowhere."""
        delay = self._delay
        if node in self._clients:
            to, machine = self._server
            if isinstance(message, Submit):
                self._asker[message.request.name] = node
            elif isinstance(message, SubmitTurn):
                self._asker[message.turn.name] = node
        elif node == self._server[0] and isinstance(message, Tokens | Refused | TurnAdvanced | TurnFailed):
            asker = self._asker.get(message.name)
            if asker is None:
                raise MachineError(f"{node} answers {message.name!r}, which no client has asked")
            if isinstance(message, TurnFailed) or (isinstance(message, TurnAdvanced) and message.done):
                del self._asker[message.name]
            to, machine = asker, self._clients[asker]
            delay = self._answer_delay
        else:
            raise MachineError(f"{node} has no front network for {type(message).__name__}")
        size = wire_size(message)
        left = self._occupy(self._sending_until, node, now, size)
        arrived = self._occupy(self._receiving_until, to, left, size)
        self._arrivals.expect(arrived + delay, to, machine, message)

    def wake(self, now: Nanoseconds) -> list[tuple[str, str, Message]]:
        """(node, machine, message) of all that has arrived by `now`."""
        return self._arrivals.wake(now)

    def deadline(self) -> Nanoseconds | None:
        """When the next message arrives."""
        return self._arrivals.deadline()

    def _occupy(self, until: dict[str, Nanoseconds], node: str, now: Nanoseconds, size: int) -> Nanoseconds:
        until[node] = max(now, until[node]) + serialization_time(size, self._rates[node])
        return until[node]
