"""What the processes of prefill and decode nodes share: one process hosts all engines of a node, with leader and mail.

The engines' memory is shared with the node's soft RNIC, so KV comes and goes without this process; compute takes its
modelled time (`testbed.serving.timed_device`). Everything is as in a simulation (`testbed.experiment.assembly`).
"""

from __future__ import annotations

from emulators.node import NodeRun
from emulators.promptness import ACCELERATOR_TURN, ask_for_turns
from testbed.experiment.assembly import assemble_node
from testbed.experiment.outlines import Surroundings


def build(run: NodeRun) -> None:
    """Assembles the node."""
    ask_for_turns(ACCELERATOR_TURN)
    assembly = assemble_node(run.plan, run.name, Surroundings(run.memories))
    run.attach(assembly.machines, assembly.accelerator)
