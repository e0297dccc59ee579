"""Every stage of a turn at a leader × every move: what the tables have, and nothing else."""

from __future__ import annotations

import pytest

from testbed.dualpath.decode_turn import DECODE_TABLE, DecodeMove, DecodeStage, DecodeTurn
from testbed.dualpath.engine_messages import DecodeJob
from testbed.dualpath.prefill_turn import PREFILL_TABLE, PrefillMove, PrefillStage, PrefillTurn
from testbed.dualpath.turn_letters import Assign
from testbed.serving.transitions import IllegalMove
from tests.testbed.dualpath.world import turn

ASSIGN = Assign(turn(), "pe0", 0, "de0", 0, 2, 5)
JOB = DecodeJob("a0000.t000", (), (), 100, 5, 5)


@pytest.mark.parametrize("stage", PrefillStage)
@pytest.mark.parametrize("move", PrefillMove)
def test_a_turn_at_its_prefill_leader_moves_as_the_table_says(stage: PrefillStage, move: PrefillMove) -> None:
    one = PrefillTurn(ASSIGN, ())
    one.stage = stage
    if PREFILL_TABLE.allows(stage, move):
        one.move(move)
        assert one.stage is PREFILL_TABLE.table[stage, move]
    else:
        with pytest.raises(IllegalMove):
            one.move(move)
        assert one.stage is stage
    assert one.is_breaking == (one.stage is PrefillStage.BREAKING)


@pytest.mark.parametrize("stage", DecodeStage)
@pytest.mark.parametrize("move", DecodeMove)
def test_a_turn_at_its_decode_leader_moves_as_the_table_says(stage: DecodeStage, move: DecodeMove) -> None:
    one = DecodeTurn(ASSIGN, JOB, 7)
    one.stage = stage
    if DECODE_TABLE.allows(stage, move):
        one.move(move)
        assert one.stage is DECODE_TABLE.table[stage, move]
    else:
        with pytest.raises(IllegalMove):
            one.move(move)
        assert one.stage is stage
    assert one.is_breaking == (one.stage is DecodeStage.BREAKING)


def test_a_turn_begins_with_what_it_was_assigned() -> None:
    assert not PrefillTurn(ASSIGN, ()).far_ready, "three of its five hits are read on the decode side"
    assert DecodeTurn(ASSIGN, JOB, 7).far_hits == 3


@pytest.mark.parametrize("stage", [stage for stage in PrefillStage if stage is not PrefillStage.BREAKING])
def test_a_turn_can_fail_in_every_stage(stage: PrefillStage) -> None:
    assert PREFILL_TABLE.after(stage, PrefillMove.BREAK) is PrefillStage.BREAKING
