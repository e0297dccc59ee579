"""However a run on Mininet ends: the host is as before, the run keeps what it has, and the next start works."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "topologies"))  # its module of what a host consists of

import host_state

TOP = Path(__file__).resolve().parents[2]
SMALL = TOP / "fixtures" / "experiments" / "blink" / "small.toml"

pytestmark = [pytest.mark.root, pytest.mark.docker]


class CommandRun:
    """`looplane run small.toml --on mininet` as a process of its own."""

    def __init__(self, parent: Path, *words: str) -> None:
        self.label = secrets.token_hex(3)
        self.folder = parent / f"20260102-030405-{self.label}"
        command = [sys.executable, "-m", "testbed.command", "run", str(SMALL), "--on", "mininet", "--json",
                   "--out", str(parent), "--run-id", self.folder.name, *words]  # fmt: skip
        self.process = subprocess.Popen(
            command, cwd=TOP, env={**os.environ, "PYTHONPATH": str(TOP)}, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def wait_until_tokens_flow(self) -> None:
        """Returns once the client has received something."""
        path = self.folder / "events" / "client0.jsonl"
        end = time.monotonic() + 90
        while not (path.is_file() and b"token.received" in path.read_bytes()):
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < end
            time.sleep(0.05)

    def end(self) -> tuple[int, dict[str, object]]:
        """Exit code, and what it printed."""
        out, error = self.process.communicate(timeout=120)
        return self.process.returncode, json.loads(out) if out else {"error": error.decode()}


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[..., CommandRun]]:
    """Starts runs; afterwards the host must be as it was, whatever became of them."""
    before = host_state.snapshot()
    runs: list[CommandRun] = []

    def start(*words: str) -> CommandRun:
        runs.append(CommandRun(tmp_path, *words))
        return runs[-1]

    yield start
    for run in runs:
        if run.process.poll() is None:
            run.process.kill()
            run.process.communicate()
    left = [line for run in runs for line in host_state.differences(before, run.label, patience_s=30)]
    assert not left, "\n".join(["left behind or changed:", *left])


def test_a_normal_end(begin: Callable[..., CommandRun]) -> None:
    run = begin()
    code, told = run.end()
    assert told["systems"]["blink"]["requests"]["completed"] == 8, told
    # A machine that is busy with other things may find the run invalid, and says so by exit 4.
    assert code == {"passed": 0, "errored": 4}[str(told["outcome"])], told


def test_a_cancel(begin: Callable[..., CommandRun]) -> None:
    run = begin("--set", "workload.requests=400")
    run.wait_until_tokens_flow()
    run.process.send_signal(signal.SIGINT)
    code, told = run.end()
    assert (code, told["outcome"]) == (4, "cancelled")
    assert told["systems"]["blink"]["requests"]["sent"] > 0
    assert (run.folder / "report" / "index.html").is_file()


def test_an_experiment_that_fails(begin: Callable[..., CommandRun]) -> None:
    code, told = begin("--set", "workload.requests=2").end()
    assert code in (1, 4), told
    assert [row["held"] for row in told["expectations"]] == [False, True]
