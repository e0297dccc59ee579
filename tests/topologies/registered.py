"""A run on this host's record that this process is the bench of, for tests of what is done in a run's name."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from topologies.registry import RunRecord, RunRegistry, mark_of


@contextmanager
def registered(folder: Path, label: str = "") -> Iterator[RunRegistry]:
    """Its record, which is gone afterwards; under a label of its own unless one is given."""
    registry = RunRegistry(label or secrets.token_hex(3))
    owner = mark_of(os.getpid(), "bench")
    assert owner is not None
    registry.create(RunRecord(registry.label, str(folder), owner, "namespace"))
    try:
        yield registry
    finally:
        if registry.folder.exists():
            registry.remove()
