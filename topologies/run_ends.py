"""How a run on this bench can end: the word that is kept of it, and what is raised on the way there.

Knows nothing of how a run is carried out (topologies.bench_run).
"""

from __future__ import annotations

from pathlib import Path

import msgspec


class BenchResult(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """control/bench.json: how the bench fared. Whether the run *passed* is for those who fold its events."""

    outcome: str
    """completed, errored, cancelled, or lost (written by the reaper for a bench that was killed)."""
    detail: str = ""
    """Why it did not complete."""
    teardown: str = ""
    """What could not be removed; empty after a clean end. The result stands all the same."""


class RunCancelled(Exception):
    """Somebody asked for the end."""


class BenchFault(Exception):
    """The run cannot go on; the message says why."""


class FolderTaken(Exception):
    """Another bench carries out the plan in this folder; nothing of it was touched (fault A10)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        super().__init__(f"{folder}: another bench is carrying out this plan; wait for its end or cancel it")


class HostCannot(Exception):
    """What the run asks for is more than the host can do; the message says what would help."""
