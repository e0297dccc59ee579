"""The other processes of a node whose software is several (`NodePlan.processes`): started, connected, watched, ended.

The node's first process makes a pair of sockets for each two processes and starts the others with their ends, so that
no names are needed on disk. A process is called after its first machine; its log is events/<node>-<process>.jsonl. It
dies with the first one, however that dies (PR_SET_PDEATHSIG), and one that dies by itself is the node's death.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence

from emulators.machine_links import MachineLinks
from emulators.message_stream import Codec, MessageStream
from emulators.node import NodeRun
from emulators.node_life import NodeFault

LINKS_VARIABLE = "LOOPLANE_PROCESS_LINKS"
"""Environment of a process that is not the first: `api=5,worker=7`, descriptors by process."""
_PR_SET_PDEATHSIG = 1
_STOP_PATIENCE_S = 1.5
_TERM_PATIENCE_S = 1.0
_libc = ctypes.CDLL(None, use_errno=True)


class ProcessDied(NodeFault):
    """One of the node's processes has ended and should not have."""

    def __init__(self, process: str, code: int) -> None:
        self.process = process
        self.code = code
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
        super().__init__(f"process {process} {how}")


class OtherProcesses:
    """All of a node's processes but the first, as that one sees them."""

    def __init__(self, run: NodeRun) -> None:
        self._run = run
        self._names = [group[0] for group in run.node.processes]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._ends: list[int] = []
        """Descriptors that are readable once a process has ended."""

    def start(self, module: str, links: MachineLinks, codec: Codec) -> None:
        """Starts `python -m module` for each and joins their links. Raises OSError."""
        ends: dict[str, dict[str, socket.socket]] = {name: {} for name in self._names}
        for one, other in itertools.combinations(self._names, 2):
            ends[one][other], ends[other][one] = socket.socketpair()
        own, *others = self._names
        for name in others:
            self._running[name] = popen = self._start(module, name, ends[name])
            self._ends.append(end_of := os.pidfd_open(popen.pid))
            self._run.watch(end_of, functools.partial(self._look_at, name))
        for name in others:
            for end in ends[name].values():
                end.close()
        join_processes(self._run, links, codec, ends[own])

    def look(self) -> None:
        """Raises ProcessDied for the first that has ended, unless the run has."""
        for name in self._running:
            self._look_at(name)

    def ready(self) -> bool:
        """Whether all wait at the barrier. Raises ProcessDied."""
        self.look()
        return not self.missing()

    def missing(self) -> list[str]:
        """Processes that do not wait at the barrier yet."""
        others = self._run.node.log_names()[1:]
        return [log for log in others if not (self._run.folder / "control" / f"{log}.ready").exists()]

    def end(self) -> None:
        """Ends them: they have seen that the run is over, or are told so. Nothing is left when this returns."""
        patience = _STOP_PATIENCE_S if self._run.stopping else 0.0
        for number, next_patience in ((signal.SIGTERM, _TERM_PATIENCE_S), (signal.SIGKILL, _TERM_PATIENCE_S)):
            limit = time.monotonic() + patience
            while time.monotonic() < limit and any(popen.poll() is None for popen in self._running.values()):
                time.sleep(0.005)
            for popen in self._running.values():
                if popen.poll() is None:
                    popen.send_signal(number)
            patience = next_patience
        for popen in self._running.values():
            popen.wait()
        while self._ends:
            os.close(self._ends.pop())

    def _look_at(self, name: str) -> None:
        code = self._running[name].poll()
        if code is None:
            return
        self._run.look_for_epoch()  # also notices that the run is being stopped
        if not self._run.stopping:
            raise ProcessDied(name, code)

    def _start(self, module: str, name: str, ends: Mapping[str, socket.socket]) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", module, "--run", str(self._run.folder), "--node", self._run.name]
        words = ",".join(f"{peer}={end.fileno()}" for peer, end in ends.items())
        return subprocess.Popen(
            [*command, "--process", name],
            stdin=subprocess.DEVNULL,
            pass_fds=[end.fileno() for end in ends.values()],
            env={**os.environ, LINKS_VARIABLE: words},
            preexec_fn=_die_with(os.getpid()),
        )


def inherited_links() -> dict[str, socket.socket]:
    """The sockets that this process was started with, by the process at their other end."""
    words = os.environ.get(LINKS_VARIABLE, "")
    ends = (word.partition("=") for word in words.split(",") if word)
    return {peer: socket.socket(fileno=int(number)) for peer, _, number in ends}


def join_processes(run: NodeRun, links: MachineLinks, codec: Codec, ends: Mapping[str, socket.socket]) -> None:
    """Makes the machines of the node's other processes known to `links`."""
    groups: dict[str, Sequence[str]] = {group[0]: group for group in run.node.processes}
    for name, end in ends.items():
        links.join(MessageStream(f"process {name} of {run.name}", end, codec), groups[name])


def _die_with(parent: int) -> Callable[[], None]:
    def prepare() -> None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the line above
            os._exit(1)

    return prepare
