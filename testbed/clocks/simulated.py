"""The simulated clock: all nodes, the wire and the front network in one process, from moment to moment.

Whenever nothing is due, time jumps to the next appointment of the heap (`testbed.clocks.agenda`). Nothing here looks
at a real clock and every order is defined, so the same machines with the same seeds write the same logs, byte for
byte (known fault 37). It knows machines and wires by their contracts only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from testbed.clocks.agenda import Agenda
from testbed.clocks.front_network import FrontNetwork
from testbed.clocks.node_host import Accelerator, NodeHost
from testbed.clocks.pcie import PcieLinks, split_address
from testbed.machine import Completion, Deliver, Event, Machine, MachineError, Message, Verb
from testbed.network.wires import Wire
from testbed.units import Nanoseconds

STUCK_AFTER = 100_000
"""Wakes at one and the same moment after which a machine is said to go in circles."""


class SimulationStuck(MachineError):
    """Time stands still: `source` asks to be woken again and again at `now`."""

    def __init__(self, source: str, now: Nanoseconds) -> None:
        self.source = source
        self.now = now
        super().__init__(f"{source} was woken {STUCK_AFTER} times at t = {now} and wants to be woken again")


class Simulation:
    """Drives nodes from t = 0. At equal times the older appointment goes first; see `Agenda`."""

    def __init__(
        self, wire: Wire, front: FrontNetwork | None = None, links: PcieLinks | None = None
    ) -> None:
        self.now: Nanoseconds = 0
        self.hosts: dict[str, NodeHost] = {}
        self.wakes = 0
        """How many appointments were kept so far."""
        self._wire = wire
        self._front = front
        self._links = links or PcieLinks()
        self._agenda = Agenda()
        self._wire_source = self._agenda.add_source()
        self._front_source = self._agenda.add_source()
        self._links_source = self._agenda.add_source()
        self._names = ["the wire", "the front network", "PCIe"]
        self._by_source: dict[int, NodeHost] = {}
        self._source_of: dict[str, int] = {}
        self._touched: set[int] = set()
        self._lost: set[str] = set()
        self._emits: dict[str, Callable[[Nanoseconds, Event], None]] = {}
        self._at_this_moment = 0

    def add_node(
        self,
        name: str,
        machines: Iterable[Machine],
        emit: Callable[[Nanoseconds, Event], None],
        accelerator: Accelerator | None = None,
    ) -> NodeHost:
        """A node whose events go to `emit`. Raises ValueError if there is one of this name."""
        if name in self.hosts:
            raise ValueError(f"there is a node {name!r} already")
        self._emits[name] = emit
        self._source_of[name] = self._agenda.add_source()
        self._names.append(name)
        return self._settle_in(name, machines, accelerator)

    def replace(
        self, name: str, at: Nanoseconds, machines: Iterable[Machine], accelerator: Accelerator | None = None
    ) -> NodeHost:
        """From `at` on, other machines on a node that is there, lost or not. Raises KeyError if there is none.

        What its old machines have posted must have completed.
        """
        self._lost.discard(name)
        return self._settle_in(name, machines, accelerator, at)

    def _settle_in(
        self, name: str, machines: Iterable[Machine], accelerator: Accelerator | None, at: Nanoseconds = 0
    ) -> NodeHost:
        host = NodeHost(
            name,
            machines,
            post=lambda now, verb: self._post(now, name, verb),
            emit=self._emits[name],
            outside=lambda now, deliver: self._outside(now, name, deliver),
            accelerator=accelerator,
        )
        source = self._source_of[name]
        self.hosts[name] = host
        self._by_source[source] = host
        deadline = host.deadline()
        self._agenda.appoint(source, None if deadline is None else max(deadline, self.now, at))
        return host

    def lose(self, name: str) -> None:
        """The node's machines are gone, with all that they know: they are never woken or told anything again.

        Its cables are the wire's business (`FlowWire.cut`). Raises KeyError if there is none.
        """
        self._agenda.appoint(self._source_of[name], None)
        self._lost.add(name)

    def next(self) -> Nanoseconds | None:
        """When something happens next, or None when nothing ever will."""
        found = self._agenda.next()
        return None if found is None else found[0]

    def step(self) -> bool:
        """Jumps to the next appointment and keeps it; False if there is none. Raises `SimulationStuck`."""
        if self._agenda.next() is None:
            return False
        t, source = self._agenda.take()
        self._at_this_moment = self._at_this_moment + 1 if t == self.now else 0
        if self._at_this_moment >= STUCK_AFTER:
            raise SimulationStuck(self._names[source], t)
        self.now = t
        self.wakes += 1
        self._touched.add(source)
        if source == self._wire_source:
            self._wake_wire()
        elif source == self._front_source:
            self._wake_front()
        elif source == self._links_source:
            self._hand_over(self._links.wake(t))
        else:
            self._by_source[source].wake(t)
        self._touched -= {self._source_of[name] for name in self._lost}
        for touched in sorted(self._touched):
            self._agenda.appoint(touched, self._not_before_now(self._deadline_of(touched)))
        self._touched.clear()
        return True

    def run(self, until: Nanoseconds | None = None, done: Callable[[], bool] = lambda: False) -> bool:
        """Steps until `done` says so (True), or until nothing is due up to `until` (False)."""
        while not done():
            moment = self.next()
            if moment is None or (until is not None and moment > until):
                return False
            self.step()
        return True

    def _wake_wire(self) -> None:
        for node, message in self._wire.wake(self.now):
            if node in self._lost:
                continue
            host = self.hosts[node]
            self._touched.add(self._source_of[node])
            if isinstance(message, Completion):
                host.complete(self.now, message)
            else:
                # What is SENT goes to the node's first machine: it owns the receive queue.
                host.deliver(self.now, next(iter(host.machines)), message)

    def _wake_front(self) -> None:
        assert self._front is not None
        self._hand_over(self._front.wake(self.now))

    def _hand_over(self, arrived: Iterable[tuple[str, str, Message]]) -> None:
        for node, machine, message in arrived:
            if node in self._lost:
                continue
            self._touched.add(self._source_of[node])
            self.hosts[node].deliver(self.now, machine, message)

    def _post(self, now: Nanoseconds, node: str, verb: Verb) -> None:
        self._wire.post(now, node, verb)
        self._touched.add(self._wire_source)

    def _outside(self, now: Nanoseconds, node: str, deliver: Deliver) -> None:
        if far := split_address(deliver.to):
            self._links.send(now, node, far, deliver.message)
            self._touched.add(self._links_source)
            return
        if self._front is None:
            raise MachineError(f"{node} has a message for {deliver.to!r}, and there is no front network")
        self._front.send(now, node, deliver.message)
        self._touched.add(self._front_source)

    def _deadline_of(self, source: int) -> Nanoseconds | None:
        if source == self._wire_source:
            return self._wire.deadline()
        if source == self._front_source:
            return None if self._front is None else self._front.deadline()
        if source == self._links_source:
            return self._links.deadline()
        return self._by_source[source].deadline()

    def _not_before_now(self, deadline: Nanoseconds | None) -> Nanoseconds | None:
        return None if deadline is None else max(deadline, self.now)
