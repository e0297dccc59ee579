"""How much memory each kind of process takes, for `looplane bench`: real, small runs looked at in their middle, and a
console that has just come up.

Memory is PSS, each page shared by n processes counted as one n-th of it (proc(5), smaps_rollup), so that the figures of
a run's processes add up to what the run takes of the machine.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from testbed.command.exit_codes import CommandError, ExitCode
from testbed.command.places import EXPERIMENTS, SOURCE

RUNNING = Path("control") / "start.json"
"""There from the barrier on."""
PATIENCE_S = 60.0
REPEATS = 3
_RUNS = Path("/run/looplane")
Sizes = dict[str, list[float]]
"""MiB of each process that was seen, by its kind; a run's nodes are of the kind of their role."""


class Kind(NamedTuple):
    """One kind of process."""

    words: str
    """What it is."""
    look: Callable[[], tuple[Sizes, ...]]
    """Looks at processes of this kind, and of others, several times."""
    role: str = ""
    """What the look calls it, where that is not the kind's own name."""


def memory_of(kind: str) -> list[float]:
    """MiB of the processes of that kind, one figure a repeat (the mean, where a run has several of the kind)."""
    found = KINDS[kind]
    seen = [sizes[found.role or kind] for sizes in found.look()]
    return [sum(each) / len(each) for each in seen]


@cache
def _runs(experiment: str, *overrides: str) -> tuple[Sizes, ...]:
    return tuple(_look_at_a_run(experiment, overrides) for _ in range(REPEATS))


@cache
def _consoles() -> tuple[Sizes, ...]:
    return tuple(_look_at_a_console() for _ in range(REPEATS))


_BLINK = partial(_runs, "blink/demo.toml", "workload.requests=16")
_DUALPATH = partial(_runs, "dualpath/small.toml", "dilation=60")
_HOST_DRIVEN = partial(_runs, "blink/host-driven-small.toml")
KINDS = {
    "nic": Kind("a soft RNIC", _BLINK),
    "dpu": Kind("a DPU's software", _BLINK),
    "gpu": Kind("a GPU's software", _BLINK),
    "host": Kind("a host's software that only provisions", _BLINK),
    "client": Kind("a client", _BLINK),
    "capture": Kind("a capture", _BLINK),
    "bench": Kind("the bench", _BLINK),
    "conductor": Kind("the looplane command", _BLINK),
    "server": Kind("a host-driven server, all its processes", _HOST_DRIVEN, "host"),
    "prefill": Kind("a prefill node's engines", _DUALPATH),
    "decode": Kind("a decode node's engines", _DUALPATH),
    "scheduler": Kind("the central scheduler", _DUALPATH),
    "storage": Kind("a storage node's software", _DUALPATH),
    "supervisor": Kind("the console's supervisor", _consoles),
    "runnerd": Kind("the console's runnerd", _consoles),
    "web": Kind("the console's web process", _consoles),
    "worker": Kind("the console's worker", _consoles),
}


def _look_at_a_run(experiment: str, overrides: tuple[str, ...]) -> Sizes:
    with tempfile.TemporaryDirectory() as place:
        words = ["run", str(EXPERIMENTS / experiment), "--on", "mininet", "--out", place]
        settings = [word for override in ("nodes=namespace", *overrides) for word in ("--set", override)]
        conductor = subprocess.Popen(
            [sys.executable, "-m", "testbed.command", *words, *settings],
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


def _sizes(folder: Path, conductor: int) -> Sizes:
    sizes: Sizes = {"conductor": [_pss_mib(conductor)]}
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


def _look_at_a_console() -> Sizes:
    # Not below /tmp: the service user must get there.
    with tempfile.TemporaryDirectory(prefix="looplane-bench-", dir="/var/tmp") as place:
        state = Path(place)
        state.chmod(0o755)
        try:
            told = _looplane(state, "up", "--port", "0", "--detach")
            if told.returncode:
                last = (told.stderr.strip().splitlines() or ["no word"])[-1]
                raise CommandError(f"bench: the console did not come up: {last}", ExitCode.ERRORED)
            time.sleep(2.0)  # the worker has made its threads
            supervisor = int((state / "run" / "supervisor.pid").read_text())
            children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
            services = {_service_of(int(pid)): [_pss_mib(int(pid))] for pid in children}
            return {"supervisor": [_pss_mib(supervisor)], **services}
        finally:
            _looplane(state, "stop")


def _looplane(state: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "testbed.command", *words], cwd=SOURCE, env={**os.environ, "LOOPLANE_STATE": str(state)},
        capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False,
    )  # fmt: skip


def _service_of(pid: int) -> str:
    """What the supervisor calls its child."""
    words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    modules = {"topologies.runnerd": "runnerd", "webui.serve": "web", "celery": "worker"}
    return next((name for module, name in modules.items() if module in words), "other")


def _pss_mib(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    return 0.0
