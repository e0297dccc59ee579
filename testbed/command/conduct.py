"""A prepared run from its start to its verdict: every trial in turn, then the folds, the report, the end.

However it goes, the run folder says at last that the run is finished and how: also when this host cannot, when the
disk is full, when a machine has a bug (its traceback is kept), and when SIGINT or SIGTERM ask for the end, at any
moment. While a run is conducted its folder is locked, so that nobody judges it before its time.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Literal, NamedTuple

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.locks import held, is_held
from testbed.command.places import SOURCE
from testbed.command.telling import say, words_of
from testbed.experiment.conclusion import conclude, report_facts, timelines_of
from testbed.experiment.launch import Prepared, WallEnd, launch_wall, note_end, simulate
from testbed.experiment.plan import Plan
from testbed.experiment.report_page import report_page
from testbed.experiment.run_folder import Outcome, RunFolder, write_whole
from testbed.experiment.simulation import Progress
from testbed.experiment.summary import RunSummary
from testbed.units import SECOND

Backend = Literal["sim", "mininet"]

TELL_EVERY_S = 1.0
"""Wall seconds between two lines of progress."""
LOCK = "conductor.lock"


class Ending(NamedTuple):
    """How the trials went, before their figures are judged."""

    outcome: Outcome
    detail: str = ""
    host_cannot: bool = False


class Signals:
    """SIGINT and SIGTERM while a run is conducted: remembered, never thrown."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def __bool__(self) -> bool:
        return bool(self.heard)

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        self.heard.append(signal.Signals(number).name)

    @contextmanager
    def listening(self) -> Iterator[Signals]:
        """Takes the signals while open."""
        before = {number: signal.signal(number, self._hear) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield self
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def conduct(prepared: Prepared, backend: Backend) -> tuple[RunSummary, ExitCode]:
    """Runs and judges. Raises `CommandError` only where not even that could be written."""
    folder = prepared.folder
    with Signals().listening() as signals, held(folder.control / LOCK):
        try:
            folder.set_status("running")
            ending = _run_trials(prepared, backend, signals)
        except Exception as fault:  # noqa: BLE001  # whatever it was, the run must say how it ended
            ending = Ending("errored", words_of(fault))
            _keep_traceback(folder)
        summary = finish(folder, ending)
    return summary, ExitCode.HOST_CANNOT if ending.host_cannot else exit_code(summary)


def finish(folder: RunFolder, ending: Ending | None = None) -> RunSummary:
    """Concludes a run and writes its report; only then is it said to be finished. Raises `CommandError`."""
    try:
        folder.set_status("finalising")
        if ending is not None:
            note_end(folder)
        summary = conclude(folder, ended=ending and ending.outcome, detail=ending.detail if ending else "")
        page = report_page(summary, report_facts(folder, summary), timelines_of(folder))
        write_whole(folder.report / "index.html", page.encode())
    except OSError as fault:  # a full disk, a folder taken away: what was written stays
        with suppress(OSError):
            folder.set_status("finished", "errored", words_of(fault))
        raise CommandError(f"{folder.path}: {words_of(fault)}", ExitCode.ERRORED) from fault
    folder.set_status("finished", summary.outcome, summary.detail)
    return summary


def refuse_if_conducted(folder: RunFolder) -> None:
    """Raises `CommandError` while somebody conducts the run: its figures are not whole yet."""
    if is_held(folder.control / LOCK):
        raise CommandError(f"{folder.path}: still running; wait for its end or cancel it", ExitCode.BAD_INPUT)


def exit_code(summary: RunSummary) -> ExitCode:
    """The exit code that an outcome means."""
    codes = {"passed": ExitCode.PASSED, "failed": ExitCode.EXPECTATION_FAILED}
    return codes.get(summary.outcome, ExitCode.ERRORED)


def _run_trials(prepared: Prepared, backend: Backend, signals: Signals) -> Ending:
    """The trials one after the other, up to the first that did not come to its end."""
    count = len(prepared.trials)
    for number, (trial, plan) in enumerate(zip(prepared.trials, prepared.plans, strict=True), 1):
        place = f"trial {number} of {count}, {trial.name}" if count > 1 else trial.name
        say(f"{place}: {'simulating' if backend == 'sim' else 'on Mininet'}")
        ending = _simulated(trial, plan, signals) if backend == "sim" else _emulated(trial, plan, signals)
        if ending.outcome != "passed":
            return ending
    return Ending("passed")


def _emulated(trial: RunFolder, plan: Plan, signals: Signals) -> Ending:
    if signals:  # between two trials
        return Ending("cancelled", f"ended by {signals.heard[0]}")
    began = time.monotonic()
    end = launch_wall(trial, progress=lambda line: say(f"  {time.monotonic() - began:5.1f} s  {line}"))
    return ending_of(end, trial, plan.label)


def ending_of(end: WallEnd, trial: RunFolder, label: str) -> Ending:
    """How a trial has gone whose bench has ended; what a killed one left on the host is removed."""
    if end.code == ExitCode.PASSED:
        return Ending("passed")
    if end.code == ExitCode.HOST_CANNOT:
        return Ending("errored", end.last_words, host_cannot=True)
    if end.code < 0:  # it could not clean up after itself
        clean = [sys.executable, "-m", "topologies", "clean", "--label", label]
        subprocess.run(clean, cwd=SOURCE, stdout=subprocess.DEVNULL, check=False)
        killed = f"the bench was killed by {signal.Signals(-end.code).name}; what it left is removed"
        return _word_for_the_bench(trial, Ending("errored", killed))
    return Ending("cancelled" if end.signalled else "errored", end.last_words)


def _word_for_the_bench(trial: RunFolder, ending: Ending) -> Ending:
    """Keeps how a bench ended that could not say so itself: whoever judges the run later finds the same as we.

    The reaper, which does not know how it died, may have written `lost`.
    """
    path = trial.control / "bench.json"
    if not path.is_file() or trial.read_json(path)["outcome"] == "lost":
        trial.write_json(path, {"outcome": ending.outcome, "detail": ending.detail, "teardown": ""})
    return ending


def _simulated(trial: RunFolder, plan: Plan, signals: Signals) -> Ending:
    told = time.monotonic()

    def progress(at: Progress) -> None:
        nonlocal told
        if time.monotonic() - told >= TELL_EVERY_S:
            told = time.monotonic()
            say(f"  {at.t / SECOND:.3f} s of true time, {at.ended} of {at.requests} requests")

    end = simulate(plan, trial, progress=progress, cancelled=lambda: bool(signals))
    return Ending("cancelled", f"ended by {signals.heard[0]}") if signals else Ending(end.outcome, end.detail)


def _keep_traceback(folder: RunFolder) -> None:
    with suppress(OSError):  # the disk that is full has no room for it either
        (folder.control / "traceback.txt").write_text(traceback.format_exc())
