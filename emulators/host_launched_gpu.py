"""The GPU's process where a host (or a DPU) launches its graphs over PCIe: the emulated device, and no scheduler.

The device's machine is the plan's (`testbed.experiment.assembly`); launches and answers cross `emulators.pcie_link`.
Where the plan has a real accelerator for the node, the graphs are computed and timed there, as for Blink.
"""

from __future__ import annotations

from emulators.machine_links import MachineLinks
from emulators.node import NodeRun
from emulators.pcie_link import PcieJoining
from emulators.promptness import ACCELERATOR_TURN, ask_for_turns
from testbed.experiment.assembly import assemble_node
from testbed.experiment.outlines import Surroundings
from testbed.serving.executor import Executor
from testbed.serving.tokens import Vocabulary
from testbed.units import MICROSECOND

SPIN = 200 * MICROSECOND
"""A graph's end must be seen within 1 % of a step of 6 ms, and some sleeps of a virtual machine end 100 us late."""


def build(run: NodeRun, executor: Executor | None, vocabulary: Vocabulary) -> None:
    """Assembles the node; waits until every process of the nodes that it is attached to has its link."""
    ask_for_turns(ACCELERATOR_TURN)
    run.spin = SPIN
    links = MachineLinks(run)
    joining = PcieJoining(run, links)
    assembly = assemble_node(run.plan, run.name, Surroundings(run.memories, vocabulary, executor))
    run.attach(assembly.machines, assembly.accelerator, outside=links.carry)
    joining.wait()
