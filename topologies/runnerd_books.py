"""What runnerd writes down: a record and a log for each run that it started, and word in the run's control folder.

Standard library only, as runnerd. A record (DAEMON/<run>.json, with pid and start time) outlives a daemon that is
killed, so that the next one knows what was under way; control/outcome.json says how a run ended where the run has not
said so itself, control/runner.json what was cleaned. It starts, ends and reaps nothing.
"""

from __future__ import annotations

import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from topologies.runnerd_benches import read_json

LAST_WORDS = 12
"""Lines of a run's log that its outcome quotes."""


class Books:
    """Records and logs in the folder `records`, word in the folders of `runs`."""

    def __init__(self, records: Path, runs: Path) -> None:
        self._records = records
        self._runs = runs

    def make_folders(self, group: int) -> None:
        """Also the folder of the daemon's socket; the console's `group` may read, and make folders of runs."""
        for folder, mode in ((self._records.parent, 0o750), (self._records, 0o750), (self._runs, 0o1775)):
            folder.mkdir(parents=True, exist_ok=True)
            os.chown(folder, 0, group)
            folder.chmod(mode)

    def know(self, run: str) -> bool:
        """Whether the run was started before, by anybody; a dangling link in its place counts."""
        return os.path.lexists(self._runs / run) or self._record_file(run).exists()

    def log_file(self, run: str) -> Path:
        """What the run's own process says."""
        return self._records / f"{run}.log"

    def record(self, run: str, **facts: object) -> None:
        """Writes a run's record anew."""
        _write_json(self._record_file(run), facts)

    def record_of(self, run: str) -> dict[str, Any]:
        """A run's record; empty if there is none."""
        return read_json(self._record_file(run))

    def under_way(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Runs that were so when something was last written of them, with their records."""
        for path in sorted(self._records.glob("*.json")):
            record = read_json(path)
            if record.get("state") == "running":
                yield path.stem, record

    def finished(self, run: str, code: int, *, cancelled: bool, cleaned: bool) -> None:
        """The run's process has ended with exit code `code`."""
        self.record(run, state="finished", rc=code, cancelled=cancelled, cleaned=cleaned)
        control = self._control_of(run)
        if control is None:
            return
        if read_json(control / "outcome.json").get("state") != "finished":
            words = "\n".join(self.log_file(run).read_text(errors="replace").splitlines()[-LAST_WORDS:])
            how = "cancelled" if cancelled else "errored"
            _write_json(
                control / "outcome.json", {"state": "finished", "outcome": how, "detail": words or f"exit {code}"}
            )
        told = {"state": "finished", "rc": code, "cancelled": cancelled, "cleaned": cleaned}
        _write_json(control / "runner.json", told)

    def lost(self, run: str, *, cancelled: bool, cleaned: bool) -> None:
        """A daemon was killed while the run was under way; its last word stands, unless that is of a cancel that nobody
        asked for.
        """
        self.record(run, state="lost", rc=None, cancelled=cancelled, cleaned=cleaned)
        control = self._control_of(run)
        if control is None:
            return
        said = read_json(control / "outcome.json")
        if said.get("state") != "finished" or (said.get("outcome") == "cancelled" and not cancelled):
            detail = "the runner ended while this run was under way"
            _write_json(control / "outcome.json", {"state": "finished", "outcome": "lost", "detail": detail})
        told = {"state": "lost", "rc": None, "cancelled": cancelled, "cleaned": cleaned}
        _write_json(control / "runner.json", told)

    def _record_file(self, run: str) -> Path:
        return self._records / f"{run}.json"

    def _control_of(self, run: str) -> Path | None:
        """The run's control folder, made if it is missing; None if the run's folder is not root's own.

        Others may make entries in the folder of runs: what is a link, or theirs, is not written to. An entry of
        root's cannot be exchanged by them, since the folder is sticky.
        """
        folder = self._runs / run
        try:
            folder.mkdir(mode=0o755)
        except FileExistsError:
            facts = folder.lstat()
            if not stat.S_ISDIR(facts.st_mode) or facts.st_uid != 0:
                say(f"{folder} is not a folder of root's; nothing is written to it")
                return None
        control = folder / "control"
        control.mkdir(exist_ok=True)
        return control


def say(text: str) -> None:
    """A line of the daemon's own log."""
    print(f"runnerd: {text}", file=sys.stderr, flush=True)


def _write_json(path: Path, value: dict[str, Any]) -> None:
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps(value) + "\n")
    temporary.replace(path)
