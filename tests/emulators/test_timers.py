"""The kernel's timers: never early, set again, taken off, and as late as asked at most where the host allows."""

from __future__ import annotations

import os
import select
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from emulators.timers import DeadlineTimer, set_timer_slack
from testbed.units import MILLISECOND


@pytest.fixture
def timer() -> Iterator[DeadlineTimer]:
    timer = DeadlineTimer()
    yield timer
    timer.close()


def _readable(timer: DeadlineTimer, wait_s: float) -> bool:
    return bool(select.select([timer.fileno()], (), (), wait_s)[0])


def test_it_fires_at_its_moment_and_not_before(timer: DeadlineTimer) -> None:
    moment = time.monotonic_ns() + 20 * MILLISECOND
    timer.set(moment)
    assert _readable(timer, 5)
    assert time.monotonic_ns() >= moment
    timer.clear()
    assert not _readable(timer, 0.05), "it fired twice"


@pytest.mark.parametrize("moment", [-5, 0, 1])
def test_a_moment_that_has_passed_fires_at_once(timer: DeadlineTimer, moment: int) -> None:
    timer.set(moment)
    assert _readable(timer, 5)


def test_the_last_moment_set_counts(timer: DeadlineTimer) -> None:
    timer.set(time.monotonic_ns() + 10 * MILLISECOND)
    timer.set(time.monotonic_ns() + 3600 * 1000 * MILLISECOND)
    assert not _readable(timer, 0.05)
    timer.set(1)
    assert _readable(timer, 5)
    timer.set(None)
    assert not _readable(timer, 0.05)


def test_clearing_what_has_not_fired_and_closing_twice_are_harmless() -> None:
    before = len(os.listdir("/proc/self/fd"))
    timer = DeadlineTimer()
    timer.clear()
    timer.close()
    timer.close()
    assert len(os.listdir("/proc/self/fd")) == before


def test_slack_is_what_the_kernel_says_afterwards() -> None:
    path = Path(f"/proc/{os.getpid()}/timerslack_ns")
    before = int(path.read_text())
    try:
        set_timer_slack(1)
        assert int(path.read_text()) == 1
    finally:
        set_timer_slack(before)
