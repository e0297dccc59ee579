"""Which emulations live on this machine, as runnerd sees them: its own run's, a command's, another console's.

Standard library only, as runnerd. Read from the records that benches keep while they live (topologies.registry); a
number in a file proves nothing, so pid and start time must both fit. Knows no run's state and ends nothing.
"""

from __future__ import annotations

import fcntl
import json
from pathlib import Path
from typing import Any, NamedTuple

RUN_ROOT = Path("/run/looplane")
_LOCK = Path("control/conductor.lock")
"""Held by whoever conducts a run, from its first trial to its verdict (testbed.command.conduct)."""


class LivingBench(NamedTuple):
    """An emulation under way."""

    pid: int
    folder: Path
    """Of the trial that it carries out; in the run's folder, or that itself."""

    def is_of(self, run_folder: Path) -> bool:
        """Whether it carries out a part of this run."""
        return run_folder == self.folder or run_folder in self.folder.parents


class Others:
    """Emulations that are not runnerd's. One that was seen counts between its trials too, while it is conducted."""

    def __init__(self, records: Path = RUN_ROOT) -> None:
        self._records = records
        self._conducted: set[Path] = set()

    def are_live(self) -> bool:
        """Whether somebody emulates; asked while runnerd has no run of its own."""
        living = living_benches(self._records)
        for bench in living:
            self._conducted |= {folder for folder in (bench.folder, *bench.folder.parents) if _is_conducted(folder)}
        self._conducted = {folder for folder in self._conducted if _is_conducted(folder)}
        return bool(living or self._conducted)


def living_benches(records: Path = RUN_ROOT) -> list[LivingBench]:
    """Every one of this machine."""
    found = []
    for path in records.glob("*/run.json"):
        record = read_json(path)
        owner = record.get("owner", {})
        if isinstance(owner, dict) and lives(owner):
            found.append(LivingBench(int(owner["pid"]), Path(str(record.get("folder", "")))))
    return found


def lives(record: dict[str, Any]) -> bool:
    """Whether the process of a record, by pid and start time, still runs."""
    return record.get("start") is not None and start_time(record.get("pid", 0)) == record["start"]


def start_time(pid: int) -> int | None:
    """Field 22 of /proc/<pid>/stat: clock ticks since boot; None for a process that is gone or a zombie."""
    try:
        text = Path(f"/proc/{int(pid)}/stat").read_text()
    except (OSError, ValueError):
        return None
    fields = text[text.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


def read_json(path: Path) -> dict[str, Any]:
    """The object in a file; empty where there is none."""
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _is_conducted(folder: Path) -> bool:
    try:
        with (folder / _LOCK).open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
