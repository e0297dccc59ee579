from __future__ import annotations

import re

import msgspec
import pytest

from testbed.workload.arrivals import Burst, Constant, Poisson
from testbed.workload.lengths import Fixed, ShareGpt
from testbed.workload.prompts import PromptSource
from testbed.workload.schedule import SamplingRule, SharedPrefixes, WarmUp, Workload, read_workload, schedule


def source() -> PromptSource:
    return PromptSource("one two three four five six seven eight nine ten " * 7, lambda text: re.findall(r"\w+", text))


LOADS = [
    Workload(requests=12, arrivals=Poisson(2.0)),
    Workload(requests=12, arrivals=Poisson(200.0, burstiness=0.3)),
    Workload(requests=12, arrivals=Constant(5.0)),
    Workload(requests=12, arrivals=Burst(4)),
]


def test_the_same_seed_gives_the_same_prompts_at_all_rates() -> None:
    """Known fault 17: another rate must not ask other questions."""
    told = [[(r.name, r.prompt, r.max_tokens, r.sampling) for r in schedule(load, 7, source())] for load in LOADS]
    assert all(requests == told[0] for requests in told)
    assert len({tuple(r.scheduled for r in schedule(load, 7, source())) for load in LOADS}) == len(LOADS)


def test_more_requests_keep_the_first_ones() -> None:
    few, many = (schedule(Workload(requests=count), 7, source()) for count in (5, 15))
    assert [(r.prompt, r.max_tokens) for r in few] == [(r.prompt, r.max_tokens) for r in many[:5]]


def test_another_seed_gives_another_schedule() -> None:
    assert schedule(LOADS[0], 7, source()) == schedule(LOADS[0], 7, source())
    assert schedule(LOADS[0], 7, source()) != schedule(LOADS[0], 8, source())


def test_names_are_unique_and_times_in_order() -> None:
    requests = schedule(Workload(requests=40, arrivals=Poisson(9.0)), 7, source())
    assert len({request.name for request in requests}) == 40
    assert [r.scheduled for r in requests] == sorted(r.scheduled for r in requests)
    assert all(request.prompt_tokens == len(request.prompt.split()) for request in requests)


def test_a_workload_survives_its_plan() -> None:
    load = Workload(
        requests=3,
        arrivals=Burst(2, 0.25),
        lengths=Fixed(8, 4),
        sampling=SamplingRule(temperature=0.0, top_p=0.9),
        warm_up=WarmUp(requests=1),
    )
    assert read_workload(msgspec.to_builtins(load)) == load
    assert read_workload({}) == Workload(arrivals=Poisson(1.0), lengths=ShareGpt())


@pytest.mark.parametrize("told", [{"requests": -1}, {"request": 1}, {"arrivals": {"kind": "x"}}, {"requests": "3"}])
def test_a_wrong_workload_is_refused(told: dict[str, object]) -> None:
    with pytest.raises(msgspec.ValidationError):
        read_workload(told)


def test_no_requests_is_a_workload_too() -> None:
    assert schedule(Workload(requests=0), 1, source()) == []


def test_prompts_with_shared_prefixes_begin_alike_and_go_on_as_they_would_have() -> None:
    shared = SharedPrefixes(texts=3, tokens=9, share=0.75)
    plain, behind = (schedule(Workload(requests=60, shared_prefixes=each), 7, source()) for each in (None, shared))
    fronts = set()
    for one, other in zip(plain, behind, strict=True):
        assert other.prompt.endswith(one.prompt)
        assert (one.max_tokens, one.sampling, one.scheduled) == (other.max_tokens, other.sampling, other.scheduled)
        if other.prompt != one.prompt:
            front, between, _ = other.prompt.rpartition("\n\n")
            assert between
            assert len(front.split()) == 9
            assert other.prompt_tokens == one.prompt_tokens + 9
            fronts.add(front)
    assert 1 < len(fronts) <= 3
    assert 30 <= sum(one.prompt != other.prompt for one, other in zip(plain, behind, strict=True)) <= 56
