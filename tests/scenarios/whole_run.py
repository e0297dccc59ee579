"""Whole runs: a spec prepared as the command does it, and the bench as a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from testbed.events.log import Record, check_log, log_files, read_log
from testbed.events.schema import BLINK_STEPS

TOP = Path(__file__).resolve().parents[2]
EXPERIMENTS = TOP / "fixtures" / "experiments" / "blink"


class BenchProcess:
    """`python -m topologies run` on a prepared run folder."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder
        self.output = folder.parent / f"{folder.name}.bench.txt"
        with self.output.open("wb") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "topologies", "run", str(folder), *arguments],
                cwd=TOP, stdout=output, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
            )  # fmt: skip

    def wait_for(self, name: str, seconds: float = 90) -> Path:
        """The file `name` in control/, once it is there."""
        path = self.folder / "control" / name
        end = time.monotonic() + seconds
        while not path.exists():
            assert self.process.poll() is None, f"the bench ended: {self.said()}"
            assert time.monotonic() < end, f"no {name} after {seconds} s: {self.said()}"
            time.sleep(0.02)
        return path

    def pids(self, node: str) -> list[int]:
        """Every process of a node's software."""
        words = [sys.executable, "-m", "topologies", "pids", str(self.folder), "--node", node]
        done = subprocess.run(words, cwd=TOP, capture_output=True, text=True, check=True, timeout=60)
        return [int(pid) for pid in json.loads(done.stdout)]

    def stop_node(self, node: str) -> list[int]:
        """SIGSTOP to every process of a node's software; their pids, all of them stopped."""
        pids = self.pids(node)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        end = time.monotonic() + 5
        while states(pids) != {"T"}:
            assert time.monotonic() < end, f"{pids} are {states(pids)}"
            time.sleep(0.001)
        return pids

    def end(self, seconds: float = 120) -> int:
        """Waits for its end; its exit code."""
        return self.process.wait(seconds)

    def said(self) -> str:
        return self.output.read_text(errors="replace")[-4000:]

    def close(self) -> None:
        """SIGTERM, on which it cleans up; SIGKILL only if it does not end."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                os.kill(self.process.pid, signal.SIGKILL)
                self.process.wait(10)
                raise


def states(pids: list[int]) -> set[str]:
    """The kernel's letters for what these processes do; T is stopped."""
    return {Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] for pid in pids}


def records(folder: Path, node: str) -> list[Record]:
    """One node's events."""
    return list(read_log(folder / "events" / f"{node}.jsonl"))


def tag(record: Record) -> str:
    """The tag of a record's event, e.g. `slot.moved`."""
    return str(record.event.__struct_config__.tag)


def events_of(folder: Path, kind: str) -> list[tuple[str, Any]]:
    """(node, event) of every event with that tag."""
    everything = (record for path in log_files(folder / "events") for record in read_log(path))
    return [(record.node, record.event) for record in everything if tag(record) == kind]


def steps_of_requests(folder: Path) -> dict[str, list[int]]:
    """The steps of Blink's figure that each request has taken, by its name, each step once."""
    tags = {str(event.__struct_config__.tag): step for step, event in BLINK_STEPS.items()}
    lines = []
    for path in log_files(folder / "events"):
        check_log(path)
        lines += [json.loads(line) for line in path.read_bytes().splitlines()]
    names = {line["request"]: line["name"] for line in lines if line["type"] == "request.arrived"}
    batches = {line["launch"]: line["requests"] for line in lines if line["type"] == "graph.selected"}
    steps: dict[str, set[int]] = {name: set() for name in names.values()}
    for line in lines:
        if line["type"] not in tags:
            continue
        # A launch is its batch's: the event of step 8 names the launch alone.
        whose = line.get("requests") or ([line["request"]] if "request" in line else batches[line["launch"]])
        for request in whose:
            steps[names[request]].add(tags[line["type"]])
    return {name: sorted(found) for name, found in steps.items()}
