"""One system on the simulated pieces, as its row of SYSTEMS assembles it, with a desk where its API's shell would be.

The desk stands on the server's own node, under the name of the port that the server answers, as the HTTP shell of an
emulated node does. It says what a test scheduled, notes what comes back, and departs where a test says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from heapq import heapify, heappop
from typing import Any, NamedTuple

from testbed.clocks.simulated import Simulation
from testbed.events.schema import RequestAbandoned, RequestArrived, RequestRefused, RequestServed
from testbed.experiment.assembly import SYSTEMS, assemble_node
from testbed.experiment.outlines import Surroundings
from testbed.experiment.plan import Plan
from testbed.experiment.planning import compile_plan
from testbed.experiment.reading import spec_from_tables
from testbed.experiment.simulation import make_links, make_wire
from testbed.experiment.sweep import Place
from testbed.machine import NOTHING, Deliver, Effects, Event, Machine, Message
from testbed.network.memory_region import LocalMemory, PlainMemory
from testbed.serving.executor import Executor
from testbed.serving.requests import Abandon, Finish, Refused, Request, Sampling, Submit, Tokens
from testbed.serving.tokens import Vocabulary, deepseek_vocabulary
from testbed.units import MILLISECOND, SECOND

Left = Mapping[str, int]
"""What a system still holds, by name; all 0 when nobody is served."""

ENGINE: dict[str, Any] = {
    "context_tokens": 512, "kv_blocks": 64, "kv_block_tokens": 16, "max_batch": 4, "prefills_per_pause": 2,
}  # fmt: skip
"""A small engine, the same for every system."""
CAPACITY = 12
"""Requests that each system of the suite takes at once."""


@cache
def vocabulary() -> Vocabulary:
    """The vocabulary of the runs, read once."""
    return deepseek_vocabulary()


class Candidate(NamedTuple):
    """A system that is to keep the contract."""

    kind: str
    parameters: dict[str, Any]
    """Beside those of the engine; with them it takes `CAPACITY` requests at once."""
    port: str
    """Name under which its server answers the API's shell."""
    left: Callable[[Mapping[str, Machine], Any], Left]
    """What its machines, by name, still hold, given its parameters."""


class Departure(NamedTuple):
    """A client that leaves once it has so many tokens."""

    tokens: int
    message: Message


class Desk:
    """In place of the API's shell."""

    def __init__(
        self, name: str, server: str, visits: Sequence[tuple[int, Message]], departures: Mapping[str, Departure]
    ) -> None:
        self.name = name
        self.answers: list[tuple[int, Message]] = []
        self._server = server
        self._visits = [(t, place, message) for place, (t, message) in enumerate(visits)]
        heapify(self._visits)
        self._departures = dict(departures)
        self._counts: dict[str, int] = {}

    @property
    def waiting(self) -> int:
        return len(self._visits)

    def deadline(self) -> int | None:
        return self._visits[0][0] if self._visits else None

    def wake(self, now: int) -> Effects:
        out = []
        while self._visits and self._visits[0][0] <= now:
            out.append(Deliver(self._server, heappop(self._visits)[2]))
        return out

    def receive(self, now: int, message: Message) -> Effects:
        assert isinstance(message, Tokens | Refused)
        self.answers.append((now, message))
        if not isinstance(message, Tokens):
            return NOTHING
        count = self._counts[message.name] = self._counts.get(message.name, 0) + len(message.tokens)
        departure = self._departures.get(message.name)
        if departure is None or count < departure.tokens or message.reason is not None:
            return NOTHING
        del self._departures[message.name]
        return (Deliver(self._server, departure.message),)


class ServingWorld:
    """The system's nodes, its desk, and true time."""

    def __init__(
        self,
        candidate: Candidate,
        visits: Sequence[tuple[int, Message]],
        departures: Mapping[str, Departure] | None = None,
        *,
        executor: Executor | None = None,
        **parameters: Any,
    ) -> None:
        """`executor` runs the graphs of the GPU in place of the cost model."""
        self.plan = plan_of(candidate, {**ENGINE, **candidate.parameters, **parameters})
        row = SYSTEMS[candidate.kind]
        node, server = row.server
        self.desk = Desk(candidate.port, server, visits, departures or {})
        self.events: list[tuple[int, Event]] = []
        self.arrived = 0
        self.endings: list[Event] = []
        """The epitaph of every request that has one: served, abandoned or refused."""
        self.machines: dict[str, Machine] = {}
        memories: dict[tuple[str, str], LocalMemory] = {
            (each.name, region.name): PlainMemory(region.size) for each in self.plan.nodes for region in each.regions
        }
        self.simulation = Simulation(make_wire(self.plan, memories), None, make_links(self.plan))
        for each in self.plan.nodes:
            if each.role == "client":
                continue
            own = {name: memory for (owner, name), memory in memories.items() if owner == each.name}
            device = executor if each.role == "gpu" else None
            surroundings = Surroundings(own, vocabulary(), device)
            assembly = assemble_node(self.plan, each.name, surroundings)
            machines = (*assembly.machines, *((self.desk,) if each.name == node else ()))
            self.machines.update({machine.name: machine for machine in assembly.machines})
            self.simulation.add_node(each.name, machines, self._note, assembly.accelerator)
        self._candidate = candidate

    def _note(self, now: int, event: Event) -> None:
        self.events.append((now, event))
        self.arrived += isinstance(event, RequestArrived)
        if isinstance(event, RequestServed | RequestAbandoned | RequestRefused):
            self.endings.append(event)

    def run(self, limit: int = 120 * SECOND) -> ServingWorld:
        """Until every request has ended, and a little longer, so that what it held can come back."""
        ended = self.simulation.run(limit, lambda: self.desk.waiting == 0 and len(self.endings) == self.arrived)
        assert ended, f"{self.arrived - len(self.endings)} requests have not ended"
        self.simulation.run(self.simulation.now + 50 * MILLISECOND)
        return self

    def left(self) -> Left:
        """What the system still holds."""
        parameters = SYSTEMS[self._candidate.kind].parameters
        return self._candidate.left(self.machines, parameters(**self.plan.parameters))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for _, event in self.events if isinstance(event, kind)]

    def messages(self, name: str) -> list[Message]:
        return [message for _, message in self.desk.answers if message.name == name]  # type: ignore[attr-defined]

    def tokens(self, name: str) -> list[int]:
        return [token for message in self.messages(name) if isinstance(message, Tokens) for token in message.tokens]

    def text(self, name: str) -> str:
        return "".join("".join(m.texts) for m in self.messages(name) if isinstance(m, Tokens))

    def reason(self, name: str) -> str:
        """How it ended for its client: stop, length, or the reason of the refusal; empty for one that left."""
        endings = [m.reason for m in self.messages(name) if isinstance(m, Refused | Tokens) and m.reason is not None]
        assert len(endings) <= 1, f"{name} was ended twice"
        if endings:
            assert self.messages(name)[-1].reason == endings[0], f"{name} went on after its end"  # type: ignore[attr-defined]
        return endings[0] if endings else ""

    def first_token(self, name: str) -> int:
        return next(t for t, m in self.desk.answers if isinstance(m, Tokens) and m.name == name and m.tokens)

    def served(self) -> dict[int, RequestServed]:
        return {event.request: event for event in self.of(RequestServed)}

    def number(self, name: str) -> int:
        return next(event.request for event in self.of(RequestArrived) if event.name == name)

    def abandoned(self) -> list[int]:
        return [event.request for event in self.of(RequestAbandoned)]


def plan_of(candidate: Candidate, parameters: dict[str, Any]) -> Plan:
    """The plan of one simulated trial."""
    system = {"kind": candidate.kind, **parameters}
    tables = {"name": "x", "title": "X", "systems": {"s": system}, "workload": {"requests": 1}}
    spec = spec_from_tables(tables, "x.toml")
    return compile_plan(spec, Place("s", (), 0), run="20260101-000000-0a1b2c", label="0a1b2c", clock="simulated")


def ask(name: str, prompt: str = "The rain in Spain", max_tokens: int = 8, seed: int = 1, **sampling: Any) -> Submit:
    """A request."""
    return Submit(Request(name, prompt, max_tokens, Sampling(seed=seed, **sampling)))


def leave(name: str, tokens: int = 1) -> Departure:
    return Departure(tokens, Abandon(name))


def satisfied(name: str, tokens: int = 1) -> Departure:
    return Departure(tokens, Finish(name))
