"""`looplane run FILE`: prepares, runs every trial, judges, reports. `demo` and the console go this way too."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import FrameType
from typing import Literal

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.places import is_root, runs_folder
from testbed.experiment.complaints import SpecError
from testbed.experiment.conclusion import conclude, report_facts, timelines_of
from testbed.experiment.launch import Prepared, launch_wall, note_end, prepare, simulate
from testbed.experiment.plan import Plan
from testbed.experiment.reading import LARGEST_FILE, spec_from_bytes
from testbed.experiment.report import report_text
from testbed.experiment.report_page import report_page
from testbed.experiment.run_folder import Outcome, RunFolder, RunFolderError, write_whole
from testbed.experiment.simulation import Progress
from testbed.experiment.spec import Spec
from testbed.experiment.summary import RunSummary, write_summary
from testbed.units import SECOND

Backend = Literal["sim", "mininet"]

TELL_EVERY_S = 1.0
"""Wall seconds between two lines of progress."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The file, the backend and where the run goes."""
    parser.add_argument("file", metavar="FILE", help="an experiment (TOML), or - for standard input")
    add_run_arguments(parser)
    parser.add_argument("--run-id", metavar="ID", help="name of the run folder (default: from the time)")


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """What every verb that runs experiments takes."""
    parser.add_argument(
        "--on", choices=("sim", "mininet"), default="sim",
        help="sim: simulated clock in this process; mininet: real packets between emulated nodes (root). Default: sim",
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
        data = sys.stdin.buffer.read(LARGEST_FILE + 1) if file == "-" else Path(file).read_bytes()
    except OSError as fault:
        raise CommandError(f"{file}: {fault.strerror}", ExitCode.BAD_INPUT) from fault
    try:
        return spec_from_bytes(data, "standard input" if file == "-" else file, overrides), data
    except SpecError as fault:
        raise CommandError(str(fault), ExitCode.BAD_INPUT) from fault


def run_spec(spec: Spec, text: bytes, arguments: argparse.Namespace, *, run_id: str | None = None) -> int:
    """Prepares, runs and concludes; prints report or JSON. Returns the exit code."""
    backend: Backend = arguments.on
    if backend == "mininet" and not is_root():
        raise CommandError("--on mininet needs root (namespaces, Mininet, containers); --on sim does not",
                           ExitCode.HOST_CANNOT)  # fmt: skip
    try:
        prepared = prepare(
            spec, arguments.out or runs_folder(), clock="simulated" if backend == "sim" else "wall", text=text,
            overrides=arguments.overrides, command=["looplane", *sys.argv[1:]], run=run_id,
        )  # fmt: skip
    except (RunFolderError, ValueError) as fault:
        raise CommandError(str(fault), ExitCode.BAD_INPUT) from fault
    try:
        ended, detail = run_trials(prepared, backend)
        note_end(prepared.folder)
        summary = finish(prepared.folder, ended=ended, detail=detail)
    except OSError as fault:  # a full disk, a folder taken away: what was written stays
        raise CommandError(f"{fault.filename or prepared.folder.path}: {fault.strerror}", ExitCode.ERRORED) from fault
    show(prepared.folder, summary, as_json=arguments.json)
    return exit_code(summary)


def run_trials(prepared: Prepared, backend: Backend) -> tuple[Outcome, str]:
    """Runs the trials one after the other; stops at the first that did not come to its end. How that was."""
    prepared.folder.set_status("running")
    for number, (trial, plan) in enumerate(zip(prepared.trials, prepared.plans, strict=True), 1):
        place = f"trial {number} of {len(prepared.trials)}, {trial.name}" if len(prepared.trials) > 1 else trial.name
        say(f"{place}: {'simulating' if backend == 'sim' else 'on Mininet'}")
        outcome, detail = _simulated(trial, plan) if backend == "sim" else _emulated(trial)
        if outcome != "passed":
            return outcome, detail
    return "passed", ""


def finish(folder: RunFolder, *, ended: Outcome | None = None, detail: str = "") -> RunSummary:
    """Concludes the run and writes its HTML report; only then is it said to be finished."""
    folder.set_status("finalising")
    summary = conclude(folder, ended=ended, detail=detail)
    page = report_page(summary, report_facts(folder, summary), timelines_of(folder))
    write_whole(folder.report / "index.html", page.encode())
    folder.set_status("finished", summary.outcome, summary.detail)
    return summary


def show(folder: RunFolder, summary: RunSummary, *, as_json: bool) -> None:
    """Prints the result on standard output: the report, or one JSON object."""
    text = write_summary(summary).decode() if as_json else report_text(summary, report_facts(folder, summary))
    sys.stdout.write(text)


def exit_code(summary: RunSummary) -> ExitCode:
    """The exit code that an outcome means."""
    codes = {"passed": ExitCode.PASSED, "failed": ExitCode.EXPECTATION_FAILED}
    return codes.get(summary.outcome, ExitCode.ERRORED)


def say(line: str) -> None:
    """Progress for people, on standard error, so that standard output is the result alone."""
    print(line, file=sys.stderr, flush=True)


def _emulated(trial: RunFolder) -> tuple[Outcome, str]:
    began = time.monotonic()
    end = launch_wall(trial, progress=lambda line: say(f"  {time.monotonic() - began:5.1f} s  {line}"))
    if end.code == ExitCode.HOST_CANNOT:
        raise CommandError(end.last_words, ExitCode.HOST_CANNOT)
    if end.code != 0:
        return "cancelled" if end.signalled else "errored", end.last_words
    return "passed", ""


def _simulated(trial: RunFolder, plan: Plan) -> tuple[Outcome, str]:
    signals: list[str] = []

    def ask_to_end(number: int, _frame: FrameType | None) -> None:
        signals.append(signal.Signals(number).name)

    told = time.monotonic()

    def progress(at: Progress) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_EVERY_S:
            told = time.monotonic()
            say(f"  {at.t / SECOND:.3f} s of true time, {at.ended} of {at.requests} requests")

    before = {number: signal.signal(number, ask_to_end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        end = simulate(plan, trial, progress=progress, cancelled=lambda: bool(signals))
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return ("cancelled", f"ended by {signals[0]}") if signals else (end.outcome, end.detail)
