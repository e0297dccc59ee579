"""Measures what neighbours do to a host loop here: `python -m topologies.contention_bench`, the TOML of a profile.

The rows of fixtures/profiles/host-contention.toml, which simulations with neighbours draw from
(`testbed.serving.host_work.Contention`). Probe and neighbours run on the host's CPU set of a two-core plan (the first
core), each container's part in a session of its own: the kernel is as fair to a session as to a container (autogroup).
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from testbed.experiment.plan import NeighbourPlan
from testbed.serving.host_loop import read_host_loops
from topologies.processes import die_with_parent, module_command, python_environment

PER_CONTAINER = 3
"""Threads of a container, so that more threads are more tenants, as in the shipped experiments."""
LADDER = (4, 12, 24)
"""Threads of pbzip2; 12 and 24 are those of the paper's Table 1."""
OTHERS = (("compile", 12), ("memory", 12))
PAUSE_US = 6_000
"""The shortest decode step that is modelled (Llama-3 8B at batch 1)."""
_WARM_S = 3.0
_PATIENCE_S = 60.0


def measure(seconds: float, core: int) -> tuple[list[dict[str, Any]], dict[str, dict[str, Any]]]:
    """(rows of pbzip2 by threads, one row of each other kind). Raises OSError, TimeoutError, CalledProcessError."""
    loop = read_host_loops().loops["vllm"]
    command = module_command(
        "emulators.contention_probe", "--work-us", str(loop.serial_us + loop.hidden_us), "--pause-us", str(PAUSE_US),
        "--seconds", str(seconds),
    )  # fmt: skip
    with _started(command, core, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as probe:
        _read(probe)
        ladder = [_row(probe, "pbzip2", threads, core) for threads in LADDER]
        others = {kind: _row(probe, kind, threads, core) for kind, threads in OTHERS}
    return ladder, others


def _row(probe: subprocess.Popen[bytes], kind: str, threads: int, core: int) -> dict[str, Any]:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="looplane-contention-")))
        neighbour = NeighbourPlan(kind, kind, threads, max(1, threads // PER_CONTAINER), 32)
        for number, share in enumerate(neighbour.shares()):
            report = folder / f"{number}.json"
            command = module_command(
                "emulators.interference", "--kind", kind, "--threads", str(share), "--working-set-mib", "32",
                "--report", str(report), "--limit-s", str(_PATIENCE_S * 2),
            )  # fmt: skip
            stack.enter_context(_started(command, core))
        limit = time.monotonic() + _PATIENCE_S
        while len(list(folder.glob("*.json"))) < len(neighbour.shares()):
            if time.monotonic() > limit:
                raise TimeoutError(f"{kind} has not begun to work after {_PATIENCE_S:.0f} s")
            time.sleep(0.05)
        time.sleep(_WARM_S)
        assert probe.stdin is not None
        probe.stdin.write(b"\n")
        probe.stdin.flush()
        found: dict[str, Any] = {"threads": threads, **json.loads(_read(probe))}
        return found


def profile(seconds: float, core: int) -> str:
    """The whole file."""
    ladder, others = measure(seconds, core)
    steps = ", ".join(f"{row['threads']} threads: {row['steps']} steps" for row in ladder)
    source = (
        f"./looplane calibrate --contention on {_machine()}, {datetime.now(UTC).date().isoformat()}: "
        f"{seconds:g} s a row, {PER_CONTAINER} threads a container, one core ({steps})"
    )
    lines = [
        "# What neighbours do to a host-driven server's loop, as measured. testbed/serving/host_work.py explains the",
        "# fields. `rows` are pbzip2's, by threads; simulations draw from them. `kinds` are for comparison.",
        f"source = {json.dumps(source)}",
        "",
    ]
    for row in ladder:
        lines += ["[[rows]]", f"threads = {row['threads']}", *_fields(row), ""]
    for kind, row in others.items():
        lines += [f"[kinds.{kind}]", f"threads = {row['threads']}", *_fields(row), ""]
    return "\n".join(lines)


def _fields(row: dict[str, Any]) -> Iterator[str]:
    for name in ("slowdown", "stalls_per_ms"):
        yield f"{name} = {row[name]}"
    for name in ("stall_ms", "wake_ms"):
        yield f"{name} = [{', '.join(f'{value:g}' if value % 1 else f'{value:.1f}' for value in row[name])}]"


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    model = next(models, platform.machine())
    return f"{model}, {len(os.sched_getaffinity(0))} cores, Linux {platform.release().split('-')[0]}"


@contextmanager
def _started(command: Sequence[str], core: int, **pipes: Any) -> Iterator[subprocess.Popen[bytes]]:
    def prepare() -> None:
        die_with_parent()
        os.sched_setaffinity(0, {core})

    with subprocess.Popen(
        command, start_new_session=True, preexec_fn=prepare, env=python_environment(), **pipes
    ) as process:
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()


def _read(probe: subprocess.Popen[bytes]) -> str:
    assert probe.stdout is not None
    line = probe.stdout.readline().decode()
    if not line:
        raise OSError(f"the probe has ended with {probe.wait()}")
    return line


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=12.0, help="of each row")
    options = parser.parse_args(arguments)
    try:
        print(profile(options.seconds, min(os.sched_getaffinity(0))))
    except (OSError, TimeoutError) as fault:
        print(f"this host cannot be measured: {fault}", file=sys.stderr)
        return 3
    return 0


if __name__ == "__main__":
    sys.exit(main())
