"""The owner of an emulated GPU's memory: the process that holds ring and NIC, and starts schedulers that may die.

It stands for what outlives a persistent kernel on a real machine: memory that another context has exported, its
registration with the NIC, the model and the captured graphs in it. It loads everything once; the scheduler with its
emulated device is a child that begins with what is loaded (fork), so that a new one is there in about 0.2 s. It does
nothing for requests and decides nothing: a scheduler that was killed stays dead until the DPU asks for a new one
(`testbed.blink.control_line`), and one that is asked away is ended first, since two on one ring would undo each
other's work. A scheduler that ends by itself, with a code, ends the node: a program's fault is not to be repeated.
The node's log is the scheduler's process's. docs/models/recovery.md
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress

from emulators.barrier import BadRunFolder, Barrier, plan_of
from emulators.node import NodeRun
from emulators.node_arguments import NodeArguments, parse_arguments
from emulators.node_life import EXIT_BAD_INPUT, EXIT_ERRORED, install_signals, live_in_turns, live_to_the_end, run_node
from testbed.experiment.assembly import SYSTEMS, owner_of
from testbed.experiment.outlines import SCHEDULER_PROCESS, Owner

KILLED = 128 + signal.SIGKILL
"""Exit code where the scheduler was dead, or did not stop, at the run's end."""
_LOOK_S = 0.005
_STOP_PATIENCE_S = 1.5
_PR_SET_PDEATHSIG, _PR_SET_NAME = 1, 15


def live_as_owner(
    build: Callable[[NodeRun], None], load: Callable[[], object], arguments: Sequence[str] | None = None
) -> int:
    """A whole life of a GPU's node; the exit code. `load` is done once, `build` by each scheduler's process.

    A node on which nothing is ever restarted has one process.
    """
    options = parse_arguments(arguments)
    if not _is_owned(options):
        return run_node(build, arguments)
    try:
        run = NodeRun(options.run, options.node)
    except BadRunFolder as error:
        print(error, file=sys.stderr)
        return EXIT_BAD_INPUT
    try:
        install_signals(run)
        run.connect()
        owner = owner_of(run.plan, run.node, run.memories)
        assert owner is not None
        load()
    except Exception as error:  # noqa: BLE001  # whatever it was, the log must have it
        run.record_crash(error)
        run.finish(EXIT_ERRORED, f"{type(error).__name__}: {error}")
        traceback.print_exc()
        return EXIT_ERRORED
    run.writer.close()
    # What is loaded is shared with every child as long as nobody writes to it; the collector would.
    gc.collect()
    gc.freeze()
    code = _Lives(run, owner, build, arguments).live()
    if run.verbs is not None:
        run.verbs.close()
    return code


def _is_owned(options: NodeArguments) -> bool:
    with suppress(BadRunFolder):  # which the node's own process complains of
        plan, _ = plan_of(options.run, options.node)
        return SYSTEMS[plan.kind].owner is not None
    return False


class _Lives:
    """One scheduler after the other."""

    def __init__(
        self,
        run: NodeRun,
        owner: Owner,
        build: Callable[[NodeRun], None],
        arguments: Sequence[str] | None,
    ) -> None:
        self._run = run
        self._owner = owner
        self._build = build
        self._arguments = arguments
        self._barrier = Barrier(run.folder, run.name)
        self._child = 0
        """Its pid; 0 while there is none."""

    def live(self) -> int:
        """Until the run stops or a scheduler ends by itself; the exit code."""
        self._start(0)
        while not (self._run.stopping or self._barrier.stopped()):
            code = self._look()
            if code is not None:
                return code
            if self._owner.restart_asked():
                self._end()
                self._start(self._owner.begin_life())
            time.sleep(_LOOK_S)
        return self._stopped()

    def _start(self, life: int) -> None:
        pid = os.fork()
        if pid == 0:
            code = EXIT_ERRORED
            try:
                _name_and_bind()
                code = live_to_the_end(lambda run: self._serve(run, life), self._arguments)
                sys.stdout.flush()
                sys.stderr.flush()
            finally:
                os._exit(code)
        self._child = pid

    def _serve(self, run: NodeRun, life: int) -> None:
        """A scheduler's life, in its process."""
        run.memories.update(self._run.memories)
        live_in_turns(run, self._build, announced=life > 0)

    def _look(self) -> int | None:
        """Whether the child has ended by itself, and with which code. One that was killed is left dead."""
        if not self._child:
            return None
        pid, status = os.waitpid(self._child, os.WNOHANG)
        if not pid:
            return None
        self._child = 0
        return None if os.WIFSIGNALED(status) else os.waitstatus_to_exitcode(status)

    def _end(self) -> None:
        if self._child:
            os.kill(self._child, signal.SIGKILL)
            os.waitpid(self._child, 0)
            self._child = 0

    def _stopped(self) -> int:
        """The run is over, which the child sees for itself."""
        limit = time.monotonic() + _STOP_PATIENCE_S
        while self._child and time.monotonic() < limit:
            if self._run.stopping:
                os.kill(self._child, signal.SIGTERM)
            code = self._look()
            if code is not None:
                return code
            time.sleep(_LOOK_S)
        self._end()
        return KILLED


def _name_and_bind() -> None:
    """The child gets its name, and ends with its parent (prctl(2))."""
    library = ctypes.CDLL(None)
    library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    library.prctl(_PR_SET_NAME, SCHEDULER_PROCESS.encode())
