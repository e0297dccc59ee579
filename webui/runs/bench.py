"""The bench: what carries runs out. Emulations through runnerd, the one privileged daemon; simulations as a process.

Both answer the same few questions, so the worker that watches a run does not care which it is. This file holds the
client of runnerd's socket: one JSON line there, one back, nothing but a run id and the text of a spec (console §7).
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any, Protocol

from django.conf import settings

from webui.runs.folder import Word, folder_of, read_json, word_of
from webui.runs.models import Run
from webui.runs.states import Outcome, State

PATIENCE_S = 10.0
ANSWER_LIMIT = 4 << 20
ELSEWHERE = "a command or another console emulates on this machine"


class BenchError(Exception):
    """The bench cannot take the run, and will not be able to: the run ends as errored with this sentence."""


class BenchBusy(Exception):
    """The bench has another run; try again later."""


class Bench(Protocol):
    """What a watcher asks of a bench. Every question may be asked again, by another worker, after a crash."""

    def start(self, run: Run) -> None:
        """Starts the run, or adopts it if it was started before. Raises BenchError, BenchBusy."""
        ...

    def look(self, run: Run) -> Word:
        """How the run stands. Raises OSError while the bench cannot be asked."""
        ...

    def cancel(self, run: Run) -> None:
        """Asks the run to end; harmless when it has."""
        ...


class RunnerdAway(OSError):
    """No runnerd answers on the socket."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"the privileged runner does not answer on {path} ({why}); `looplane up` as root starts it, "
            "and without root only simulations can run"
        )


def ask_runnerd(op: str, *, patience_s: float = PATIENCE_S, **fields: Any) -> dict[str, Any]:
    """One question to runnerd. Raises RunnerdAway, or OSError if it breaks off."""
    path: Path = settings.RUNNERD_SOCKET
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(patience_s)
        try:
            connection.connect(str(path))
        except OSError as fault:
            raise RunnerdAway(path, fault.strerror or type(fault).__name__) from fault
        connection.sendall(json.dumps({"op": op, **fields}).encode() + b"\n")
        with connection.makefile("rb") as answers:
            line = answers.readline(ANSWER_LIMIT)
    try:
        answer = json.loads(line)
    except ValueError as fault:
        raise OSError(f"runnerd gave no answer to {op!r}") from fault
    if not isinstance(answer, dict):
        raise OSError(f"runnerd answered {op!r} with something that is no object")
    return answer


class EmulationBench:
    """Mininet runs, by way of runnerd. One at a time on this machine."""

    def start(self, run: Run) -> None:
        """Hands the spec over; `exists` means that a worker before us has, and the run is adopted."""
        try:
            answer = ask_runnerd("start", run=run.pk, spec=run.spec, overrides=run.overrides)
        except RunnerdAway as fault:
            if settings.RUNNERD_EXPECTED:
                raise BenchBusy("the privileged runner does not answer yet") from fault
            raise BenchError(str(fault)) from fault
        except OSError as fault:  # it ended over our question; whether it began the run, it says when it is back
            raise BenchBusy(f"the privileged runner broke off: {fault}") from fault
        error = answer.get("error")
        if error == "busy":
            raise BenchBusy("the bench still has another run")  # whose it is, is not everybody's to know
        if error == "taken":
            raise BenchBusy(ELSEWHERE)
        if error and error != "exists":
            raise BenchError(f"the runner refused: {answer.get('detail') or error}")

    def look(self, run: Run) -> Word:
        """The run folder's word; where it has none, whether runnerd still knows the run."""
        word = word_of(run.pk)
        if word is not None and word.state is State.FINISHED:
            return self._explained(run, word)
        running = ask_runnerd("status").get("running", [])
        if run.pk in running:
            return word or Word(State.PREPARING, None, "")
        # It may have ended between the two looks.
        word = word_of(run.pk)
        if word is not None and word.state is State.FINISHED:
            return self._explained(run, word)
        return Word(State.FINISHED, Outcome.LOST, "the runner no longer knows this run and its folder has no outcome")

    def _explained(self, run: Run, word: Word) -> Word:
        """The word that the run left, put right where it cannot know better: who asked it to end, if anybody did."""
        if word.outcome is Outcome.CANCELLED and run.cancel_requested_at is None:
            record = read_json(folder_of(run.pk) / "control" / "runner.json")  # its last word, also when it has gone
            if record is None:
                record = ask_runnerd("status", run=run.pk).get("record")
            if isinstance(record, dict) and record.get("cancelled"):
                return Word(State.FINISHED, Outcome.CANCELLED, "the console was stopped while it ran")
            return Word(State.FINISHED, Outcome.LOST, "the runner ended while this run was under way")
        lines = [line.strip() for line in word.detail.splitlines() if line.strip()]
        if len(lines) > 1:  # what it printed, where it left no word of its own
            return Word(word.state, word.outcome, f"it ended without a word of its own; it said last: {lines[-1]}")
        return word

    def cancel(self, run: Run) -> None:
        """Asks runnerd; it answers that the run is not running when it has ended, which is as good."""
        ask_runnerd("cancel", run=run.pk)
