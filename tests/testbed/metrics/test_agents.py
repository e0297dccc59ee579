from __future__ import annotations

from testbed.events.kv_events import AgentFinished, AgentStarted
from testbed.metrics.agents import AgentFold, AgentState, half_ended, job_time, job_times
from testbed.metrics.fold import Folding
from testbed.units import MILLISECOND as MS
from tests.testbed.metrics.stories import Story


def of(story: Story) -> AgentState:
    found: AgentState = Folding({"a": AgentFold()}).take_all(story.records()).result("a")
    return found


def started(name: str, scheduled_ms: int = 0) -> AgentStarted:
    return AgentStarted(name, 3, scheduled_ms * MS)


def test_the_run_goes_from_the_first_scheduled_start_to_the_last_end() -> None:
    story = Story().at(12, "client0", started("a0000", 10), started("a0001", 11))
    story.at(50, "client0", AgentFinished("a0000", "finished", 3, 40 * MS))
    assert job_time(of(story)) is None, "an agent is still at work"
    found = of(story.at(80, "client0", AgentFinished("a0001", "finished", 3, 69 * MS)))
    assert job_time(found) == 70 * MS
    assert job_times(found) == [40 * MS, 69 * MS]


def test_an_agent_that_gave_up_ends_the_run_and_is_in_no_distribution() -> None:
    story = Story().at(1, "c", started("a0"), started("a1"))
    story.at(20, "c", AgentFinished("a0", "finished", 3, 20 * MS)).at(
        30, "c", AgentFinished("a1", "failed", 1, 30 * MS)
    )
    found = of(story)
    assert (job_time(found), job_times(found)) == (30 * MS, [20 * MS])
    assert found.agents["a1"].answered == 1


def test_half_of_the_agents_are_at_work_until_the_one_in_the_middle_ends() -> None:
    story = Story()
    for number, end in enumerate((30, 10, 20, 40)):
        story.at(0, "c", started(f"a{number}")).at(end, "c", AgentFinished(f"a{number}", "finished", 3, end * MS))
    assert half_ended(of(story)) == 30 * MS
    assert half_ended(AgentState()) is None


def test_an_end_without_a_beginning_is_nobodys() -> None:
    found = of(Story().at(5, "c", AgentFinished("a9", "finished", 1, 5)))
    assert found.agents == {}
    assert job_time(found) is None
