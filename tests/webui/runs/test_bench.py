"""The client of runnerd, against a socket that answers as it does (the daemon itself is tested with topologies)."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.utils import timezone

from webui.runs.bench import BenchBusy, BenchError, EmulationBench, RunnerdAway, ask_runnerd
from webui.runs.models import Run
from webui.runs.states import Outcome, State

Answers = dict[str, Any]


class Daemon:
    """Listens where runnerd would and answers each question from a table."""

    def __init__(self, path: Path) -> None:
        self.answers: Answers = {"status": {"running": []}}
        self.asked: list[dict[str, Any]] = []
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.bind(str(path))
        self._socket.listen()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                question = json.loads(lines.readline())
                self.asked.append(question)
                answer = self.answers.get(question["op"], {"error": "bad op"})
                connection.sendall(answer if isinstance(answer, bytes) else json.dumps(answer).encode() + b"\n")

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join(5)


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Daemon]:
    path = tmp_path / "runnerd.sock"
    monkeypatch.setattr(settings, "RUNNERD_SOCKET", path)
    daemon = Daemon(path)
    yield daemon
    daemon.close()


@pytest.fixture
def run() -> Run:
    return Run(id="20260101-000000-abcdef", backend="mininet", spec="a = 1", overrides=["b=2"])


def test_a_start_hands_over_the_text_and_nothing_else(daemon: Daemon, run: Run) -> None:
    daemon.answers["start"] = {"ok": True}
    EmulationBench().start(run)
    assert daemon.asked == [{"op": "start", "run": run.pk, "spec": "a = 1", "overrides": ["b=2"]}]


def test_exists_is_an_adoption_busy_waits_and_the_rest_is_an_error(daemon: Daemon, run: Run) -> None:
    daemon.answers["start"] = {"error": "exists", "detail": "started before"}
    EmulationBench().start(run)
    daemon.answers["start"] = {"error": "busy", "detail": "run x is under way"}
    with pytest.raises(BenchBusy, match=r"^the bench still has another run$"):  # whose, is not everybody's to know
        EmulationBench().start(run)
    daemon.answers["start"] = {"error": "taken", "detail": "run y of somebody"}
    with pytest.raises(BenchBusy, match=r"^a command or another console emulates on this machine$"):
        EmulationBench().start(run)
    daemon.answers["start"] = {"error": "bad spec", "detail": "too long"}
    with pytest.raises(BenchError, match="too long"):
        EmulationBench().start(run)


def test_a_runner_that_ends_over_the_question_is_asked_again(daemon: Daemon, run: Run) -> None:
    """A worker that adopts a run at the moment at which runnerd is killed has not failed."""
    daemon.answers["start"] = b""
    with pytest.raises(BenchBusy, match="broke off"):
        EmulationBench().start(run)


def test_nobody_at_the_socket_is_said_with_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run
) -> None:
    monkeypatch.setattr(settings, "RUNNERD_SOCKET", tmp_path / "none.sock")
    with pytest.raises(RunnerdAway, match="looplane up"):
        ask_runnerd("status")
    with pytest.raises(BenchError, match="looplane up"):
        EmulationBench().start(run)
    monkeypatch.setattr(settings, "RUNNERD_EXPECTED", True)  # the supervisor is about to bring it back
    with pytest.raises(BenchBusy, match="does not answer yet"):
        EmulationBench().start(run)


@pytest.mark.parametrize("answer", [b"", b"not json\n", b"[]\n"])
def test_an_answer_that_is_none_is_an_os_error(daemon: Daemon, answer: bytes) -> None:
    daemon.answers["status"] = answer
    with pytest.raises(OSError, match="runnerd"):
        ask_runnerd("status")


def test_a_look_believes_the_folder_then_the_daemon(daemon: Daemon, run: Run, put_run: Callable[[str], Path]) -> None:
    bench = EmulationBench()
    daemon.answers["status"] = {"running": [run.pk]}
    assert bench.look(run).state is State.PREPARING
    folder = put_run(run.pk)
    word = folder / "control" / "outcome.json"
    word.write_text('{"state": "finalising", "outcome": null}')
    assert bench.look(run).state is State.FINALISING
    daemon.answers["status"] = {"running": []}
    lost = bench.look(run)
    assert (lost.state, lost.outcome) == (State.FINISHED, Outcome.LOST)
    word.write_text('{"state": "finished", "outcome": "errored", "detail": "line one\\n  last line\\n"}')
    assert bench.look(run).detail.endswith("it said last: last line")
    word.write_text('{"state": "finished", "outcome": "cancelled", "detail": "by you"}')
    run.cancel_requested_at = timezone.now()
    ended = bench.look(run)
    assert (ended.outcome, ended.detail) == (Outcome.CANCELLED, "by you")
    # Nobody here has asked: then the daemon was told to stop, or was killed.
    run.cancel_requested_at = None
    daemon.answers["status"] = {"running": [], "record": {"cancelled": True}}
    assert bench.look(run).detail == "the console was stopped while it ran"
    daemon.answers["status"] = {"running": [], "record": {"cancelled": False}}
    assert bench.look(run).outcome is Outcome.LOST


def test_a_runner_that_has_gone_has_left_its_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: Run, put_run: Callable[[str], Path]
) -> None:
    """The supervisor was killed: runnerd has ended the run, and then itself."""
    monkeypatch.setattr(settings, "RUNNERD_SOCKET", tmp_path / "none.sock")
    control = put_run(run.pk) / "control"
    (control / "outcome.json").write_text('{"state": "finished", "outcome": "cancelled", "detail": "ended by SIGTERM"}')
    with pytest.raises(RunnerdAway):  # it has not cleared away yet
        EmulationBench().look(run)
    (control / "runner.json").write_text('{"state": "finished", "rc": 3, "cancelled": true, "cleaned": true}')
    assert EmulationBench().look(run).detail == "the console was stopped while it ran"
    (control / "runner.json").write_text('{"state": "lost", "rc": null, "cancelled": false, "cleaned": true}')
    assert EmulationBench().look(run).outcome is Outcome.LOST


def test_a_cancel_asks_once_more_harmlessly(daemon: Daemon, run: Run) -> None:
    daemon.answers["cancel"] = {"error": "not running"}
    EmulationBench().cancel(run)
    assert daemon.asked == [{"op": "cancel", "run": run.pk}]
