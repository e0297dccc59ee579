"""Simulated runs: the worker starts `looplane run` as a process of its own and watches it. No privilege is needed.

The process has its own session and outlives a killed worker; its pid and start time are kept in a file, so that the
next worker finds it again and never mistakes another process for it.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from django.conf import settings

from webui.runs.bench import BenchError
from webui.runs.folder import Word, folder_of, word_of
from webui.runs.models import Run
from webui.runs.states import Outcome, State

PATIENCE_S = 10.0
"""From the request to end until the process is killed."""

_BY_EXIT_CODE = {
    0: Outcome.PASSED,
    1: Outcome.FAILED,
}
"""Exit codes of the command that are outcomes; everything else is an error (testbed.command.exit_codes)."""


@dataclass(frozen=True)
class Process:
    """A process that cannot be mistaken: a pid is used again, pid and start time are not."""

    pid: int
    started: int
    """Field 22 of /proc/<pid>/stat: clock ticks since boot."""


def process_start(pid: int) -> int | None:
    """Start time of a living process, None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat[stat.rindex(")") + 2 :].split()
    return None if fields[0] in "ZX" else int(fields[19])


class SimulationBench:
    """Starts and follows simulations. `_children` are those of this worker, whose exit codes can be had."""

    def __init__(self) -> None:
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._asked: dict[str, float] = {}

    def start(self, run: Run) -> None:
        """Starts the process, or leaves it be if it, or the run's folder, is there already."""
        folder = self._folder(run)
        if self._recorded(run) is not None or folder_of(run.pk).exists():
            return
        folder.mkdir(parents=True, exist_ok=True)
        spec = folder / "spec.toml"
        spec.write_text(run.spec)
        command = [sys.executable, "-m", "testbed.command", "run", "-", "--on", "sim"]
        command += ["--run-id", run.pk, "--out", str(settings.RUNS_FOLDER)]
        for override in run.overrides:
            command += ["--set", override]
        try:
            with spec.open("rb") as text, (folder / "output.log").open("wb") as output:
                child = subprocess.Popen(
                    command, stdin=text, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
                )
        except OSError as fault:
            raise BenchError(f"the simulation could not be started: {fault}") from fault
        self._children[run.pk] = child
        started = process_start(child.pid)
        (folder / "process.json").write_text(json.dumps({"pid": child.pid, "started": started or 0}))

    def look(self, run: Run) -> Word:
        """The folder's word, and the process's end where the folder has none."""
        child = self._children.get(run.pk)
        code = child.poll() if child is not None else None
        # A child of ours is alive until it is reaped; its state in /proc is for those whose parent is gone.
        alive = code is None if child is not None else self.is_alive(run)
        word = word_of(run.pk)
        if alive:
            self._press(run)
            if word is None:  # the command says itself when it runs; until then its folder may have no plan yet
                return Word(State.PREPARING, None, "")
            return word if word.state is not State.FINISHED else Word(State.RUNNING, None, "")
        self._children.pop(run.pk, None)
        if word is not None and word.state is State.FINISHED:
            return word
        return self._end_without_word(run, code)

    def cancel(self, run: Run) -> None:
        """SIGTERM to the process and what it has started; `look` follows with SIGKILL when patience ends."""
        self._asked.setdefault(run.pk, time.monotonic())
        self._signal(run, signal.SIGTERM)

    def _press(self, run: Run) -> None:
        asked = self._asked.get(run.pk)
        if asked is not None and time.monotonic() - asked > PATIENCE_S:
            self._signal(run, signal.SIGKILL)

    def _signal(self, run: Run, number: int) -> None:
        process = self._recorded(run)
        if process is None or process_start(process.pid) != process.started:
            return
        try:
            os.killpg(process.pid, number)  # the process leads its own session, so its group is its own
        except (ProcessLookupError, PermissionError):
            return

    def _end_without_word(self, run: Run, code: int | None) -> Word:
        """What an exit code and the last line of output tell, when the folder tells nothing."""
        asked = self._asked.pop(run.pk, None)
        if asked is not None or run.cancel_requested_at is not None:
            return Word(State.FINISHED, Outcome.CANCELLED, "the simulation was stopped")
        if code is None:
            return Word(State.FINISHED, Outcome.LOST, "its process is gone and its folder has no outcome")
        if code < 0:
            name = signal.Signals(-code).name
            return Word(State.FINISHED, Outcome.ERRORED, f"the simulation was killed by {name}")
        outcome = _BY_EXIT_CODE.get(code, Outcome.ERRORED)
        return Word(State.FINISHED, outcome, self.last_line(run) or f"the command ended with exit code {code}")

    def last_line(self, run: Run) -> str:
        """The last line that the command printed, without escapes."""
        try:
            text = (self._folder(run) / "output.log").read_bytes()[-4096:].decode(errors="replace")
        except OSError:
            return ""
        lines = [line for line in re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines() if line.strip()]
        return lines[-1].removeprefix("looplane: ")[:1000] if lines else ""

    def is_alive(self, run: Run) -> bool:
        """Whether the process that was started for this run on this machine goes on."""
        process = self._recorded(run)
        return process is not None and process_start(process.pid) == process.started

    def _folder(self, run: Run) -> Path:
        return Path(settings.DATABASE_FOLDER) / "launches" / run.pk

    def _recorded(self, run: Run) -> Process | None:
        try:
            data = json.loads((self._folder(run) / "process.json").read_bytes())
            return Process(int(data["pid"]), int(data["started"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None
