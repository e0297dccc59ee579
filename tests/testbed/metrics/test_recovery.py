"""Outages are measured from the death, whoever said so, to what ring and clients see again."""

from __future__ import annotations

import pytest

from testbed.events.blink_events import SchedulerRestarted, WatchdogFired, WatchdogGaveUp
from testbed.events.client_events import RequestFinished, TokenReceived
from testbed.events.fidelity_events import FaultInjected
from testbed.events.schema import RequestArrived, SlotClaimed, TokensPublished
from testbed.experiment.recovery_figures import recovery_figures, recovery_lines
from testbed.metrics.fold import Folding
from testbed.metrics.recovery import RecoveryFold, RecoveryState
from tests.testbed.metrics.stories import MS, Story, outage


def fold(story: Story) -> RecoveryState:
    found: RecoveryState = Folding({"recovery": RecoveryFold()}).take_all(story.records()).result("recovery")
    return found


def test_a_death_that_the_bench_told() -> None:
    found = fold(outage())
    (seen,) = found.outages
    assert (seen.began, seen.fired, seen.back) == (100 * MS, 300 * MS, 330 * MS)
    assert seen.streams == [240 * MS]
    figures = recovery_figures([found, fold(outage())])
    assert figures is not None
    assert (figures.outages, figures.restarts, figures.resumed, figures.interrupted) == (2, 2, 4, 2)
    assert (figures.detect_ms.worst, figures.service_back_ms.mean, figures.streams_back_ms.n) == (200, 230, 2)
    assert [head for head, _ in recovery_lines(figures)] == ["recovery", "noticed", "serving", "streaming"]


def test_a_death_that_nobody_told_begins_with_the_last_sign_of_life() -> None:
    (seen,) = fold(outage(told=False)).outages
    assert (seen.kind, seen.began, seen.back) == ("silence", 100 * MS, 330 * MS)


def test_a_node_that_is_killed_whole_is_no_outage_of_a_scheduler() -> None:
    assert recovery_figures([fold(Story().at(1, "bench", FaultInjected("pe0", "kill")))]) is None


def test_a_second_question_for_the_same_death_is_the_same_outage() -> None:
    asked = outage().at(305, "dpu0", WatchdogFired(0, 205 * MS, 2, "gpu0"))
    asked.at(400, "dpu0", WatchdogGaveUp(1, 2, "gpu0"))
    found = fold(asked)
    assert len(found.outages) == 1
    assert (found.fired, found.gave_up) == (2, 1)


def two_gpus(*, told: bool) -> Story:
    """A stream on each of two GPUs; the first one's scheduler dies at 100 ms and is back at 330."""
    story = Story()
    for request, gpu in ((1, "gpu0"), (2, "gpu1")):
        story.at(80, "dpu0", RequestArrived(request, f"q{request}", 5, 9)).at(85, gpu, SlotClaimed(request, 0, 1, 1))
        story.at(90, "client0", TokenReceived(f"q{request}", 0))
    story.at(100, "bench", FaultInjected("gpu0", "kill-scheduler"))
    story.at(300, "dpu0", WatchdogFired(0, 200 * MS, 1, "gpu0" if told else ""))
    story.at(305, "gpu1", TokensPublished(4, (2,), (3,))).at(306, "client0", TokenReceived("q2", 1))
    story.at(310, "gpu0", SchedulerRestarted(1, 1, 0, 0, 0))
    # The other GPU's tokens end nobody's outage.
    story.at(315, "gpu1", TokensPublished(5, (2,), (4,))).at(316, "client0", TokenReceived("q2", 2))
    story.at(330, "gpu0", TokensPublished(9, (1,), (2,))).at(340, "client0", TokenReceived("q1", 1))
    return story.at(350, "client0", RequestFinished("q1", 2, "length"), RequestFinished("q2", 3, "length"))


@pytest.mark.parametrize("told", [True, False])
def test_an_outage_is_one_gpus_and_the_streams_of_another_go_on(told: bool) -> None:
    found = fold(two_gpus(told=told))
    (seen,) = found.outages
    assert (seen.gpu, seen.fired, seen.restarted, seen.back) == ("gpu0", 300 * MS, 310 * MS, 330 * MS)
    assert seen.streams == [240 * MS]
    assert (seen.waiting, found.running, found.gpus) == ({}, {}, {})


def test_two_gpus_without_a_scheduler_at_once_are_two_outages() -> None:
    story = two_gpus(told=True).at(250, "bench", FaultInjected("gpu1", "hang-scheduler"))
    story.at(320, "dpu0", WatchdogFired(0, 200 * MS, 1, "gpu1")).at(322, "gpu1", SchedulerRestarted(1, 0, 0, 0, 0))
    story.at(332, "gpu1", TokensPublished(6, (2,), (5,)))
    first, second = fold(story).outages
    assert (first.gpu, first.fired, first.back) == ("gpu0", 300 * MS, 330 * MS)
    assert (second.gpu, second.fired, second.back) == ("gpu1", 320 * MS, 332 * MS)
