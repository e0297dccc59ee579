"""Priorities are read back from the kernel; what the kernel does not know is passed over."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from topologies import silicon
from topologies.processes import fifo_allowed

pytestmark = pytest.mark.root

SLEEPER = "import threading, time; threading.Thread(target=time.sleep, args=(60,), daemon=True).start(); time.sleep(60)"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    if not fifo_allowed():
        pytest.skip("this machine allows no SCHED_FIFO, not even to root")
    process = subprocess.Popen([sys.executable, "-c", f"print(flush=True)\n{SLEEPER}"], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    yield process
    process.kill()
    process.communicate()


def test_every_thread_is_favoured(sleeper: subprocess.Popen[bytes]) -> None:
    assert silicon.favour([sleeper.pid], silicon.OF_ROLE["gpu"])
    threads = [int(name) for name in os.listdir(f"/proc/{sleeper.pid}/task")]
    assert all(os.sched_getscheduler(thread) == os.SCHED_FIFO for thread in threads)
    assert {os.sched_getparam(thread).sched_priority for thread in threads} == {silicon.OF_ROLE["gpu"]}


def test_a_process_that_has_ended_is_passed_over(sleeper: subprocess.Popen[bytes]) -> None:
    sleeper.kill()
    sleeper.wait()
    assert silicon.favour([sleeper.pid], 5)


def test_the_host_is_never_favoured_and_nics_come_first() -> None:
    assert "host" not in silicon.OF_ROLE
    assert max(silicon.OF_ROLE.values()) < silicon.NIC
    assert silicon.OF_ROLE["gpu"] > silicon.OF_ROLE["dpu"], "a step must not wait for a batch of events"
