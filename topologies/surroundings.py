"""What is about a run's server on the host: mitigations that protect it, neighbours beside it, counters of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from testbed.experiment.plan import Plan
from testbed.machine import Event
from topologies.bench_network import BenchNetwork
from topologies.bench_pids import process_pids
from topologies.counters import CounterMeter
from topologies.mitigations import Mitigations
from topologies.naming import Names
from topologies.neighbours import Neighbours
from topologies.processes import ProcessTable, cpu_sets


class Surroundings:
    """Of one run. `cores` are the machine's."""

    def __init__(
        self, plan: Plan, names: Names, network: BenchNetwork, table: ProcessTable, cores: tuple[int, ...]
    ) -> None:
        self._plan = plan
        self._network = network
        self._neighbours = Neighbours(plan, names, table, cpu_sets(plan, cores).host)
        self._mitigations: Mitigations | None = None
        self._counters: CounterMeter | None = None

    def prepare(self) -> None:
        """Makes the neighbours' containers, while nobody is timed yet. Raises ProgramFailed or DockerFault."""
        self._neighbours.prepare(self._network.docker, self._network.image)

    def start(self, check: Callable[[], None]) -> Iterator[Event]:
        """Protects the server, which is ready and calibrated, then starts its neighbours and waits until all work.

        Raises NodeDied, TimeoutError, and what `check` raises.
        """
        hosts = [node for node in self._plan.nodes if node.role == "host" and node.processes]
        pids = {name: pid for node in hosts for name, pid in process_pids(self._plan, node.name).items()}
        cpus = sorted({core for node in hosts for core in self._network.cpus[node.name]})
        self._mitigations = Mitigations(self._plan, pids, cpus)
        yield from self._mitigations.apply()
        yield from self._neighbours.start(check)
        self._counters = CounterMeter(pids)

    def check_all_run(self) -> None:
        """Raises NodeDied for a neighbour that has ended."""
        self._neighbours.check_all_run()

    def measure(self, *, last: bool = False) -> Iterator[Event]:
        """What neighbours did and what was counted since the last time."""
        yield from self._neighbours.measure(now=last)
        if self._counters is not None:
            yield from self._counters.measure()

    def end(self) -> Iterator[Event]:
        """Ends the neighbours and takes back what outlives the run."""
        yield from self._neighbours.end()
        if self._counters is not None:
            self._counters.close()
        if self._mitigations is not None:
            self._mitigations.undo()
