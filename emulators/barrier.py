"""The files in a run folder's `control/` by which bench and nodes agree: ready, start, done, stop.

A node says that it waits (`<node>.ready`), the bench opens the barrier for all with one epoch (`start.json`), a
client says that its workload has ended (`<node>.done`), the bench ends the run (`stop`). Every file appears whole.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from testbed.clocks.wall import Epoch
from testbed.experiment.plan import NodePlan, Plan, read_plan


class BadRunFolder(Exception):
    """A file of the run folder is missing or says what it may not."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class Barrier:
    """One node's view of `control/`."""

    def __init__(self, folder: Path, node: str) -> None:
        self._control = folder / "control"
        self._node = node

    def announce(self) -> None:
        """Says that this node waits."""
        self._write(f"{self._node}.ready", msgspec.json.encode({"pid": os.getpid()}))

    def epoch(self) -> Epoch | None:
        """The run's epoch, or None while the barrier is closed. Raises `BadRunFolder`."""
        path = self._control / "start.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=Epoch)
        except FileNotFoundError:
            return None
        except msgspec.DecodeError as error:
            raise BadRunFolder(path, str(error)) from error

    def done(self) -> None:
        """Says that this client's workload has ended."""
        self._write(f"{self._node}.done", b"{}")

    def stopped(self) -> bool:
        """True once the bench has ended the run."""
        return (self._control / "stop").exists()

    def _write(self, name: str, data: bytes) -> None:
        self._control.mkdir(parents=True, exist_ok=True)
        draft = self._control / f".{name}.{os.getpid()}"
        draft.write_bytes(data)
        draft.rename(self._control / name)


def plan_of(folder: Path, name: str) -> tuple[Plan, NodePlan]:
    """The run's plan and the node `name` in it. Raises `BadRunFolder`."""
    path = folder / "plan.json"
    try:
        plan = read_plan(path.read_bytes())
    except OSError as error:
        raise BadRunFolder(path, error.strerror or str(error)) from error
    except msgspec.DecodeError as error:
        raise BadRunFolder(path, str(error)) from error
    try:
        return plan, plan.node(name)
    except KeyError:
        known = ", ".join(node.name for node in plan.nodes)
        raise BadRunFolder(path, f"no node {name!r}; the plan has {known}") from None
