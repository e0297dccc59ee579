"""One process of a host that runs the control loop: its machines, its processor, its links to all other machines.

Every process assembles the whole node as a simulation does (`testbed.experiment.assembly`) and keeps the machines that
`NodePlan.processes` gives it. Which those are is nothing that is decided here.
"""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterable, Sequence

from emulators.host_churn import Churn
from emulators.host_processor import RealProcessor
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
_LOOK_S = 0.005


class HostProcess:
    """What the process `run.process` of a host has, before the barrier. `otherwise` takes messages for a shell."""

    def __init__(self, run: NodeRun, otherwise: Callable[[Nanoseconds, Deliver], None] | None = None) -> None:
        """Raises PcieFault, OSError."""
        self._run = run
        self.links = MachineLinks(run, otherwise)
        self.pcie = PcieJoining(run, self.links)
        self.processor = RealProcessor(run, _machines_of(run)[0], Churn())
        self._loaded = self._timed = False

    def attach(self, vocabulary: Vocabulary) -> None:
        """Builds the machines. Raises what assembling raises."""
        assembly = assemble_node(
            self._run.plan, self._run.name, Surroundings(self._run.memories, vocabulary, processor=self.processor)
        )
        self.attach_machines(assembly.machines)

    def calibrated(self) -> bool:
        """Takes a step towards a processor that is timed, after `attach`; True once it is.

        No process is timed while another one of the node loads, or is timed: they share a core.
        """
        control = self._run.folder / "control"
        if not self._loaded:
            self._loaded = True
            (control / f"{self._run.log_name}.loaded").touch()
        if not all((control / f"{name}.loaded").exists() for name in self._run.node.log_names()):
            return False
        if not self._timed:
            with (control / f"{self._run.name}.calibrating").open("wb") as turn:
                fcntl.flock(turn, fcntl.LOCK_EX)
                self.processor.calibrate()
            self._timed = True
        return True

    def wait_until_calibrated(self) -> None:
        """Returns once the processor is timed, or the run is stopped."""
        while not self.calibrated() and not self._run.stopping:
            time.sleep(_LOOK_S)
            self._run.look_for_epoch()  # also notices that the run is being stopped

    def attach_machines(self, machines: Iterable[Machine]) -> None:
        """Keeps those of `machines` that are this process's. Raises MachineError where the plan has one too many."""
        wanted = _machines_of(self._run)
        own = {machine.name: machine for machine in machines if machine.name in wanted}
        if missing := [name for name in wanted if name not in own]:
            raise MachineError(f"{self._run.log_name} is to run {', '.join(missing)}, which {self._run.name} has not")
        self._run.attach((own[name] for name in wanted), self.processor, outside=self.links.carry)

    def close(self) -> None:
        """Closes links and processor."""
        self.pcie.close()
        self.links.close()
        self.processor.close()


def _machines_of(run: NodeRun) -> Sequence[str]:
    """Names of the machines of this process. Raises MachineError for a process that the plan has not."""
    groups = {group[0]: group for group in run.node.processes}
    first = run.node.processes[0][0]
    try:
        return groups[run.process or first]
    except KeyError:
        raise MachineError(f"{run.name} has no process {run.process!r}, only {', '.join(groups)}") from None
