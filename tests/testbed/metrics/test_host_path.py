from __future__ import annotations

from testbed.events import schema
from testbed.events.host_events import HostOperation
from testbed.experiment.host_figures import host_figures, host_lines
from testbed.metrics.fold import Folding
from testbed.metrics.host_path import HostPathFold, HostPathState
from tests.testbed.metrics.host_stories import US, host_story
from tests.testbed.metrics.stories import Story


def folded(told: Story) -> HostPathState:
    found: HostPathState = Folding({"h": HostPathFold()}).take_all(told.records()).result("h")
    return found


def test_a_step_is_the_work_of_core_and_worker_between_two_launches() -> None:
    found = host_figures([folded(host_story())])
    assert found is not None
    assert (found.step_us.n, found.step_us.p50) == (200, 4510)
    assert found.step_us.p99 == 45_100
    assert (found.inflation.p50, found.inflation.p99) == (1.0, 10.0)
    assert (found.launch_gap_us.p50, found.launch_gap_us.p99) == (20, 200)


def test_the_accelerators_own_time_is_apart_from_the_hosts() -> None:
    slow = host_figures([folded(host_story(slowdown=7.0))])
    assert slow is not None
    assert slow.inflation.p50 == 7.0
    assert (slow.graph_ratio, slow.graph_ratio_p99) == (1.005, 1.005)


def test_waits_and_counters_are_those_of_the_hosts_processes() -> None:
    found = host_figures([folded(host_story())])
    assert found is not None
    assert (found.wait_percent, found.cpu_percent) == (25.0, 50.0), "the GPU's waits are the verdict's affair"
    assert (found.per_s["context-switches"], found.ipc) == (100.0, 1.5)
    assert found.absent == ("iTLB-loads",)


def test_repeats_are_pooled_and_a_host_without_work_has_no_figures() -> None:
    found = host_figures([folded(host_story(1.0)), folded(host_story(3.0))])
    assert found is not None
    assert found.step_us.n == 400
    assert found.inflation.mean is not None
    assert 2 < found.inflation.mean < 3
    assert host_figures([folded(Story().at(-1, "host0", schema.NodeReady("host", 1)))]) is None


def test_what_was_before_the_epoch_is_set_up() -> None:
    told = host_story(steps=1).at(-5, "host0-worker", HostOperation("worker", "launch", 10 * US, 900 * US))
    assert folded(told).step.n == 1


def test_the_mechanism_in_words() -> None:
    found = host_figures([folded(host_story())])
    assert found is not None
    words = dict(host_lines(found, {}))
    assert words["host step"].startswith("p50 4,510 p99 45,100 us, n 200; ÷ idle p50 1.00 p99 10.00")
    assert "IPC 1.50; this machine does not count iTLB-loads" in words["counters/s"]
