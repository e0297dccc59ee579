"""Whole runs under the simulated clock, through the command's own functions, for tests that read what a run leaves."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from testbed.command.conduct import finish
from testbed.experiment.launch import note_end, prepare, simulate
from testbed.experiment.reading import read_spec
from testbed.experiment.run_folder import RunFolder


def simulated(experiment: Path, overrides: Sequence[str], parent: Path) -> RunFolder:
    """The folder of a run of the experiment, made in `parent`, with all its trials, its summary and its report."""
    run = prepare(read_spec(experiment, overrides), parent, clock="simulated", text=experiment.read_bytes())
    run.folder.set_status("running")
    for plan, trial in zip(run.plans, run.trials, strict=True):
        simulate(plan, trial)
    note_end(run.folder)
    finish(run.folder)
    return run.folder
