"""`looplane run FILE`: prepares, runs every trial, judges, reports. `demo` and the console go this way too."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from testbed.command.calibrated import profile_for_a_run
from testbed.command.conduct import conduct
from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.places import is_root, runs_folder
from testbed.experiment.complaints import SpecError
from testbed.experiment.conclusion import report_facts
from testbed.experiment.launch import prepare
from testbed.experiment.reading import LARGEST_FILE, read_bytes, spec_from_bytes
from testbed.experiment.report import report_text
from testbed.experiment.run_folder import RunFolder, RunFolderError
from testbed.experiment.spec import Spec
from testbed.experiment.summary import RunSummary, write_summary
from testbed.network.wire_profile import MODELLED


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, the backend and where the run goes."""
    parser.add_argument("file", metavar="FILE", help="an experiment (TOML), or - for standard input")
    add_run_arguments(parser)
    parser.add_argument("--run-id", metavar="ID", help="name of the run folder (default: from the time)")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """What every verb that runs experiments takes."""
    parser.add_argument(
        "--on", choices=("sim", "mininet"), default="sim",
        help="sim: simulated clock in this process; mininet: real packets between emulated nodes (root). "
        "Default: sim; demo takes mininet where it can",
    )  # fmt: skip
    parser.add_argument(
        "--set", dest="overrides", action="append", default=[], metavar="K=V", help="override, as workload.requests=8"
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the run folder is made")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of the report")


def main(arguments: argparse.Namespace) -> int:
    """Runs the file."""
    spec, text = read(arguments.file, arguments.overrides)
    return run_spec(spec, text, arguments, run_id=arguments.run_id)


def read(file: str, overrides: Sequence[str]) -> tuple[Spec, bytes]:
    """The experiment in `file` and its text. Raises `CommandError` with a line for each fault."""
    try:
        if file == "-":
            data, source, folder = sys.stdin.buffer.read(LARGEST_FILE + 1), "standard input", None
        else:
            data, source, folder = read_bytes(file), file, Path(file).parent
        return spec_from_bytes(data, source, overrides, folder=folder), data
    except SpecError as fault:
        raise CommandError(str(fault), ExitCode.BAD_INPUT) from fault


def run_spec(spec: Spec, text: bytes, arguments: argparse.Namespace, *, run_id: str | None = None) -> int:
    """Prepares, runs and concludes; prints report or JSON. Returns the exit code."""
    if arguments.on == "mininet" and not is_root():
        raise CommandError("--on mininet needs root (namespaces, Mininet, containers); --on sim does not",
                           ExitCode.HOST_CANNOT)  # fmt: skip
    try:
        prepared = prepare(
            spec, arguments.out or runs_folder(), clock="simulated" if arguments.on == "sim" else "wall", text=text,
            overrides=arguments.overrides, command=["looplane", *sys.argv[1:]], run=run_id,
            wire_profile=profile_for_a_run() if arguments.on == "mininet" else MODELLED,
        )  # fmt: skip
    except (RunFolderError, ValueError) as fault:
        raise CommandError(str(fault), ExitCode.BAD_INPUT) from fault
    summary, code = conduct(prepared, arguments.on)
    show(prepared.folder, summary, as_json=arguments.json)
    if code == ExitCode.HOST_CANNOT:
        raise CommandError(summary.detail, code)
    return code


def show(folder: RunFolder, summary: RunSummary, *, as_json: bool) -> None:
    """Prints the result on standard output: the report, or one JSON object."""
    text = write_summary(summary).decode() if as_json else report_text(summary, report_facts(folder, summary))
    sys.stdout.write(text)
    sys.stdout.flush()
