"""The GPU's process: the resident scheduler, the emulated device, and the ring in memory that the NIC serves.

`python -m emulators.gpu --run RUNFOLDER --node NAME`. The ring lies in memory shared with the node's soft RNIC, so
the DPU reaches it without this process; everything else is as in a simulation (`testbed.experiment.assembly`).
"""

from __future__ import annotations

from emulators.node import NodeRun, run_node
from emulators.promptness import ACCELERATOR_TURN, ask_for_turns
from emulators.provisioning import wait_for_provisions
from testbed.experiment.assembly import assemble_node
from testbed.serving.tokens import deepseek_vocabulary


def build(run: NodeRun) -> None:
    """Assembles the node once the host has provisioned it."""
    ask_for_turns(ACCELERATOR_TURN)
    assembly = assemble_node(run.plan, run.name, run.memories, deepseek_vocabulary())
    run.attach(assembly.machines, assembly.accelerator)
    wait_for_provisions(run)


if __name__ == "__main__":
    raise SystemExit(run_node(build))
