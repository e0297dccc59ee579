"""The central scheduler's process: DualPath's request scheduler between the agents and the engines' leaders.

`python -m emulators.scheduler --run RUNFOLDER --node NAME`. Turns come over the front network by TCP
(`emulators.front_link`), letters to and from engines' nodes over the compute network through the node's soft RNIC.
"""

from __future__ import annotations

from emulators.front_link import TurnServer
from emulators.node import NodeRun
from emulators.node_life import run_node
from emulators.promptness import DPU_TURN, ask_for_turns
from testbed.experiment.assembly import SYSTEMS, assemble_node
from testbed.experiment.outlines import Surroundings


def build(run: NodeRun) -> None:
    """Listens for agents and assembles the node."""
    ask_for_turns(DPU_TURN)
    _, machine = SYSTEMS[run.plan.kind].server
    link = TurnServer(run, api=machine)
    assembly = assemble_node(run.plan, run.name, Surroundings(run.memories))
    run.attach(assembly.machines, assembly.accelerator, outside=link.carry)


if __name__ == "__main__":
    raise SystemExit(run_node(build))
