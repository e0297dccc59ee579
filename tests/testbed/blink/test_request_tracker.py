from __future__ import annotations

from itertools import product

import pytest

from testbed.blink.request_tracker import STAGE_TABLE, Stage, StageMove, TrackedRequest
from testbed.blink.ring import FinishReason, Progress
from testbed.serving.requests import Request
from testbed.serving.tokens import ByteVocabulary
from testbed.serving.transitions import IllegalMove


def tracked(stage: Stage = Stage.TOKENISING) -> TrackedRequest:
    one = TrackedRequest(Request("a", "hi", 5), 1, [104, 105], ByteVocabulary())
    one.stage = stage
    return one


@pytest.mark.parametrize(("stage", "move"), list(product(Stage, StageMove)), ids=lambda value: value.name.lower())
def test_every_move_in_every_stage(stage: Stage, move: StageMove) -> None:
    one = tracked(stage)
    if (stage, move) in STAGE_TABLE.table:
        one.move(move)
        assert one.stage is STAGE_TABLE.table[stage, move]
    else:
        with pytest.raises(IllegalMove):
            one.move(move)
        assert one.stage is stage


def test_every_stage_can_be_reached_and_every_one_ends() -> None:
    reached = {STAGE_TABLE.first, *STAGE_TABLE.table.values()}
    assert reached == set(Stage)
    ends = {Stage.ENDED}
    while more := {stage for (stage, _), after in STAGE_TABLE.table.items() if after in ends} - ends:
        ends |= more
    assert ends == set(Stage)


def test_progress_of_another_use_of_the_slot_says_nothing() -> None:
    one = tracked()
    one.incarnation = 5
    one.note(Progress(3, FinishReason.STOP, 4))
    assert (one.generated, one.reason) == (0, FinishReason.NONE)


def test_progress_never_goes_back() -> None:
    one = tracked()
    one.note(Progress(3, FinishReason.NONE, 0))
    one.note(Progress(2, FinishReason.NONE, 0))
    assert one.generated == 3
    one.note(Progress(4, FinishReason.STOP, 0))
    one.note(Progress(4, FinishReason.NONE, 0))
    assert (one.generated, one.reason) == (4, FinishReason.STOP)


def test_progress_beyond_what_was_asked_is_not_believed() -> None:
    one = tracked()
    one.note(Progress(4_000_000_000, FinishReason.NONE, 0))
    assert one.generated == one.request.max_tokens


def test_finished_is_when_all_is_seen() -> None:
    one = tracked()
    assert one.urgent
    one.note(Progress(2, FinishReason.STOP, 0))
    assert one.unread == 2
    one.reading = True
    assert one.unread == 0
    assert not one.finished
    one.seen, one.reading = 2, False
    assert one.finished
    assert not one.urgent
