"""`looplane serve` as a process of its own, for tests that are its clients."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from whole_run import EXPERIMENTS, TOP

from testbed.events.log import read_log
from testbed.experiment.plan import read_plan
from testbed.experiment.server_address import server_of
from testbed.metrics.requests import Exchange, ServedFold

MODEL = "llama-3-8b"
ON: dict[str, tuple[str, ...]] = {
    "sim": ("--on", "sim"),
    "namespace": ("--on", "mininet", "--set", "nodes=namespace"),
    "host-driven": ("--on", "mininet", "--set", "nodes=namespace", "--set", "systems.blink.kind=host-driven"),
}
"""Arguments of `looplane serve` by what serves; the last is a host-driven server in real processes."""


class Serving:
    """`looplane serve FILE --json` as a user starts it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.said = folder / "serve.txt"
        words = [sys.executable, "-m", "testbed.command", "serve", str(EXPERIMENTS / "serve.toml"), "--json"]
        with self.said.open("wb") as said:
            self.process = subprocess.Popen(
                [*words, "--out", str(folder), *arguments],
                cwd=TOP, stdout=subprocess.PIPE, stderr=said, stdin=subprocess.DEVNULL,
                start_new_session=True,
            )  # fmt: skip
        line = self.process.stdout.readline()
        assert line, self.said.read_text(errors="replace")
        found = json.loads(line)
        self.base_url, self.folder = found["base_url"], Path(found["folder"])

    @property
    def root(self) -> str:
        return self.base_url.removesuffix("/v1")

    def stop(self) -> int:
        """Ctrl-C; its exit code."""
        self.interrupt()
        return self.ended()

    def interrupt(self) -> None:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)

    def ended(self) -> int:
        """Waits for its end; its exit code."""
        try:
            return self.process.wait(90)
        finally:
            if self.process.poll() is None:
                os.kill(self.process.pid, signal.SIGKILL)
            self.process.stdout.close()


def served_exchanges(folder: Path) -> dict[str, Exchange]:
    """What the front end saw of each request, by its name; for a run that has ended."""
    fold = ServedFold()
    state = fold.start()
    server = server_of(read_plan((folder / "plan.json").read_bytes())).name
    for record in read_log(folder / "events" / f"{server}.jsonl"):
        if type(record.event) in fold.takes:
            state = fold.step(state, record)
    return {exchange.name: exchange for exchange in fold.result(state)}
