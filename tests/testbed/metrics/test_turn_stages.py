from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from testbed.events.client_events import RequestSent, TokenReceived
from testbed.events.kv_events import TurnStage
from testbed.metrics.fold import Folding
from testbed.metrics.turn_stages import PARTS, StageFold, StageState, TurnTimes, parts_of
from testbed.units import MILLISECOND as MS
from tests.testbed.metrics.agentic_stories import agentic_run
from tests.testbed.metrics.stories import Story, small_run


def of(story: Story) -> StageState:
    found: StageState = Folding({"s": StageFold()}).take_all(story.records()).result("s")
    return found


def test_the_parts_of_a_turn_are_those_of_its_story() -> None:
    found: StageState = Folding({"s": StageFold()}).take_all(agentic_run(1, 2)).result("s")
    for turn in found.turns.values():
        assert parts_of(turn) == {
            "scheduling": 2 * MS, "allocation": MS, "reading": 4 * MS, "prefill": 8 * MS, "rest": 3 * MS,
        }  # fmt: skip


def test_a_stage_that_was_never_told_lasts_no_time() -> None:
    story = Story().at(1, "c", RequestSent("t", MS, 0, 1, 1)).at(4, "s", TurnStage("t", "placed"))
    story.at(9, "p", TurnStage("t", "prefilled")).at(10, "c", TokenReceived("t", 0))
    (turn,) = of(story).turns.values()
    assert parts_of(turn) == {"scheduling": 3 * MS, "allocation": 0, "reading": 0, "prefill": 5 * MS, "rest": MS}


def test_a_turn_that_was_placed_again_counts_by_its_last_stages() -> None:
    story = Story().at(0, "c", RequestSent("t", 0, 0, 1, 1))
    for t, stage in ((1, "placed"), (2, "allocated"), (5, "placed"), (6, "allocated"), (7, "ready"), (9, "prefilled")):
        story.at(t, "s", TurnStage("t", stage))
    story.at(10, "c", TokenReceived("t", 0)).at(12, "c", TokenReceived("t", 1))
    (turn,) = of(story).turns.values()
    assert parts_of(turn) == {"scheduling": 5 * MS, "allocation": MS, "reading": MS, "prefill": 2 * MS, "rest": MS}


def test_a_turn_without_a_token_has_no_parts_yet() -> None:
    (turn,) = of(Story().at(0, "s", TurnStage("t", "placed"))).turns.values()
    assert parts_of(turn) is None


def test_requests_of_other_systems_are_no_turns() -> None:
    found: StageState = Folding({"s": StageFold()}).take_all(small_run()).result("s")
    assert found.turns == {}


@given(
    st.integers(0, 50),
    st.dictionaries(st.sampled_from(["placed", "allocated", "reading", "ready", "prefilled"]), st.integers(-9, 90)),
    st.integers(0, 50),
)
def test_the_parts_add_up_to_the_time_to_first_token_whatever_the_log_says(
    sent: int, stages: dict[str, int], ttft: int
) -> None:
    parts = parts_of(TurnTimes(sent, stages, sent + ttft))
    assert parts is not None
    assert tuple(parts) == PARTS
    assert sum(parts.values()) == ttft
    assert min(parts.values()) >= 0
