"""The GPU's process: the resident scheduler, the emulated device, and the ring in memory that the NIC serves.

`python -m emulators.gpu --run RUNFOLDER --node NAME`. The ring lies in memory shared with the node's soft RNIC, so
the DPU reaches it without this process; everything else is as in a simulation (`testbed.experiment.assembly`). Where
the plan has a real accelerator for the node, the graphs are computed and timed there.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from emulators import host_launched_gpu
from emulators.accelerator_protocol import VERSION, Open
from emulators.device_accelerator import SOCKET_VARIABLE, DeviceExecutor
from emulators.device_owner import live_as_owner
from emulators.node import NodeRun
from emulators.promptness import ACCELERATOR_TURN, ask_for_turns
from emulators.provisioning import wait_for_provisions
from testbed.events.fidelity_events import HardwareEngaged
from testbed.experiment.assembly import assemble_node, parameters_of
from testbed.experiment.outlines import Surroundings
from testbed.serving.text_model import bundled_text_model
from testbed.serving.tokens import Vocabulary, deepseek_vocabulary


def build(run: NodeRun) -> None:
    """Assembles the node once the host has provisioned it; or as a device whose graphs another node launches."""
    executor = _open_device(run)
    if run.node.attached:
        host_launched_gpu.build(run, executor, _vocabulary())
        return
    ask_for_turns(ACCELERATOR_TURN)
    assembly = assemble_node(run.plan, run.name, Surroundings(run.memories, _vocabulary(), executor))
    run.attach(assembly.machines, assembly.accelerator)
    wait_for_provisions(run)


def _open_device(run: NodeRun) -> DeviceExecutor | None:
    """The node's real accelerator, if the plan has one. Raises `AcceleratorLost`."""
    planned = run.plan.hardware.accelerators.get(run.name)
    if planned is None:
        return None
    # The bench names the socket of a device that it has started itself.
    path = Path(os.environ.get(SOCKET_VARIABLE) or planned.socket or "")
    parameters = parameters_of(run.plan)
    request = Open(VERSION, parameters.model, parameters.max_batch, parameters.context())
    executor = DeviceExecutor.connect(path, request, patience_s=planned.patience_s)
    facts = (*executor.opened.facts, f"times of graphs are measured on {executor.opened.device}")
    run.emit(HardwareEngaged("accelerator", run.name, executor.opened.device, facts))
    run.watch(executor.fd)
    return executor


@cache
def _vocabulary() -> Vocabulary:
    return deepseek_vocabulary()


def load() -> None:
    """What every scheduler's process needs and takes long: words, and the model of what they say."""
    bundled_text_model(_vocabulary())


if __name__ == "__main__":
    raise SystemExit(live_as_owner(build, load))
