"""Digests of finished runs, kept in the console's own folder: made once by a process of their own, then read.

A run folder may belong to root (emulations) and is never written to. One digest is made at a time, at low priority, so
that live pages and simulations keep their cores.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from django.conf import settings

from testbed.command.places import SOURCE
from testbed.comparison.digest import RunDigest, TrialDetail, read_detail, read_digest, stamp_of
from testbed.experiment.run_folder import RunFolder
from webui.runs.folder import folder_of

KEPT = 400
"""At most so many runs' digests are kept; the longest unused ones go."""
LONGEST_S = 600.0
"""Seconds after which a digest that is still being made is given up."""
_LOOK_S = 0.05

_lock = threading.Lock()
_making: dict[str, tuple[subprocess.Popen[bytes], float]] = {}
"""By run: at most one."""


def digest_get(*, run_id: str, wait_s: float = 0.0) -> RunDigest | None:
    """The digest of a run that has a summary; None while it is being made, or where there is nothing to make it of.

    Whoever is first has it made. Waits at most `wait_s` seconds for it.
    """
    place, end = _place(run_id), time.monotonic() + wait_s
    while True:
        stamp = stamp_of(RunFolder(folder_of(run_id)))
        if not stamp:
            return None
        found = read_digest(place)
        if found is not None and found.of == stamp:
            return found
        try:
            _have_made(run_id)
        except OSError as fault:  # a full disk, a folder in the way
            return RunDigest(run_id, stamp, (), {}, f"what is read of them cannot be kept: {fault.strerror or fault}")
        if time.monotonic() >= end:
            return None
        time.sleep(_LOOK_S)


def detail_get(*, run_id: str, trial: str) -> TrialDetail | None:
    """What is bulky of one trial, once its run's digest is there."""
    return read_detail(_place(run_id), trial)


def _place(run_id: str) -> Path:
    return Path(settings.DATABASE_FOLDER) / "compare" / folder_of(run_id).name


def _have_made(run_id: str) -> None:
    """Starts the process unless one is at work."""
    with _lock:
        for name, (process, began) in list(_making.items()):
            if process.poll() is None and time.monotonic() - began < LONGEST_S:
                return
            if process.poll() is None:
                process.kill()
                process.wait()
            del _making[name]
        place = _place(run_id)
        _make_room(place.parent)
        place.mkdir(parents=True, exist_ok=True)
        words = ["nice", "-n", "10", sys.executable, "-m", "testbed.comparison", str(folder_of(run_id)), str(place)]
        process = subprocess.Popen(words, cwd=SOURCE, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        _making[run_id] = process, time.monotonic()


def _make_room(folder: Path) -> None:
    if not folder.is_dir():
        return
    oldest = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime)
    for path in oldest[: max(0, len(oldest) - KEPT)]:
        shutil.rmtree(path, ignore_errors=True)
