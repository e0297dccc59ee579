from __future__ import annotations

import pytest

from testbed.machine import MachineError
from testbed.serving.batch import Batch, Generation
from testbed.serving.requests import Sampling


def generation(request: int, prompt: int = 10) -> Generation:
    return Generation(request, prompt, 5, Sampling(0.5, 0.9, 77, False), (1, 2), (0,))


def test_a_token_moves_the_tail_and_the_context() -> None:
    one = generation(1)
    one.push(9)
    assert one.tail == (2, 9)
    assert one.context == 11
    assert one.lane() == (1, 1, 11, (2, 9), 0.5, 0.9, 77, False, 0, True)


def test_a_batch_has_places_and_a_longest() -> None:
    batch: Batch[Generation] = Batch(2)
    assert batch.longest == 0
    batch.join(generation(1))
    batch.join(generation(2, prompt=30))
    assert (len(batch), batch.places, batch.longest) == (2, 0, 30)
    with pytest.raises(MachineError):
        batch.join(generation(3))
    batch.keep(batch.members[1:])
    assert [member.request for member in batch.members] == [2]


def test_a_prompt_in_parts_draws_behind_its_last_one_only() -> None:
    one = generation(1)
    whole = one.prompt_lane(10)
    assert (whole.context, whole.fresh, whole.draws) == (10, 0, True)
    first = one.prompt_lane(6)
    assert (first.context, first.fresh, first.draws) == (6, 6, False)
    one.computed = 6
    last = one.prompt_lane(4)
    assert (last.context, last.fresh, last.draws) == (10, 4, True)
