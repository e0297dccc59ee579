"""Finds a run folder by path or by id, for the verbs that look at finished runs."""

from __future__ import annotations

from pathlib import Path

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.places import runs_folder
from testbed.experiment.run_folder import RunFolder, RunFolderError, run_folders


def find_run(told: str) -> RunFolder:
    """The run `told`: a folder, a run id, or `last` for the newest. Raises `CommandError` if there is none."""
    if told == "last":
        newest = run_folders(runs_folder())
        if not newest:
            raise CommandError(f"{runs_folder()}: there is no run yet; ./looplane demo makes one", ExitCode.BAD_INPUT)
        return newest[0]
    path = Path(told)
    if not path.exists() and (runs_folder() / told).is_dir():
        path = runs_folder() / told
    try:
        return RunFolder.open(path)
    except RunFolderError as fault:
        raise CommandError(f"{fault} (a folder, a run id of {runs_folder()}, or last)", ExitCode.BAD_INPUT) from fault
