"""What goes wrong on purpose under the simulated clock, and the owners of devices' memory, who start new schedulers.

A node that is killed is cut off from the wire and never woken again. A scheduler that is killed or hangs is never
woken again either, but its node's memory stays reachable; the owner of that memory sees when a new one is asked for
and starts it on the memory as it is. An owner looks every `OWNER_LOOK`; it also serves a watchdog that was wrong.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from heapq import heappop, heappush

from testbed.clocks.simulated import Simulation
from testbed.events.fidelity_events import FaultInjected
from testbed.events.run_events import NodeStopped
from testbed.experiment.outlines import NodeAssembly, Owner
from testbed.experiment.plan import FaultPlan
from testbed.machine import Event
from testbed.network.wires import FlowWire, PacketWire
from testbed.units import MILLISECOND, Nanoseconds

KILLED = -9
"""Exit code of a node that a fault has befallen, as of a process that SIGKILL has ended."""
OWNER_LOOK: Nanoseconds = MILLISECOND
"""Between two looks of an owner for a question. Our choice: a process that polls a word now and then."""

Write = Callable[[str, Nanoseconds, Event], None]
"""An event of a node, or of the bench."""


class SimulatedFaults:
    """The faults of one trial, in order, and the owners of its devices' memory."""

    def __init__(
        self,
        faults: tuple[FaultPlan, ...],
        owners: Mapping[str, Owner],
        simulation: Simulation,
        wire: FlowWire | PacketWire,
        write: Write,
        bench: str,
        assemble: Callable[[str], NodeAssembly],
    ) -> None:
        """`owners` by node; `bench` is whose log says what is done; `assemble` makes a node's machines anew, on its
        memory as it is.
        """
        self._bench = bench
        self._faults = deque(faults)
        self._owners = owners
        self._simulation = simulation
        self._wire = wire
        self._write = write
        self._assemble = assemble
        self._look_at: Nanoseconds = OWNER_LOOK
        self._starts: list[tuple[Nanoseconds, str]] = []
        self.gone: set[str] = set()
        """Nodes that are gone for good: their logs have ended."""
        self.silent: set[str] = set()
        """Nodes without a scheduler: they write nothing."""

    @property
    def next(self) -> Nanoseconds | None:
        """When there is something to do, whatever else happens before."""
        moments = [self._faults[0].at] if self._faults else []
        if self._owners:
            moments.append(self._look_at)
        if self._starts:
            moments.append(self._starts[0][0])
        return min(moments, default=None)

    def attend(self, moment: Nanoseconds) -> None:
        """Does one thing that is due before what happens next in the simulation, which is at `moment`."""
        first = self.next
        if self._faults and self._faults[0].at == first:
            self._befall(self._faults.popleft())
        elif self._starts and self._starts[0][0] == first:
            self._start(*heappop(self._starts))
        else:
            self._look(moment)

    def _befall(self, fault: FaultPlan) -> None:
        self._write(self._bench, fault.at, FaultInjected(fault.node, fault.kind))
        self._simulation.lose(fault.node)
        self.silent.add(fault.node)
        if fault.kind != "kill":
            return
        self._write(fault.node, fault.at, NodeStopped(code=KILLED, detail=f"{fault.kind}, by the experiment"))
        self._wire.cut(fault.node)
        self.gone.add(fault.node)

    def _look(self, moment: Nanoseconds) -> None:
        """The last look before `moment`: nothing has happened since the one before it."""
        seen_at = moment - moment % OWNER_LOOK
        self._look_at = seen_at + OWNER_LOOK
        starting = {node for _, node in self._starts}
        for node, owner in self._owners.items():
            if node not in starting and node not in self.gone and owner.restart_asked():
                # The old one is ended first: two at once on one ring would undo each other's work.
                self._simulation.lose(node)
                self.silent.add(node)
                heappush(self._starts, (seen_at + owner.restart_cost, node))

    def _start(self, at: Nanoseconds, node: str) -> None:
        self._owners[node].begin_life()
        machines, accelerator = self._assemble(node)
        self._simulation.replace(node, at, machines, accelerator)
        self.silent.discard(node)
