"""One process of a host that runs the control loop: its machines, its processor, its links to all other machines.

Every process assembles the whole node as a simulation does (`testbed.experiment.assembly`) and keeps the machines that
`NodePlan.processes` gives it. Which those are is nothing that is decided here.
"""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Iterable, Sequence

from emulators.host_churn import Churn
from emulators.host_processor import RealProcessor, calibrate
from emulators.machine_links import MachineLinks
from emulators.message_stream import Codec
from emulators.node import NodeRun
from emulators.pcie_link import PcieJoining
from testbed.baselines import host_messages
from testbed.experiment.assembly import assemble_node
from testbed.experiment.outlines import Surroundings
from testbed.machine import Deliver, Machine, MachineError
from testbed.serving.tokens import Vocabulary
from testbed.units import Nanoseconds

PROCESS_CODEC = Codec(host_messages.encode, host_messages.decode)
"""What the processes of a node say to each other."""


class HostProcess:
    """What the process `run.process` of a host has, before the barrier. `otherwise` takes messages for a shell."""

    def __init__(self, run: NodeRun, otherwise: Callable[[Nanoseconds, Deliver], None] | None = None) -> None:
        """Raises PcieFault, OSError."""
        self._run = run
        self.links = MachineLinks(run, otherwise)
        self.pcie = PcieJoining(run, self.links)
        self._processor: RealProcessor | None = None

    def attach(self, vocabulary: Vocabulary) -> None:
        """Builds the processor, which times itself, and the machines. Raises what assembling raises."""
        processor = self.ready_processor()
        assembly = assemble_node(
            self._run.plan, self._run.name, Surroundings(self._run.memories, vocabulary, processor=processor)
        )
        self.attach_machines(assembly.machines)

    def ready_processor(self) -> RealProcessor:
        """The process's processor; made, and timed, when it is first asked for."""
        if self._processor is None:
            churn = Churn()
            # One process at a time: they share a core, and would time each other.
            with (self._run.folder / "control" / f"{self._run.name}.calibrating").open("wb") as turn:
                fcntl.flock(turn, fcntl.LOCK_EX)
                calibration = calibrate(churn)
            self._processor = RealProcessor(self._run, _machines_of(self._run)[0], churn, calibration)
        return self._processor

    def attach_machines(self, machines: Iterable[Machine]) -> None:
        """Keeps those of `machines` that are this process's. Raises MachineError where the plan has one too many."""
        wanted = _machines_of(self._run)
        own = {machine.name: machine for machine in machines if machine.name in wanted}
        if missing := [name for name in wanted if name not in own]:
            raise MachineError(f"{self._run.log_name} is to run {', '.join(missing)}, which {self._run.name} has not")
        self._run.attach((own[name] for name in wanted), self.ready_processor(), outside=self.links.carry)

    def close(self) -> None:
        """Closes links and processor."""
        self.pcie.close()
        self.links.close()
        if self._processor is not None:
            self._processor.close()


def _machines_of(run: NodeRun) -> Sequence[str]:
    """Names of the machines of this process. Raises MachineError for a process that the plan has not."""
    groups = {group[0]: group for group in run.node.processes}
    first = run.node.processes[0][0]
    try:
        return groups[run.process or first]
    except KeyError:
        raise MachineError(f"{run.name} has no process {run.process!r}, only {', '.join(groups)}") from None
