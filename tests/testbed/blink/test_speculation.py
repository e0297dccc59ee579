"""Speculative decoding as a model: more tokens a step, the same tokens, and the law that it claims."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.blink.parameters import BlinkParameters
from testbed.blink.speculation import Speculation
from testbed.events.schema import DeviceFaulted, GraphSelected, TokensPublished
from testbed.serving.chunk_times import riding_time
from testbed.serving.cost_model import CostModel, read_profile
from testbed.serving.engine import Lane
from testbed.serving.graph_cache import DECODE, PREFILL, Graph
from tests.testbed.blink.world import World, small

LANE = Lane(1, 0, 10, (1, 2), 1.0, 1.0, 0, True)


def drafting(draft_tokens: int = 3, acceptance: float = 0.7, **changes: Any) -> World:
    speculation = Speculation(draft_tokens=draft_tokens, acceptance=acceptance)
    return World(small(**{"slots": 64, "speculation": speculation, **changes}))


@pytest.mark.parametrize(("acceptance", "steps"), [(1.0, 5), (0.0, 20)])
def test_a_step_gives_a_token_and_every_draft_that_is_taken(acceptance: float, steps: int) -> None:
    world = drafting(acceptance=acceptance)
    world.submit("a", max_tokens=21)
    world.settle()
    assert len(world.tokens("a")) == 21
    assert sum(event.kind == "decode" for event in world.of(GraphSelected)) == steps


@pytest.mark.parametrize("acceptance", [0.3, 0.7, 0.9])
@pytest.mark.parametrize("drafts", [1, 4])
def test_tokens_a_step_follow_the_law(acceptance: float, drafts: int) -> None:
    speculation = Speculation(draft_tokens=drafts, acceptance=acceptance)
    lanes = [LANE._replace(seed=seed, place=place) for seed in range(100) for place in range(60)]
    mean = 1 + sum(map(speculation.taken, lanes)) / len(lanes)
    assert mean == pytest.approx((1 - acceptance ** (drafts + 1)) / (1 - acceptance), rel=0.03)


def test_a_step_costs_its_drafts_and_their_check() -> None:
    cost = CostModel(read_profile("llama-3-8b.toml"))
    speculation = Speculation(draft_tokens=4, draft_cost=0.05)
    graph, step = Graph(DECODE, 8, 1_024), cost.decode(8, 8_000)
    expected = riding_time(cost, step, 32, 0).duration + 4 * round(step.duration * 0.05)
    assert speculation.time(cost, graph, step).duration == expected
    assert speculation.time(cost, Graph(PREFILL, 1, 512), step) == step


def test_an_answer_that_ends_ends_there_whatever_was_drafted() -> None:
    world = drafting(acceptance=1.0, max_batch=2)
    plain = World(text="ab\n")
    world = World(world.parameters, text="ab\n")
    for each in (plain, world):
        each.submit("a", "xx", max_tokens=50, ignore_eos=False)
        each.settle()
        each.assert_nothing_is_held()
    assert world.tokens("a") == plain.tokens("a") == [97, 98, 10, plain.vocabulary.eos]


def test_counts_jump_and_never_pass_the_longest_answer() -> None:
    world = drafting(acceptance=1.0)
    world.submit("a", max_tokens=6)
    world.settle()
    assert [event.counts for event in world.of(TokensPublished)] == [(1,), (5,), (6,)]


@settings(max_examples=15, deadline=None)
@given(
    loads=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 25), st.floats(0, 20)), min_size=1, max_size=8),
    drafts=st.integers(1, 6),
    acceptance=st.floats(0, 1),
    chunk=st.sampled_from([("between", 0), ("between", 20), ("riding", 20)]),
    mode=st.sampled_from(["fire_and_forget", "tail"]),
)
def test_drafts_change_times_and_never_tokens(
    loads: list[tuple[int, int, float]], drafts: int, acceptance: float, chunk: tuple[str, int], mode: str
) -> None:
    shape = {"chunk_placement": chunk[0], "prefill_chunk_tokens": chunk[1], "launch_mode": mode, "max_batch": 3}
    answers = []
    for world in (World(small(**shape)), drafting(drafts, acceptance, **shape)):
        for index, (prompt, answer, pause_ms) in enumerate(loads):
            world.submit(f"r{index}", "p" * prompt, answer, seed=index, ignore_eos=index % 2 == 0)
            world.run(pause_ms)
        world.settle()
        world.assert_nothing_is_held()
        assert not world.of(DeviceFaulted)
        answers.append([world.tokens(f"r{index}") for index in range(len(loads))])
    assert answers[0] == answers[1]


@pytest.mark.parametrize(
    ("given_", "says"),
    [
        ({"speculation": {"draft_tokens": 0}}, "$.speculation.draft_tokens"),
        ({"speculation": {"acceptance": 1.5}}, "$.speculation.acceptance"),
        ({"speculation": {"drafts": 1}}, "unknown field `drafts`"),
        ({"slots": 128, "speculation": {}}, "is more than the extraction buffer's 128 words"),
    ],
)
def test_what_cannot_be_is_refused(given_: dict[str, Any], says: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=None) as caught:
        msgspec.convert(given_, BlinkParameters)
    assert says in str(caught.value)
