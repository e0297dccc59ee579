"""`looplane export RUN --format F`: a run for other tools: Perfetto, spreadsheets, scripts, CI."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from testbed.command.conduct import refuse_if_conducted
from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.finished_run import find_run
from testbed.experiment.complaints import SpecError
from testbed.experiment.conclusion import conclude, read_run_spec, timelines_of, traffic_of
from testbed.experiment.export_csv import export_csv
from testbed.experiment.export_csv_traffic import export_traffic
from testbed.experiment.export_json import export_json
from testbed.experiment.export_junit import export_junit
from testbed.experiment.export_perfetto import export_perfetto
from testbed.experiment.run_folder import RunFolder, RunFolderError
from testbed.experiment.summary import RunSummary, read_summary

FORMATS = ("perfetto", "csv", "json", "junit")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Run, format, where to."""
    parser.add_argument("run", metavar="RUN", help="a run folder, a run id, or last")
    parser.add_argument("--format", choices=FORMATS, required=True, help="perfetto: open in ui.perfetto.dev")
    parser.add_argument(
        "--out", type=Path, metavar="PATH",
        help="file to write (for csv: a folder for requests.csv and tokens.csv, and with KV traffic for turns.csv and "
        "transfers.csv); default: standard output",
    )  # fmt: skip


def main(arguments: argparse.Namespace) -> int:
    """Writes the export."""
    folder = find_run(arguments.run)
    refuse_if_conducted(folder)
    try:
        files = exported(folder, arguments.format)
    except (RunFolderError, SpecError) as fault:
        raise CommandError(str(fault), ExitCode.BAD_INPUT) from fault
    if arguments.out is None:
        for data in files.values():
            sys.stdout.buffer.write(data)
        return ExitCode.PASSED
    many = len(files) > 1
    try:
        (arguments.out if many else arguments.out.parent).mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (arguments.out / name if many else arguments.out).write_bytes(data)
    except OSError as fault:
        raise CommandError(f"{arguments.out}: {fault.strerror}", ExitCode.BAD_INPUT) from fault
    return ExitCode.PASSED


def exported(folder: RunFolder, form: str) -> dict[str, bytes]:
    """The export's files by name."""
    match form:
        case "perfetto":
            return {"trace.json": export_perfetto(timelines_of(folder), traffic_of(folder))}
        case "csv":
            files = export_csv(timelines_of(folder))
            found = {"requests.csv": files.requests.encode(), "tokens.csv": files.tokens.encode()}
            traffic = traffic_of(folder)
            if traffic:
                told = export_traffic(traffic)
                found.update({"turns.csv": told.turns.encode(), "transfers.csv": told.transfers.encode()})
            return found
        case "json":
            return {"run.json": export_json(summary_of(folder), timelines_of(folder), traffic_of(folder))}
        case _:
            return {"junit.xml": export_junit(summary_of(folder), read_run_spec(folder).name)}


def summary_of(folder: RunFolder) -> RunSummary:
    """The summary as it lies there, or made again if it is missing or of another version."""
    try:
        return read_summary(folder.summary_file.read_bytes())
    except (OSError, ValueError):  # msgspec's errors are ValueErrors
        return conclude(folder)
