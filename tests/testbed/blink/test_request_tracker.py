from __future__ import annotations

from itertools import product

import pytest

from testbed.blink.request_tracker import STAGE_TABLE, Stage, StageMove, TrackedRequest
from testbed.blink.ring import IGNORE_EOS, FinishReason, Progress
from testbed.events.schema import RequestAbandoned, RequestServed
from testbed.serving.requests import Request, Sampling
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


@pytest.mark.parametrize("reason", FinishReason)
@pytest.mark.parametrize("seen", [2, 3])
@pytest.mark.parametrize(("abandoned", "satisfied"), [(False, False), (True, False), (True, True)])
def test_the_log_says_one_thing_at_the_end(reason: FinishReason, seen: int, abandoned: bool, satisfied: bool) -> None:
    one = tracked()
    one.note(Progress(3, reason, 0))
    one.seen, one.abandoned, one.satisfied = seen, abandoned, satisfied
    served = seen == 3 and reason in (FinishReason.STOP, FinishReason.LENGTH)
    if satisfied:
        assert one.epitaph() == RequestServed(1, seen, "stop")
    elif abandoned:
        assert one.epitaph() == RequestAbandoned(1)
    else:
        assert one.epitaph() == (RequestServed(1, 3, reason.name.lower()) if served else None)


@pytest.mark.parametrize("ignore_eos", [False, True])
def test_the_descriptor_has_the_flag_for_the_end_of_sequence(ignore_eos: bool) -> None:
    one = TrackedRequest(Request("a", "", 5, Sampling(ignore_eos=ignore_eos)), 1, [1], ByteVocabulary())
    one.input_start = one.answer_start = one.slot = 0
    assert bool(one.descriptor(0).flags & IGNORE_EOS) is ignore_eos
