"""Who waited for a CPU, and who was stopped, of real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from testbed.events.fidelity_events import WaitMeasured
from topologies import silicon
from topologies.process_meter import ProcessMeter

LOOP = "import os, sys\nos.sched_setaffinity(0, [int(sys.argv[1])])\nwhile True: pass"


@pytest.fixture
def loops() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two endless loops on one core."""
    core = str(min(os.sched_getaffinity(0)))
    started = [subprocess.Popen([sys.executable, "-c", LOOP, core]) for _ in range(2)]
    time.sleep(0.3)
    yield started
    for process in started:
        process.kill()
        process.wait(10)


def measured(meter: ProcessMeter, seconds: float) -> dict[str, WaitMeasured]:
    list(meter.measure())
    time.sleep(seconds)
    meter.look()
    return {event.process: event for event in meter.measure()}


def test_two_that_share_a_core_wait_for_each_other(loops: list[subprocess.Popen[bytes]]) -> None:
    meter = ProcessMeter({"node a": [loops[0].pid], "nic a": [loops[1].pid], "node gone": []})
    found = measured(meter, 1.0)
    assert set(found) == {"node a", "nic a"}
    for event in found.values():
        # Others may use the core as well; then both wait for longer still.
        assert event.waited > 0.3 * event.interval
        assert 0 < event.ran < 0.7 * event.interval
        assert (event.looks, event.stopped) == (1, 0)


def test_who_loses_its_priority_is_seen(loops: list[subprocess.Popen[bytes]]) -> None:
    mine, other = (loop.pid for loop in loops)
    meter = ProcessMeter({"node a": [mine], "nodes": [mine, other]})

    def first() -> dict[str, bool]:
        return {event.process: event.fifo for event in meter.measure()}

    assert first() == {"node a": False, "nodes": False}
    loops[1].send_signal(signal.SIGSTOP)  # an endless loop under SCHED_FIFO takes a whole core
    loops[0].send_signal(signal.SIGSTOP)
    assert silicon.favour([mine], silicon.NIC)
    assert first() == {"node a": True, "nodes": False}
    assert silicon.favour([other], silicon.NIC)
    assert first() == {"node a": True, "nodes": True}


def test_one_that_is_stopped_waits_for_nothing_and_is_seen(loops: list[subprocess.Popen[bytes]]) -> None:
    meter = ProcessMeter({"node a": [loops[0].pid], "nic a": [loops[1].pid]})
    loops[0].send_signal(signal.SIGSTOP)
    time.sleep(0.1)
    found = measured(meter, 0.5)
    assert (found["node a"].stopped, found["nic a"].stopped) == (1, 0)
    assert found["node a"].ran == 0
    loops[0].kill()
    loops[0].wait(10)
    assert measured(meter, 0.1)["node a"].waited == 0
