"""The wall clock's arithmetic: exact conversion, beats that skip, lateness by nearest rank."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.clocks.wall import Beat, Epoch, Lateness, WallTime, nearest_rank

DILATIONS = st.one_of(
    st.sampled_from([1.0, 10.0, 0.1, 3.7, 1e-3, 1000.0]),
    st.floats(min_value=1e-3, max_value=1e4, allow_nan=False),
)


@settings(max_examples=200, deadline=None)
@given(true=st.integers(-(10**13), 10**15), dilation=DILATIONS, epoch=st.integers(0, 2**62))
def test_monotonic_is_the_first_reading_at_which_the_moment_has_come(true: int, dilation: float, epoch: int) -> None:
    wall = WallTime(Epoch(epoch, dilation))
    reading = wall.monotonic(true)
    assert wall.true(reading) >= true
    assert wall.true(reading - 1) < true


@settings(max_examples=100, deadline=None)
@given(readings=st.lists(st.integers(0, 2**62), min_size=2, max_size=20), dilation=DILATIONS)
def test_true_time_never_runs_backwards(readings: list[int], dilation: float) -> None:
    wall = WallTime(Epoch(2**40, dilation))
    times = [wall.true(reading) for reading in sorted(readings)]
    assert times == sorted(times)


def test_time_is_stretched_by_the_dilation() -> None:
    wall = WallTime(Epoch(1_000, 10.0))
    assert wall.true(1_000) == 0
    assert wall.true(11_000) == 1_000
    assert wall.monotonic(1_000) == 11_000
    assert wall.true(990) == -1


@pytest.mark.parametrize("dilation", [0.0, -1.0, math.inf, math.nan])
def test_a_dilation_that_is_no_positive_number_is_refused(dilation: float) -> None:
    with pytest.raises(ValueError, match="dilation"):
        Epoch(0, dilation)


def test_the_barrier_file_is_read_strictly() -> None:
    text = b'{"epoch_monotonic_ns": 5, "dilation": 2, "extra": 1}'
    with pytest.raises(msgspec.ValidationError, match="extra"):
        msgspec.json.decode(text, type=Epoch)


def test_a_beat_comes_once_a_period_and_skips_what_was_missed() -> None:
    beat = Beat(100, start=1_000)
    assert not beat.due(1_099)
    assert beat.due(1_100)
    assert not beat.due(1_199)
    assert beat.due(1_555)
    assert not beat.due(1_599)
    assert beat.due(1_600)


@settings(max_examples=100, deadline=None)
@given(period=st.integers(1, 10**9), steps=st.lists(st.integers(0, 10**10), max_size=20))
def test_a_beat_is_never_due_twice_in_one_period(period: int, steps: list[int]) -> None:
    beat = Beat(period, start=0)
    now, beats = 0, 0
    for step in steps:
        now += step
        beats += beat.due(now)
        assert not beat.due(now)
        assert now < beat.next <= now + period
    assert beats <= now // period


def test_a_beat_needs_a_period() -> None:
    with pytest.raises(ValueError, match="period"):
        Beat(0, 0)


def test_lateness_is_the_nearest_rank_and_starts_again() -> None:
    lateness = Lateness(threshold=500)
    for value in range(1, 101):
        lateness.add(value)
    measured = lateness.measured()
    assert (measured.wakes, measured.p50, measured.p99, measured.worst) == (100, 50, 99, 100)
    assert lateness.measured().wakes == 0


def test_only_the_worst_wake_over_the_threshold_is_told() -> None:
    lateness = Lateness(threshold=500)
    lateness.add(500)
    assert lateness.late() is None
    for value in (501, 900, 700, -20):
        lateness.add(value)
    assert lateness.late() == 900
    assert lateness.late() is None
    assert lateness.measured().wakes == 5


@settings(max_examples=100, deadline=None)
@given(values=st.lists(st.integers(0, 10**9), min_size=1, max_size=50), percent=st.sampled_from([50, 90, 99, 100]))
def test_nearest_rank_is_the_least_value_that_covers(values: list[int], percent: int) -> None:
    ordered = sorted(values)
    found = nearest_rank(ordered, percent)
    assert sum(value <= found for value in ordered) * 100 >= percent * len(ordered)
    assert sum(value < found for value in ordered) * 100 < percent * len(ordered)
