"""What the host's CPU does to a step: times of its pieces beside their amounts, gaps between graphs, waits, counters.

The mechanism behind interference, as the paper's Table 1 and its section on Nsight and perf have it (Blink summary). A
*step* is what core and worker do on the host between one launch of a graph and the next; the API's process is not in
it, since no graph waits for it. It knows events of hosts and devices, not who wrote them. All times are true ones.
"""

from __future__ import annotations

import msgspec

from testbed.events.fidelity_events import WaitMeasured
from testbed.events.host_events import CountersMeasured, GraphMeasured, HostOperation, LaunchGap
from testbed.events.log import Record
from testbed.events.run_events import NodeReady
from testbed.machine import Event
from testbed.metrics.tally import Tally, add, copied
from testbed.units import Nanoseconds

LAUNCH = "launch"
"""The operation that ends a step."""
API = "api"
"""The process whose work no graph waits for."""
PER_MILLE = 1000
PER_MILLION = 1_000_000


class HostPathState(msgspec.Struct):
    """So far."""

    hosts: tuple[str, ...] = ()
    """Nodes of the role host."""
    elapsed: Nanoseconds = 0
    """Of the step under way."""
    amount: Nanoseconds = 0
    step: Tally = msgspec.field(default_factory=Tally)
    """Nanoseconds of each step."""
    inflation: Tally = msgspec.field(default_factory=Tally)
    """Time of each step ÷ its amount, in thousandths."""
    gap: Tally = msgspec.field(default_factory=Tally)
    """Nanoseconds in which the accelerator stood idle between two graphs of a running batch."""
    modelled: Nanoseconds = 0
    measured: Nanoseconds = 0
    excess: Tally = msgspec.field(default_factory=Tally)
    """Time of each graph beyond the modelled, in millionths of it."""
    waited: Nanoseconds = 0
    """Of the hosts' processes for a CPU."""
    ran: Nanoseconds = 0
    watched: Nanoseconds = 0
    counts: dict[str, int] = {}
    """Of the server's processes, by counter."""
    counted: Nanoseconds = 0
    absent: tuple[str, ...] = ()
    """Counters that the machine does not have."""


class HostPathFold:
    """Folds a run's events into the mechanism."""

    state = HostPathState
    takes: frozenset[type[Event]] = frozenset(
        {NodeReady, HostOperation, LaunchGap, GraphMeasured, WaitMeasured, CountersMeasured}
    )

    def start(self) -> HostPathState:
        """Nothing yet."""
        return HostPathState()

    def step(self, state: HostPathState, record: Record) -> HostPathState:
        """Takes one event. What is measured before the epoch is set-up and does not count."""
        match record.event:
            case NodeReady(role="host"):
                state.hosts = (*state.hosts, record.node)
            case event if record.t >= 0:
                _take(state, event)
        return state

    def result(self, state: HostPathState) -> HostPathState:
        """The state itself, apart from what is still to come."""
        tallies = {name: copied(getattr(state, name)) for name in ("step", "inflation", "gap", "excess")}
        return msgspec.structs.replace(state, counts=dict(state.counts), **tallies)


def _take(state: HostPathState, event: Event) -> None:
    match event:
        case HostOperation(process=process, operation=operation) if process != API:
            state.elapsed += event.elapsed
            state.amount += event.amount
            if operation == LAUNCH:
                add(state.step, state.elapsed)
                if state.amount:
                    add(state.inflation, PER_MILLE * state.elapsed // state.amount)
                state.elapsed = state.amount = 0
        case LaunchGap(gap=gap):
            add(state.gap, gap)
        case GraphMeasured(modelled=modelled, elapsed=elapsed):
            state.modelled += modelled
            state.measured += elapsed
            if modelled:
                add(state.excess, PER_MILLION * (elapsed - modelled) // modelled)
        case WaitMeasured(process=process) if _of_a_host(state, process) and event.waited >= 0:
            state.waited += event.waited
            state.ran += event.ran
            state.watched += event.interval
        case CountersMeasured():
            for name, count in zip(event.counters, event.counts, strict=False):
                state.counts[name] = state.counts.get(name, 0) + count
            state.counted += event.interval
            state.absent = event.absent or state.absent


def _of_a_host(state: HostPathState, process: str) -> bool:
    kind, _, log = process.partition(" ")
    return kind == "node" and any(log == host or log.startswith(f"{host}-") for host in state.hosts)
