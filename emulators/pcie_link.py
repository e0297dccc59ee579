"""PCIe between two emulated nodes: a Unix socket in the run folder, which both see, from each process to each other.

    joining = PcieJoining(run, links)             # before the barrier
    joining.wait()                                # or joining.attempt() until it is True

Of two nodes that list each other in `NodePlan.attached`, the one whose name comes first listens and the other
connects and says who it is. Messages are those of `testbed.serving.device_messages`. The socket's own time stands for
the link's latency (about 1 us modelled, some 20 us here); nothing is added to it.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from emulators.machine_links import MachineLinks
from emulators.message_stream import Codec, MessageStream
from emulators.node import NodeRun
from testbed.experiment.plan import NodePlan
from testbed.serving import device_messages

DEVICE_CODEC = Codec(device_messages.encode, device_messages.decode)
PATIENCE_S = 90.0
_LOOK_S = 0.005
_NAME_BYTES = 128


class PcieFault(Exception):
    """A link could not be made."""


class _Process(NamedTuple):
    """One process of a node."""

    node: str
    name: str
    """Empty for the first."""
    machines: tuple[str, ...]

    @property
    def log_name(self) -> str:
        return f"{self.node}-{self.name}" if self.name else self.node


class PcieJoining:
    """Makes one process's links to every process of every attached node."""

    def __init__(self, run: NodeRun, links: MachineLinks) -> None:
        """Raises OSError where the run folder takes no socket."""
        self._run = run
        self._links = links
        peers = [run.plan.node(name) for name in run.node.attached]
        processes = [process for peer in peers for process in _processes(peer)]
        self._awaited = {each.log_name: each for each in processes if run.name < each.node}
        self._wanted = [each for each in processes if each.node < run.name]
        self._greeting: list[socket.socket] = []
        self._listener: socket.socket | None = None
        if self._awaited:
            self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._listener.setblocking(False)
            _path(run.folder, run.log_name).unlink(missing_ok=True)  # an earlier process of this name has died
            with _address(run.folder, run.log_name) as address:
                self._listener.bind(address)
            self._listener.listen()

    def attempt(self) -> bool:
        """Takes a step, without waiting; True once all links stand. Raises PcieFault."""
        self._accept()
        self._connect()
        if self._awaited or self._wanted:
            return False
        self.close()
        return True

    def wait(self, patience_s: float = PATIENCE_S) -> bool:
        """Waits until all links stand; False if the run is stopped first. Raises PcieFault."""
        limit = time.monotonic() + patience_s
        while not self.attempt():
            self._run.look_for_epoch()  # also notices that the run is being stopped
            if self._run.stopping:
                return False
            if time.monotonic() > limit:
                raise PcieFault(f"no PCIe link to {', '.join(self.missing())} after {patience_s:g} s")
            time.sleep(_LOOK_S)
        return True

    def missing(self) -> list[str]:
        """Processes that there is no link to yet."""
        return [*self._awaited, *(each.log_name for each in self._wanted)]

    def close(self) -> None:
        """Listens no more. Links that stand are the `MachineLinks`' own."""
        if self._listener is not None:
            self._listener.close()
            self._listener = None
            _path(self._run.folder, self._run.log_name).unlink(missing_ok=True)
        while self._greeting:
            self._greeting.pop().close()

    def _accept(self) -> None:
        if self._listener is None:
            return
        try:
            while True:
                accepted, _ = self._listener.accept()
                accepted.setblocking(False)
                self._greeting.append(accepted)
        except BlockingIOError:
            pass
        for accepted in tuple(self._greeting):
            try:
                # Padded, so that it stands alone whatever has been sent behind it.
                name = accepted.recv(_NAME_BYTES).rstrip(b"\0").decode()
            except BlockingIOError:
                continue
            self._greeting.remove(accepted)
            process = self._awaited.pop(name, None)
            if process is None:
                accepted.close()
                raise PcieFault(f"{name!r} has connected to {self._run.log_name}, which expects it not, or not again")
            self._join(process, accepted)

    def _connect(self) -> None:
        for process in tuple(self._wanted):
            end = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                with _address(self._run.folder, process.log_name) as address:
                    end.connect(address)
            except (FileNotFoundError, ConnectionRefusedError):  # it is still starting
                end.close()
                continue
            self._wanted.remove(process)
            end.sendall(self._run.log_name.encode().ljust(_NAME_BYTES, b"\0"))
            self._join(process, end)

    def _join(self, process: _Process, end: socket.socket) -> None:
        stream = MessageStream(f"{process.log_name} over PCIe", end, DEVICE_CODEC)
        self._links.join(stream, process.machines, process.node)


@contextmanager
def _address(folder: Path, log_name: str) -> Iterator[str]:
    """The socket's address; by way of a descriptor, since addresses have 108 bytes and run folders may lie deep."""
    path = _path(folder, log_name)
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{fd}/{path.name}"
    finally:
        os.close(fd)


def _path(folder: Path, log_name: str) -> Path:
    return folder / "control" / f"{log_name}.pcie"


def _processes(node: NodePlan) -> Iterator[_Process]:
    """Its processes; a node's only one need not list its machines."""
    for number, group in enumerate(node.processes or ((),)):
        yield _Process(node.name, group[0] if number else "", group)
