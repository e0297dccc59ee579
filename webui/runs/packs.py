"""Packed timelines of finished runs: where they lie, which runs get one, who makes them.

They lie in the console's own folder, since the run folders of emulations are root's. A name carries the run, the
trial, the format and the length of the log, so that a log that changed has no pack yet. Making one is a process of its
own with low priority; only one is ever at it (`webui.runs.packing`). Nothing is lost with a pack: it is made again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from testbed.command.places import SOURCE
from testbed.events.log import log_files
from webui.runs.folder import trial_folder
from webui.runs.packing import FORMAT

PACKED_FROM = 8 << 20
"""Bytes of log from which a run is packed. A shorter one is streamed in less time than its pack would take to make."""
_SILENT_S = 60.0
"""A making that has told no progress for so long is begun again; the lock keeps a slow one from being doubled."""

_makers: list[subprocess.Popen[bytes]] = []
"""Processes of ours that make packs, kept so that they are reaped."""


@dataclass(frozen=True)
class Making:
    """A pack that is not there yet."""

    share: float
    """Of the log that has been read, 0 to 1."""
    fault: str = ""
    """Why it cannot be made."""


def packs_folder(run_id: str) -> Path:
    """Where a run's packs lie."""
    return Path(settings.DATABASE_FOLDER) / "packs" / run_id


def pack_path(run_id: str, trial: str) -> Path | None:
    """The pack's place; None for a run that is streamed. Raises ValueError for an odd id or trial label."""
    try:
        size = sum(path.stat().st_size for path in log_files(trial_folder(run_id, trial) / "events"))
    except OSError:  # removed while we looked
        return None
    if size < PACKED_FROM:
        return None
    # A trial's label has no "~", and a name without a label begins with it.
    return packs_folder(run_id) / f"{trial}~{FORMAT}~{size}.pack"


def pack_make(path: Path, run_id: str, trial: str) -> Making:
    """How far the making of a pack is; begins it where nobody has."""
    _makers[:] = [maker for maker in _makers if maker.poll() is None]
    progress = path.with_suffix(".progress")
    try:
        told, age = progress.read_text(), time.time() - progress.stat().st_mtime
    except OSError:
        told, age = "", _SILENT_S
    if age >= _SILENT_S:
        path.parent.mkdir(parents=True, exist_ok=True)
        progress.write_text("0")
        events = trial_folder(run_id, trial) / "events"
        words = [sys.executable, "-m", "webui.runs.packing", str(events), str(path)]
        _makers.append(subprocess.Popen(words, cwd=SOURCE, stdin=subprocess.DEVNULL, start_new_session=True))
        return Making(0.0)
    try:
        return Making(float(told))
    except ValueError:  # its last words
        return Making(0.0, told)


def pack_ahead(run_id: str, trial: str) -> bool:
    """Begins the pack of a run that nobody has opened yet; False where there is none to make, or one is under way."""
    path = pack_path(run_id, trial)
    if path is None or path.exists() or path.with_suffix(".progress").exists():
        return False
    pack_make(path, run_id, trial)
    return True


def packs_forget(run_id: str) -> None:
    """Removes a run's packs."""
    shutil.rmtree(packs_folder(run_id), ignore_errors=True)
