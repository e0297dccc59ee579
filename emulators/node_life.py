"""A whole life of an emulated node without HTTP: opened, connected, at the barrier, in turns, and how it ended.

A module `emulators/<role>.py` is a few lines:

    def build(run: NodeRun) -> None:
        assembly = assemble_node(run.plan, run.name, Surroundings(run.memories))
        run.attach(assembly.machines, assembly.accelerator)

    if __name__ == "__main__":
        raise SystemExit(run_node(build))            # --run RUNFOLDER --node NAME

`run_node` opens a `NodeRun` (plan read, log open, NIC connected, the plan's regions registered and found by name in
`run.memories`), calls `build`, waits at the barrier, loops until `control/stop` or SIGTERM, and logs `node.stopped`;
a crash leaves its traceback in the node's log and exit code 4. It knows no role; a node that speaks HTTP lives in
`emulators.http_node`, and ends as here.
"""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from types import FrameType

from emulators.barrier import BadRunFolder
from emulators.node import NodeRun
from emulators.node_arguments import parse_arguments
from emulators.promptness import settle

EXIT_BAD_INPUT, EXIT_ERRORED = 2, 4
_BARRIER_POLL_S = 0.002


class NodeFault(Exception):
    """What has befallen the node from outside this process; its words say all, a traceback would add nothing."""


def run_node(build: Callable[[NodeRun], None], arguments: Sequence[str] | None = None) -> int:
    """A whole life of a node without HTTP; see the head of this file. Returns the exit code."""
    return live_to_the_end(lambda run: live_in_turns(run, build), arguments)


def live_in_turns(run: NodeRun, build: Callable[[NodeRun], None], *, announced: bool = False) -> None:
    """Connects the NIC, builds, waits at the barrier and loops until the run stops.

    A run that has memories already has them from a process that holds the NIC. `announced`: the node has said before
    that it is ready.
    """
    install_signals(run)
    if not run.memories:
        run.connect()
    build(run)
    if not announced:
        run.announce()
    epoch = run.look_for_epoch()
    while epoch is None and not run.stopping:
        time.sleep(_BARRIER_POLL_S)
        epoch = run.look_for_epoch()
    if epoch is not None:
        settle()
        run.start(epoch)
        run.loop()


def live_to_the_end(live: Callable[[NodeRun], None], arguments: Sequence[str] | None = None) -> int:
    """Opens the node's run, lets it live and logs how it ended. Returns the exit code.

    A crash leaves its traceback in the node's log and is 4; a run folder that cannot be read is 2.
    """
    options = parse_arguments(arguments)
    try:
        run = NodeRun(options.run, options.node, options.process)
    except BadRunFolder as error:
        print(error, file=sys.stderr)
        return EXIT_BAD_INPUT
    try:
        live(run)
    except NodeFault as fault:
        run.finish(EXIT_ERRORED, str(fault))
        print(fault, file=sys.stderr)
        return EXIT_ERRORED
    except Exception as error:  # noqa: BLE001  # whatever it was, the log must have it
        run.record_crash(error)
        run.finish(EXIT_ERRORED, f"{type(error).__name__}: {error}")
        traceback.print_exc()
        return EXIT_ERRORED
    run.finish(0)
    return 0


def install_signals(run: NodeRun) -> None:
    """SIGTERM and SIGINT end the run as `control/stop` does."""

    def stop(_number: int, _frame: FrameType | None) -> None:
        run.stop()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
