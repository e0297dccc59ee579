"""How much memory each kind of process of a run takes, for `looplane bench`: a real, small run looked at in its middle.

Memory is PSS, each page shared by n processes counted as one n-th of it (proc(5), smaps_rollup), so that the figures of
a run's processes add up to what the run takes of the machine.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from functools import cache
from pathlib import Path

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.places import EXPERIMENTS, SOURCE

KINDS = {
    "nic": "a soft RNIC", "dpu": "a DPU's software", "gpu": "a GPU's software", "host": "a host's software",
    "client": "a client", "capture": "a capture", "bench": "the bench", "conductor": "the looplane command",
}  # fmt: skip
"""Kinds of process, and what each is."""
RUNNING = Path("control") / "start.json"
"""There from the barrier on."""
PATIENCE_S = 60.0
REPEATS = 3
_RUNS = Path("/run/looplane")


def memory_of(kind: str) -> list[float]:
    """MiB of the processes of that kind, one figure a repeat (the mean, where a run has several of the kind)."""
    return [sum(sizes[kind]) / len(sizes[kind]) for sizes in _runs()]


@cache
def _runs() -> tuple[dict[str, list[float]], ...]:
    return tuple(_look_at_a_run() for _ in range(REPEATS))


def _look_at_a_run() -> dict[str, list[float]]:
    with tempfile.TemporaryDirectory() as place:
        spec = EXPERIMENTS / "blink" / "demo.toml"
        words = ["run", str(spec), "--on", "mininet", "--out", place, "--set", "nodes=namespace"]
        conductor = subprocess.Popen(
            [sys.executable, "-m", "testbed.command", *words, "--set", "workload.requests=16"],
            cwd=SOURCE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            folder = _started(conductor, Path(place))
            time.sleep(2.0)  # requests are under way
            sizes = _sizes(folder, conductor.pid)
            conductor.communicate(timeout=PATIENCE_S)
        finally:
            conductor.terminate()
            conductor.wait(PATIENCE_S)
        return sizes


def _started(conductor: subprocess.Popen[str], place: Path) -> Path:
    limit = time.monotonic() + PATIENCE_S
    while time.monotonic() < limit:
        found = [path.parents[1] for path in place.glob(f"*/{RUNNING}")]
        if found:
            return found[0]
        if conductor.poll() is not None:
            said = (conductor.stderr.read() if conductor.stderr else "").strip()
            raise CommandError(f"bench: the run ended early: {said.splitlines()[-1:]}", ExitCode.ERRORED)
        time.sleep(0.05)
    raise CommandError(f"bench: the run has not started within {PATIENCE_S:g} s", ExitCode.ERRORED)


def _sizes(folder: Path, conductor: int) -> dict[str, list[float]]:
    """MiB of each process, by its kind."""
    sizes: dict[str, list[float]] = {"conductor": [_pss_mib(conductor)]}
    label = folder.name.rpartition("-")[2]
    record = json.loads((_RUNS / label / "run.json").read_bytes())
    sizes["bench"] = [_pss_mib(record["owner"]["pid"])]
    for line in (_RUNS / label / "processes.jsonl").read_bytes().splitlines():
        mark = json.loads(line)
        kind, _, _ = mark["what"].partition(" ")
        if kind in ("nic", "capture"):
            sizes.setdefault(kind, []).append(_pss_mib(mark["pid"]))
    plan = json.loads((folder / "plan.json").read_bytes())
    for node in plan["nodes"]:
        words = ["-m", "topologies", "pids", str(folder), "--node", node["name"]]
        done = subprocess.run([sys.executable, *words], cwd=SOURCE, capture_output=True, text=True, check=False)
        pids = json.loads(done.stdout or "[]")
        if pids:  # a host leaves once it has provisioned
            sizes.setdefault(node["role"], []).append(sum(map(_pss_mib, pids)))
    return sizes


def _pss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0
