"""A host of three processes whose machines pass a number round, by way of a device on another node: for tests.

`python -m relay_host --run RUNFOLDER --node host0|gpu0`, with this folder on PYTHONPATH. Each machine works for 50 us
before it passes the number on; "api" says each round, and starts the next until there were ROUNDS.
"""

from __future__ import annotations

import os
import time

from emulators.host_process import PROCESS_CODEC, HostProcess
from emulators.machine_links import MachineLinks
from emulators.node import NodeRun
from emulators.node_life import live_in_turns, live_to_the_end
from emulators.pcie_link import PcieJoining
from emulators.process_links import OtherProcesses, inherited_links, join_processes
from testbed.baselines.host_messages import WithdrawRequest
from testbed.events.run_events import LineLogged
from testbed.machine import Compute, Deliver, Emit
from testbed.serving.device_messages import LaunchStep, StepDone
from testbed.serving.graph_cache import DECODE, Graph
from testbed.serving.host_work import HostWork, HostWorked
from testbed.units import MICROSECOND, MILLISECOND

ROUNDS = int(os.environ.get("RELAY_ROUNDS", "20"))
GRAPH = Graph(DECODE, 1, 128)


class Link:
    """Takes a number, works, passes it on to `to`."""

    def __init__(self, name, to):
        self.name, self.to, self.held = name, to, 0

    def deadline(self):
        return None

    def wake(self, now):
        return ()

    def receive(self, now, message):
        if not isinstance(message, HostWorked):
            self.held = message.launch if isinstance(message, StepDone) else message.request
            return (Compute(HostWork(self.held, self.name, "copy", 50 * MICROSECOND)),)
        if self.to == "gpu0/device":
            return (Deliver(self.to, LaunchStep(self.held, GRAPH, ())),)
        return (Deliver(self.to, WithdrawRequest(self.held)),)


class Worker(Link):
    """Launches what comes from the core, and hands the device's answer back."""

    def receive(self, now, message):
        if isinstance(message, StepDone | WithdrawRequest):
            self.to = "api" if isinstance(message, StepDone) else "gpu0/device"
        return super().receive(now, message)


class Api(Link):
    """Begins, and says each round."""

    def __init__(self):
        super().__init__("api", "core")
        self.due = MILLISECOND

    def deadline(self):
        return self.due

    def wake(self, now):
        self.due = None
        return self.receive(now, WithdrawRequest(1))

    def receive(self, now, message):
        if isinstance(message, WithdrawRequest) and message.request > 1:
            said = Emit(LineLogged(text=f"round {message.request - 1}"))
            return (said, *super().receive(now, message)) if message.request <= ROUNDS else (said,)
        return super().receive(now, message)


class Device:
    """Answers each launch with the next number."""

    name = "device"

    def deadline(self):
        return None

    def wake(self, now):
        return ()

    def receive(self, now, message):
        assert isinstance(message, LaunchStep)
        return (Deliver("host0/worker", StepDone(message.launch + 1, ())),)


def machines():
    return (Api(), Link("core", "worker"), Worker("worker", "gpu0/device"))


def device(run: NodeRun) -> None:
    links = MachineLinks(run)
    joining = PcieJoining(run, links)
    run.attach((Device(),), outside=links.carry)
    joining.wait(20)


def other(run: NodeRun) -> None:
    process = HostProcess(run)
    join_processes(run, process.links, PROCESS_CODEC, inherited_links())
    process.attach_machines(machines())
    process.pcie.wait(20)
    process.wait_until_calibrated()


def live(run: NodeRun) -> None:
    if run.node.role == "gpu":
        live_in_turns(run, device)
        return
    if run.process:
        live_in_turns(run, other)
        return
    others = OtherProcesses(run)

    def first(run: NodeRun) -> None:
        process = HostProcess(run)
        others.start("relay_host", process.links, PROCESS_CODEC)
        process.attach_machines(machines())
        while not (process.pcie.attempt() and process.calibrated() and others.ready()) and not run.stopping:
            run.look_for_epoch()
            time.sleep(0.005)

    try:
        live_in_turns(run, first)
    finally:
        others.end()


if __name__ == "__main__":
    raise SystemExit(live_to_the_end(live))
