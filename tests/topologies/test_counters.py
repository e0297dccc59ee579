"""Counters of processes: what the kernel counts rises with what is done; what the machine lacks is named."""

from __future__ import annotations

import os
import subprocess
import sys

from topologies.counters import KERNEL, PROCESSOR, CounterMeter, absent

CHURN = """
import mmap, time
print(flush=True)
while input() == "go":
    for _ in range(50):
        area = mmap.mmap(-1, 1 << 20); area[::4096] = bytes(256); area.close(); time.sleep(0.001)
    print(flush=True)
"""


def test_faults_and_switches_of_a_process_are_counted_between_two_looks() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHURN], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        meter = CounterMeter({"core": process.pid})
        (still,) = meter.measure()
        process.stdin.write("go\n")
        process.stdin.flush()
        process.stdout.readline()
        (busy,) = meter.measure()
        process.communicate("stop\n")
        (ended,) = meter.measure()
        meter.close()
    quiet, loud = (dict(zip(event.counters, event.counts, strict=True)) for event in (still, busy))
    assert set(KERNEL) <= set(loud)
    assert quiet["page-faults"] < 500
    assert loud["page-faults"] >= 50 * 256
    assert loud["context-switches"] >= 50
    assert busy.process == "core"
    assert busy.interval > 50_000_000
    assert not set(KERNEL) & set(ended.counters), "what has ended is not counted as nothing"


def test_a_counter_is_read_or_named_as_absent() -> None:
    meter = CounterMeter({"self": os.getpid()})
    sum(range(1_000_000))
    (event,) = meter.measure()
    meter.close()
    assert set(event.counters) | set(event.absent) == {*KERNEL, *PROCESSOR}
    assert not set(event.counters) & set(event.absent)
    counts = dict(zip(event.counters, event.counts, strict=True))
    assert counts.get("instructions", 1_000_000) >= 1_000_000
    assert event.absent == absent()
