"""A decode loop's host work on this host's CPU, and how long it really takes: alone first, then beside whatever runs.

`python -m emulators.contention_probe --work-us 4500 --pause-us 6000 --seconds 10`, started by
`topologies.contention_bench`. The work is a host-driven server's (`emulators.host_churn`), as large as vLLM's for a
step (host-loops.toml); the pause is the GPU's. It says `ready` once it knows how long the work takes alone, and
measures whenever a line comes; each measurement is one line of JSON: `testbed.serving.host_work.Contention` without
`threads`.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple

from emulators.host_churn import Churn
from emulators.host_processor import calibrate

ROUNDS = 8
"""Of churn between two readings of the clocks: about 20 us, so that a stall is placed that well."""
STALL_NS = 60_000
"""Wall time beyond CPU time that counts as a stall: more than an interrupt takes, less than a slice of the kernel's."""
QUANTILES = 40
"""Equal parts into which stalls and waits are cut."""


class Readings(NamedTuple):
    """One measurement, in nanoseconds."""

    cpu: int
    """CPU time of all work."""
    alone: float
    """What the same work takes alone."""
    stalls: list[int]
    wakes: list[int]
    """How late each step began after its pause."""


class Probe:
    """The loop. `work_ns` is the host work of a step, `pause_ns` what the GPU takes."""

    def __init__(self, work_ns: int, pause_ns: int) -> None:
        self._churn = Churn()
        self._rounds_per_ns = calibrate(self._churn).rounds_per_ms / 1e6
        self._work = max(ROUNDS, round(work_ns * self._rounds_per_ns))
        self._pause = pause_ns

    def measure(self, seconds: float) -> Readings:
        """Steps for so long."""
        wall, own = time.monotonic_ns, time.thread_time_ns
        end = wall() + round(seconds * 1e9)
        stalls: list[int] = []
        wakes: list[int] = []
        spent = rounds = 0
        while True:
            due = wall() + self._pause
            time.sleep(self._pause / 1e9)
            begun, began_cpu = wall(), own()
            wakes.append(max(0, begun - due))
            at, cpu = begun, began_cpu
            for _ in range(self._work // ROUNDS):
                self._churn.rounds(ROUNDS)
                now, now_cpu = wall(), own()
                lost = (now - at) - (now_cpu - cpu)
                if lost > STALL_NS:
                    stalls.append(lost)
                at, cpu = now, now_cpu
                rounds += ROUNDS
            spent += cpu - began_cpu
            if at > end:
                return Readings(spent, rounds / self._rounds_per_ns, stalls, wakes)


def contention(found: Readings, alone: Readings) -> dict[str, object]:
    """What the neighbours did: `found` beside them, less what the same loop had without them."""
    usual = sorted(alone.wakes)[len(alone.wakes) // 2]
    slowdown = (found.cpu / found.alone) / (alone.cpu / alone.alone)
    return {
        "slowdown": round(max(1.0, slowdown), 4),
        "stalls_per_ms": round(len(found.stalls) / (found.cpu / 1e6), 5),
        "stall_ms": quantiles(found.stalls),
        "wake_ms": quantiles([max(0, wake - usual) for wake in found.wakes]),
        "steps": len(found.wakes),
    }


def quantiles(values: list[int], parts: int = QUANTILES) -> list[float]:
    """The smallest, the largest, and what lies between, equally spaced in number; milliseconds."""
    if len(set(values)) < 2:
        return [round(sum(set(values)) / 1e6, 4)]
    ordered = sorted(values)
    return [round(ordered[(len(ordered) - 1) * part // parts] / 1e6, 4) for part in range(parts + 1)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Calibrates, then measures at each line of standard input. Ends with it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--work-us", type=float, required=True)
    parser.add_argument("--pause-us", type=float, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    options = parser.parse_args(arguments)
    probe = Probe(round(options.work_us * 1000), round(options.pause_us * 1000))
    alone = probe.measure(options.seconds / 2)
    print("ready", flush=True)
    for _ in sys.stdin:
        print(json.dumps(contention(probe.measure(options.seconds), alone)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
