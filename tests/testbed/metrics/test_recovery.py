"""Outages are measured from the death, whoever said so, to what ring and clients see again."""

from __future__ import annotations

from testbed.events.blink_events import WatchdogFired, WatchdogGaveUp
from testbed.events.fidelity_events import FaultInjected
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
    asked = outage().at(305, "dpu0", WatchdogFired(0, 205 * MS, 2)).at(400, "dpu0", WatchdogGaveUp(1, 2))
    found = fold(asked)
    assert len(found.outages) == 1
    assert (found.fired, found.gave_up) == (2, 1)
