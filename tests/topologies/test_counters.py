"""Counters of processes: what the kernel counts rises with what is done; what the machine lacks is named."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from testbed.experiment.host_figures import COUNTERS
from topologies.counters import COUNTED, KERNEL, OF_MODELS, CounterMeter, absent, intel_model, scaled

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
    assert set(event.counters) | set(event.absent) == {*KERNEL, *COUNTED}
    assert not set(event.counters) & set(event.absent)
    counts = dict(zip(event.counters, event.counts, strict=True))
    assert counts.get("instructions", 1_000_000) >= 1_000_000
    assert event.absent == absent()


def test_every_counter_is_a_metric() -> None:
    assert set(COUNTERS) == {*KERNEL, *COUNTED}


def test_a_counter_that_took_turns_is_scaled_to_the_whole_time() -> None:
    assert scaled(1_000, 500, 500) == 1_000
    assert scaled(1_000, 900, 300) == 3_000
    assert scaled(0, 900, 0) == 0, "it never had its turn"


CPU = "processor\t: 0\nvendor_id\t: {}\ncpu family\t: {}\nmodel\t\t: {}\nflags\t: x\n\nprocessor\t: 1\nmodel\t: 1\n"


@pytest.mark.parametrize(
    ("vendor", "family", "model", "found"),
    [("GenuineIntel", 6, 106, 0x6A), ("GenuineIntel", 15, 106, None), ("AuthenticAMD", 25, 1, None)],
)
def test_only_intels_family_6_has_a_model_here(vendor: str, family: int, model: int, found: int | None) -> None:
    assert intel_model(CPU.format(vendor, family, model)) == found
    assert intel_model("") is None


def test_the_papers_processor_counts_page_walks_and_stalls() -> None:
    """Xeon Gold 6336Y is Ice Lake-SP: event 0x08 mask 0x10 of at least 1, event 0xa3 mask 0x06 of at least 6."""
    assert {name: hex(models[0x6A]) for name, models in OF_MODELS.items()} == {
        "page-walk-cycles": "0x1001008", "L3-stall-cycles": "0x60006a3",
    }  # fmt: skip
