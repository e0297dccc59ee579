"""A node's real accelerator: a process at a unix socket that computes graphs and measures how long they take.

An `Executor` (testbed.serving.executor) behind the same emulated device as the cost model, so launch rules, the
extraction buffer and the scheduler are the same; only the time of a graph is the device's own. A device that goes,
says nonsense or says nothing for `patience_s` fails every launch under way; after that the node itself must end,
since a GPU without its chip is none: the next question raises `AcceleratorLost`.

It decides nothing about launches and knows no machine.
"""

from __future__ import annotations

import socket
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from emulators.accelerator_protocol import (
    BadLine,
    Cancel,
    Compute,
    Done,
    Failed,
    Gone,
    Lines,
    Open,
    Opened,
    from_device,
)
from testbed.serving.engine import Lane
from testbed.serving.executor import CANCELLED, Ended
from testbed.serving.graph_cache import Graph
from testbed.units import SECOND

SOCKET_VARIABLE = "LOOPLANE_ACCELERATOR_SOCKET"
"""Environment variable that names the socket of a device which the bench has started."""
_ATTEMPT_S = 0.02


class AcceleratorLost(Exception):
    """The device cannot be used, or not any more. Says which and why."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"the accelerator at {path}: {reason}")


class DeviceExecutor:
    """One node's connection to its device. Not for several threads."""

    def __init__(self, path: Path, lines: Lines, opened: Opened, patience_s: float) -> None:
        self.path = path
        self.opened = opened
        self.fd = lines.socket.fileno()
        """Readable when the device has said something, or has gone."""
        self._lines = lines
        self._patience = round(patience_s * SECOND)
        self._under_way: deque[int] = deque()
        self._ended: list[Ended] = []
        self._given_up: set[int] = set()
        self._heard_at = 0
        self._lost = ""
        self._told = False

    @classmethod
    def connect(cls, path: Path, request: Open, *, patience_s: float) -> DeviceExecutor:
        """Opens the device at `path`, waiting for it to come up. Raises `AcceleratorLost` after `patience_s`."""
        limit = time.monotonic() + patience_s
        lines = Lines(_reach(path, limit))
        try:
            lines.send(request)
            answers: list[bytes] = []
            while not answers:
                answers = lines.receive()
            answer = from_device(answers[0])
        except TimeoutError as fault:
            lines.socket.close()
            raise AcceleratorLost(path, f"it says nothing to `open` for {patience_s:g} s") from fault
        except (Gone, BadLine, OSError) as fault:
            lines.socket.close()
            raise AcceleratorLost(path, str(fault)) from fault
        if not isinstance(answer, Opened):
            lines.socket.close()
            reason = answer.reason if isinstance(answer, Failed) else f"it answers {type(answer).__name__} to `open`"
            raise AcceleratorLost(path, reason)
        lines.socket.setblocking(False)
        return cls(path, lines, answer, patience_s)

    def begin(self, launch: int, graph: Graph, lanes: Sequence[Lane]) -> None:
        """Sends the graph to the device."""
        if not self._under_way:
            self._heard_at = time.monotonic_ns()
        self._under_way.append(launch)
        contexts = tuple(lane.context for lane in lanes)
        self._send(Compute(launch, graph.kind, graph.batch, graph.sequence, contexts))

    def waiting(self) -> bool:
        """Whether the device has answered. Raises `AcceleratorLost` once its loss has been told in `ended`."""
        if self._lost:
            if self._told and not self._ended:
                raise AcceleratorLost(self.path, self._lost)
        else:
            self._hear()
        return bool(self._ended)

    def ended(self) -> Sequence[Ended]:
        """What the device has answered."""
        if not self._lost:
            self._hear()
        found, self._ended = self._ended, []
        self._told = bool(self._lost)
        return found

    def cancel(self) -> None:
        """Gives up all that is under way; late answers to it are not passed on."""
        if self._under_way and not self._lost:
            self._send(Cancel())
        self._ended += [Ended(launch, 0, CANCELLED) for launch in self._under_way]
        self._given_up.update(self._under_way)
        self._under_way.clear()

    def close(self) -> None:
        """Leaves the device."""
        self._lines.socket.close()

    def _send(self, message: Compute | Cancel) -> None:
        try:
            self._lines.send(message)
        except Gone as fault:
            self._lose(str(fault))
        except BlockingIOError:
            self._lose("it does not read what it is sent")

    def _hear(self) -> None:
        try:
            for line in self._lines.receive():
                self._take(from_device(line))
        except (Gone, BadLine) as fault:
            self._lose(str(fault))
            return
        if self._under_way and time.monotonic_ns() - self._heard_at > self._patience:
            seconds = self._patience / SECOND
            self._lose(f"no answer to launch {self._under_way[0]} for {seconds:g} s")

    def _take(self, answer: Done | Failed | Opened) -> None:
        self._heard_at = time.monotonic_ns()
        if isinstance(answer, Opened):
            raise BadLine("it says `opened` twice")
        if answer.launch in self._given_up:
            self._given_up.discard(answer.launch)
            return
        if not self._under_way or self._under_way[0] != answer.launch:
            raise BadLine(f"it answers launch {answer.launch}, which is not the next one under way")
        if isinstance(answer, Done) and answer.ns <= 0:
            raise BadLine(f"launch {answer.launch} took {answer.ns} ns")
        self._under_way.popleft()
        if isinstance(answer, Done):
            self._ended.append(Ended(answer.launch, answer.ns))
        else:
            self._ended.append(Ended(answer.launch, 0, answer.reason or "failed"))

    def _lose(self, reason: str) -> None:
        """The device is of no use any more: all under way has failed."""
        self._lost = reason
        self._ended += [Ended(launch, 0, f"the device is lost: {reason}") for launch in self._under_way]
        self._under_way.clear()


def _reach(path: Path, limit: float) -> socket.socket:
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        connection.settimeout(max(0.001, limit - time.monotonic()))
        try:
            connection.connect(str(path))
            return connection
        except OSError as fault:
            connection.close()
            if time.monotonic() >= limit:
                raise AcceleratorLost(path, f"nobody answers ({fault.strerror or fault})") from fault
        time.sleep(_ATTEMPT_S)
