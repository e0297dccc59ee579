"""The folder of a run: where everything about it lies, and all that its users share.

    runs/<run-id>/  spec.toml  spec.json  plan.json  provenance.json  events/<node>.jsonl  captures/  report/
                    summary.json  control/

An experiment of several trials has a folder trials/<label>/ for each, which is a run folder of its own, and no
plan.json on top. A folder is made once and never used again (fault A17). JSON files appear whole or not at all.
This file knows names and bytes; it folds nothing and starts nothing.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from testbed.experiment.plan import Plan, read_plan, write_plan

RUN_ID = re.compile(r"\d{8}-\d{6}-([0-9a-f]{6})", re.ASCII)
"""To be matched in full. runnerd may import the standard library only and has its own; a test holds them together."""

State = Literal["queued", "preparing", "running", "finalising", "finished"]
Outcome = Literal["passed", "failed", "errored", "cancelled", "lost"]


class RunFolderError(Exception):
    """A run folder that cannot be made or is none."""

    def __init__(self, path: Path, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"{path}: {reason}")


class RunStatus(msgspec.Struct, frozen=True):
    """`control/outcome.json`: how far the run is, and how it ended. State and outcome are kept apart."""

    state: State
    outcome: Outcome | None = None
    """None until the run has finished."""
    detail: str = ""


def new_run_id(now: datetime | None = None) -> str:
    """YYYYMMDD-HHMMSS-<six hex digits>, in UTC; the six digits are the run's label."""
    moment = (now or datetime.now(UTC)).astimezone(UTC)
    return f"{moment:%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def label_of(run: str) -> str:
    """The label of a run id. Raises ValueError if it is none."""
    match = RUN_ID.fullmatch(run)
    if match is None:
        raise ValueError(f"{run!r} is no run id, as 20260731-120000-0a1b2c")
    return match[1]


class RunFolder:
    """One run's folder, or one trial's."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)

    @classmethod
    def create(cls, parent: Path | str, name: str) -> RunFolder:
        """A new, empty folder. Raises `RunFolderError` if there is anything of that name already."""
        path = Path(parent).resolve() / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.mkdir()
        except FileExistsError:
            raise RunFolderError(path, "exists already; a run folder is never used twice") from None
        except OSError as fault:
            raise RunFolderError(path, fault.strerror or str(fault)) from fault
        folder = cls(path)
        folder.events.mkdir()
        folder.control.mkdir()
        return folder

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """The run folder at `path`. Raises `RunFolderError` if there is none."""
        folder = cls(Path(path).resolve())
        if not folder.path.is_dir():
            raise RunFolderError(folder.path, "there is no such run folder")
        if not (folder.plan_file.is_file() or folder.trials_folder.is_dir() or folder.spec_json.is_file()):
            raise RunFolderError(folder.path, "is no run folder: it has no plan.json, spec.json or trials")
        return folder

    # --- places ---------------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The run's id, or the trial's name."""
        return self.path.name

    @property
    def spec_toml(self) -> Path:
        """The experiment as its author wrote it."""
        return self.path / "spec.toml"

    @property
    def spec_json(self) -> Path:
        """The experiment as it was run: overrides and defaults in it."""
        return self.path / "spec.json"

    @property
    def plan_file(self) -> Path:
        """The plan of the one trial here."""
        return self.path / "plan.json"

    @property
    def provenance_file(self) -> Path:
        """Where all this comes from."""
        return self.path / "provenance.json"

    @property
    def events(self) -> Path:
        """A file of events for each node."""
        return self.path / "events"

    @property
    def captures(self) -> Path:
        """Captured packets, as pcap files."""
        return self.path / "captures"

    @property
    def report(self) -> Path:
        """The report for people."""
        return self.path / "report"

    @property
    def summary_file(self) -> Path:
        """Folded figures; may be deleted and made again."""
        return self.path / "summary.json"

    @property
    def control(self) -> Path:
        """Files by which processes agree: barrier, stop, outcome."""
        return self.path / "control"

    @property
    def trials_folder(self) -> Path:
        """Folders of several trials."""
        return self.path / "trials"

    # --- contents -------------------------------------------------------------------------------------------------

    def trials(self) -> list[RunFolder]:
        """The folders that hold events: those of the trials in the order they were planned, or this one."""
        if not self.trials_folder.is_dir():
            return [self]
        folders = [RunFolder(path) for path in self.trials_folder.iterdir() if path.is_dir()]
        order = {name: place for place, name in enumerate(self._trial_names())}
        return sorted(folders, key=lambda folder: (order.get(folder.name, len(order)), folder.name))

    def create_trials(self, names: list[str]) -> list[RunFolder]:
        """A new folder for each name, remembered in this order."""
        self.write_json(self.trials_folder / "order.json", names)
        return [RunFolder.create(self.trials_folder, name) for name in names]

    def plan(self) -> Plan:
        """The plan. Raises `RunFolderError` if it is missing or damaged."""
        try:
            return read_plan(self.plan_file.read_bytes())
        except OSError as fault:
            raise RunFolderError(self.plan_file, fault.strerror or str(fault)) from fault
        except msgspec.DecodeError as fault:
            raise RunFolderError(self.plan_file, str(fault)) from fault

    def write_plan(self, plan: Plan) -> None:
        """Writes plan.json."""
        write_whole(self.plan_file, write_plan(plan))

    def status(self) -> RunStatus | None:
        """How far the run is, or None if nobody has said so. Raises `RunFolderError` for a damaged file."""
        path = self.control / "outcome.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=RunStatus)
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as fault:
            raise RunFolderError(path, str(fault)) from fault

    def set_status(self, state: State, outcome: Outcome | None = None, detail: str = "") -> None:
        """Says how far the run is."""
        self.write_json(self.control / "outcome.json", RunStatus(state, outcome, detail))

    def read_json(self, path: Path) -> Any:
        """The contents of a JSON file here. Raises `RunFolderError`."""
        try:
            return msgspec.json.decode(path.read_bytes())
        except (OSError, msgspec.DecodeError, RecursionError) as fault:
            raise RunFolderError(path, str(fault)) from fault

    def write_json(self, path: Path, value: Any) -> None:
        """Writes a JSON file, indented, whole or not at all."""
        write_whole(path, msgspec.json.format(msgspec.json.encode(value), indent=1) + b"\n")

    def size_bytes(self) -> int:
        """Bytes of all files here."""
        return sum(path.stat().st_size for path in self.path.rglob("*") if path.is_file())

    def delete(self) -> None:
        """Removes the folder and all in it."""
        shutil.rmtree(self.path)

    def _trial_names(self) -> list[str]:
        path = self.trials_folder / "order.json"
        return [str(name) for name in self.read_json(path)] if path.is_file() else []


def write_whole(path: Path, data: bytes) -> None:
    """Writes a file that readers see whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    try:
        draft.write_bytes(data)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def run_folders(parent: Path | str) -> list[RunFolder]:
    """The runs in `parent`, newest first."""
    try:
        names = sorted((path.name for path in Path(parent).iterdir() if RUN_ID.fullmatch(path.name)), reverse=True)
    except FileNotFoundError:
        return []
    return [RunFolder(Path(parent) / name) for name in names]
