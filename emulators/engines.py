"""What the processes of prefill and decode nodes share: one process hosts all engines of a node, with leader and mail.

The engines' memory is shared with the node's soft RNIC, so KV comes and goes without this process; compute takes its
modelled time (`testbed.serving.timed_device`). Everything is as in a simulation (`testbed.experiment.assembly`).
"""

from __future__ import annotations

from collections.abc import Sequence

from emulators.node import NodeRun
from emulators.promptness import ACCELERATOR_TURN, ask_for_turns
from testbed.experiment.assembly import assemble_node
from testbed.experiment.outlines import Surroundings
from testbed.experiment.simulation import Finite


def build(run: NodeRun) -> None:
    """Assembles the node."""
    ask_for_turns(ACCELERATOR_TURN)
    assembly = assemble_node(run.plan, run.name, Surroundings(run.memories))
    run.attach(assembly.machines, assembly.accelerator)
    finite = [machine for machine in assembly.machines if isinstance(machine, Finite)]
    if finite:
        run.watch(run.wake_fd, lambda: _look_whether_done(run, finite))


def _look_whether_done(run: NodeRun, finite: Sequence[Finite]) -> None:
    """Marks the end of the work of a node whose engines have work of their own, once."""
    if not run.marked_done and all(machine.done for machine in finite):
        run.mark_done()
