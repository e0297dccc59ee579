"""Event files for tests, through the one writer."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from testbed.events.log import SUFFIX, EventWriter
from testbed.machine import Event
from testbed.units import Nanoseconds


def write_log(folder: Path | str, node: str, events: Iterable[tuple[Nanoseconds, Event]]) -> None:
    """Appends `events` to the file of `node` in `folder`."""
    with EventWriter(Path(folder) / f"{node}{SUFFIX}", node) as writer:
        for t, event in events:
            writer.write(t, event)
