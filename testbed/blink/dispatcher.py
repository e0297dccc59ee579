"""Which of several GPUs serves a request: before the front ends of a DPU, one a ring, stands one that chooses.

Beyond the paper, which has one GPU. Every GPU has its ring and its resident scheduler, and every ring a front end of
its own on the DPU; nothing is shared between GPUs. The choice is made once, at arrival, by what the DPU itself knows:
how many requests are open at each GPU. A GPU whose last answer was that it cannot be reached is left alone for a
while, unless there is no other. It tokenises nothing and reads no ring.
"""

from __future__ import annotations

from collections.abc import Sequence

from testbed.blink.parameters import BlinkParameters
from testbed.machine import NOTHING, Deliver, Effects, Message, UnexpectedMessage
from testbed.serving.requests import Abandon, Finish, Refused, Submit, Tokens
from testbed.units import SECOND, Nanoseconds

AVOIDED: Nanoseconds = 1 * SECOND
"""How long a GPU that could not be reached gets no new requests while there is another. Our choice."""


class _Open:
    """A name's requests that have not ended: more than one where a client uses a name again too early."""

    def __init__(self, gpu: int) -> None:
        self.gpu = gpu
        self.count = 0


class Dispatcher:
    """The machine "front_end" of a DPU with several GPUs."""

    name = "front_end"

    def __init__(self, parameters: BlinkParameters, front_ends: Sequence[str], *, to: str = "api") -> None:
        """`front_ends` are the machines of this node, one a GPU; answers go on to the port `to`."""
        self._by_turns = parameters.gpu_choice == "round_robin"
        self._front_ends = tuple(front_ends)
        self._to = to
        self._open: dict[str, _Open] = {}
        self._avoided: list[Nanoseconds] = [0] * len(self._front_ends)
        self._turn = 0
        self.load = [0] * len(self._front_ends)
        """Open requests at each GPU."""

    def deadline(self) -> Nanoseconds | None:
        """Never: it only answers."""
        return None

    def wake(self, now: Nanoseconds) -> Effects:  # noqa: ARG002  # the contract
        """Nothing."""
        return NOTHING

    def receive(self, now: Nanoseconds, message: Message) -> Effects:
        """Takes clients' requests and departures, and the front ends' answers."""
        match message:
            case Submit(request=request):
                at = self._open.get(request.name)
                if at is None:
                    at = self._open[request.name] = _Open(self._choose(now))
                at.count += 1
                self.load[at.gpu] += 1
                return (Deliver(self._front_ends[at.gpu], message),)
            case Abandon(name=name) | Finish(name=name):
                at = self._open.get(name)
                if at is None:
                    return NOTHING  # its last message and the news of its departure have crossed
                self._end(name, at)
                return (Deliver(self._front_ends[at.gpu], message),)
            case Tokens(name=name, reason=reason):
                if reason is not None and (at := self._open.get(name)) is not None:
                    self._end(name, at)
                return (Deliver(self._to, message),)
            case Refused(name=name, reason=reason):
                if (at := self._open.get(name)) is not None:
                    if reason == "unavailable":
                        self._avoided[at.gpu] = now + AVOIDED
                    self._end(name, at)
                return (Deliver(self._to, message),)
        raise UnexpectedMessage(self.name, message)

    def _choose(self, now: Nanoseconds) -> int:
        every = range(len(self._front_ends))
        there = [gpu for gpu in every if self._avoided[gpu] <= now] or list(every)
        if not self._by_turns:
            return min(there, key=lambda gpu: (self.load[gpu], gpu))
        chosen = min(there, key=lambda gpu: (gpu - self._turn) % len(every))
        self._turn = chosen + 1
        return chosen

    def _end(self, name: str, at: _Open) -> None:
        self.load[at.gpu] -= 1
        at.count -= 1
        if not at.count:
            del self._open[name]
