from __future__ import annotations

from testbed.events import schema
from testbed.metrics.fold import Folding
from testbed.metrics.outcome import SHOWN_FAULTS, StoryFold, StoryState
from tests.testbed.metrics.stories import MS, Story, small_run, started


def told(story: Story) -> StoryState:
    found: StoryState = Folding({"s": StoryFold()}).take_all(story.records()).result("s")
    return found


def test_a_run_that_ended_well() -> None:
    found = Folding({"s": StoryFold()}).take_all(small_run(requests=2)).result("s")
    assert (found.system, found.clock, found.seed, found.requests) == ("blink", "simulated", 7, 2)
    assert (found.started, found.finished, found.outcome) == (0, 400 * MS, "passed")


def test_a_run_that_never_finished_has_no_outcome() -> None:
    found = told(Story().at(0, "bench", started("wall", 4.0), schema.StageEntered("running")))
    assert (found.outcome, found.finished, found.stage, found.dilation) == ("", None, "running", 4.0)


def test_nodes_and_their_last_words() -> None:
    story = Story().at(-5, "dpu0", schema.NodeReady("dpu", 10)).at(-4, "gpu0", schema.NodeReady("gpu", 11))
    story.at(9, "dpu0", schema.NodeStopped(1, "KeyError: 'slot'")).at(9, "gpu0", schema.NodeStopped(0))
    story.at(9, "bench", schema.NodeStopped(137))
    found = told(story)
    assert found.nodes == {"dpu0": "dpu", "gpu0": "gpu"}
    assert found.died == {"dpu0": "KeyError: 'slot'", "bench": "exit code 137"}


def test_faults_are_counted_without_end_and_kept_up_to_a_limit() -> None:
    story = Story()
    for t in range(SHOWN_FAULTS + 5):
        story.at(t, "dpu0", schema.VerbFailed("write", "gpu0", "RETRY_EXCEEDED"))
    found = told(story)
    assert found.fault_count == SHOWN_FAULTS + 5
    assert len(found.faults) == SHOWN_FAULTS
    assert found.faults[0] == "dpu0: write to gpu0: RETRY_EXCEEDED"
