"""`looplane report RUN`: folds a run's events anew, prints the report and writes the HTML page."""

from __future__ import annotations

import argparse

from testbed.command.conduct import exit_code, finish, refuse_if_conducted
from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.finished_run import find_run
from testbed.command.run import show
from testbed.experiment.complaints import SpecError
from testbed.experiment.run_folder import RunFolderError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The run."""
    parser.add_argument("run", metavar="RUN", help="a run folder, a run id, or last")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the report")


def main(arguments: argparse.Namespace) -> int:
    """Exit code as the run's own."""
    folder = find_run(arguments.run)
    refuse_if_conducted(folder)
    try:
        summary = finish(folder)
    except (RunFolderError, SpecError) as fault:
        raise CommandError(str(fault), ExitCode.BAD_INPUT) from fault
    show(folder, summary, as_json=arguments.json)
    return exit_code(summary)
