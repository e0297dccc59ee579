"""A lone high frame at a port that a low lane saturates, and that the figures of `looplane bench` can be had."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator

import pytest

from topologies import lane_bench
from topologies.fabric import Fabric

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("unchanged_host")]


@pytest.fixture
def fabric() -> Iterator[Fabric]:
    with lane_bench.network() as made:
        yield made


def test_a_lone_high_frame_waits_for_one_low_frame_at_most(fabric: Fabric, soak: bool) -> None:
    """By the order of frames at the port, which no busy neighbour can disturb; by time, as the median."""
    idle, loaded = lane_bench.waits(fabric, rounds=10 if soak else 1)
    base = statistics.median(wait.nanoseconds for wait in idle)
    middle = statistics.median(wait.nanoseconds for wait in loaded)
    assert len(loaded) == len(idle)
    assert max(wait.overtaken for wait in idle) == 0
    assert max(wait.overtaken for wait in loaded) <= 1
    # And the low lane was there: on average a frame comes in the middle of a slot.
    assert 0.1 < (middle - base) / lane_bench.SLOT_NS <= 1


def test_a_low_frame_among_high_ones_waits_for_many(fabric: Fabric, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other way round, so that the test above could fail."""
    monkeypatch.setattr(lane_bench, "HIGH", 2)
    monkeypatch.setattr(lane_bench, "LOW", 0)
    _, loaded = lane_bench.waits(fabric, count=8, rounds=1)
    assert max(wait.overtaken for wait in loaded) > 10


def test_the_figures(capsys: pytest.CaptureFixture[str]) -> None:
    assert lane_bench.main(["check"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert len(figures) == 500
    assert min(figures) > 0
