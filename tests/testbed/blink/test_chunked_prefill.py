"""Prompts in parts: the budget of a step, what a chunk costs, and that answers stay what they were."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.events.schema import GraphLaunched, GraphSelected, SlotClaimed, TokensPublished
from tests.testbed.blink.world import World, small

PLACEMENTS = ("between", "riding")


def chunked(placement: str = "between", tokens: int = 32, **changes: Any) -> World:
    return World(small(prefill_chunk_tokens=tokens, chunk_placement=placement, **changes))


def kinds(world: World) -> list[str]:
    return [event.kind for event in world.of(GraphLaunched)]


def test_a_long_prompt_alone_is_computed_in_chunks_of_the_budget() -> None:
    world = chunked()
    world.submit("a", "x" * 100, max_tokens=2)
    world.settle()
    graphs = [event.graph for event in world.of(GraphSelected)]
    assert graphs == ["chunk-b1-s256-c32"] * 4 + ["decode-b1-s128"]
    assert [event.tokens for event in world.of(GraphSelected)] == [32, 64, 96, 100, 101]
    assert len(world.tokens("a")) == 2


def test_a_short_prompt_has_its_whole_prefill() -> None:
    world = chunked()
    world.submit("a", "x" * 32, max_tokens=2)
    world.settle()
    assert kinds(world) == ["prefill", "decode"]


def test_chunks_of_one_prompt_cost_its_prefill_and_what_every_launch_pays() -> None:
    world = chunked(tokens=64)
    world.submit("a", "x" * 192, max_tokens=1)
    world.settle()
    cost = world.device._engine.cost_model
    moments = [t for t, _, event in world.events if isinstance(event, GraphLaunched)]
    end = next(t for t, _, event in world.events if isinstance(event, TokensPublished))
    whole = cost.prefill(192).duration + 2 * cost.prefill(0).duration
    assert end - moments[0] == whole + 3 * (world.parameters.fire_and_forget_cost + world.parameters.scan_cost)


def test_between_steps_a_running_batch_decodes_after_every_chunk() -> None:
    world = chunked()
    world.submit("a", "x", max_tokens=30)
    world.run(20)
    world.submit("b", "x" * 120, max_tokens=2)
    world.settle()
    launched = kinds(world)
    assert launched.count("chunk") == 4
    assert ("chunk", "chunk") not in pairwise(launched)


def test_riding_chunks_hold_up_nobody() -> None:
    world = chunked("riding")
    world.submit("a", "x", max_tokens=30)
    world.run(20)
    world.submit("b", "x" * 120, max_tokens=2)
    world.settle()
    launched = kinds(world)
    assert launched.count("mixed") == 4
    number = world.number("a")
    steps = [event.requests for event in world.of(GraphSelected)]
    assert sum(number in requests for requests in steps) == 30
    assert not [step for step in steps if number not in step and world.number("b") not in step]


def test_a_riding_chunk_costs_the_decode_step_and_what_the_chunk_adds() -> None:
    world = chunked("riding", tokens=64)
    world.submit("a", "x" * 10, max_tokens=30)
    world.run(30)
    world.submit("b", "x" * 128, max_tokens=2)
    world.settle()
    cost = world.device._engine.cost_model
    moment, event = next((t, e) for t, _, e in world.events if isinstance(e, GraphSelected) and e.kind == "mixed")
    published = next(t for t, _, e in world.events if isinstance(e, TokensPublished) and e.launch == event.launch)
    place = sum(1 for e in world.of(TokensPublished) if e.launch < event.launch)
    decode = cost.decode(1, 10 + place).duration
    added = cost.prefill(64).duration - cost.prefill(0).duration
    assert published - moment == decode + added + world.parameters.fire_and_forget_cost + world.parameters.scan_cost


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_the_longest_gap_between_two_tokens_is_shorter_than_with_whole_prompts(placement: str) -> None:
    def longest_gap(world: World) -> int:
        world.submit("a", "x", max_tokens=60)
        world.run(20)
        for index in range(3):
            world.submit(f"b{index}", "x" * 4_000, max_tokens=2)
        world.settle()
        mine = world.number("a")
        moments = [t for t, _, e in world.events if isinstance(e, TokensPublished) and mine in e.requests]
        return max(after - before for before, after in pairwise(moments))

    room = {"context_tokens": 8_192, "kv_blocks": 2_000, "input_arena_tokens": 32_768, "token_arena_tokens": 2_048}
    whole = longest_gap(World(small(**room)))
    cut = longest_gap(chunked(placement, tokens=512, **room))
    assert cut < whole / 4


@pytest.mark.parametrize("placement", PLACEMENTS)
def test_a_prompt_cancelled_between_its_chunks_gives_everything_back(placement: str) -> None:
    world = chunked(placement)
    world.submit("a", "x", max_tokens=40)
    world.run(20)
    world.submit("b", "x" * 200, max_tokens=5)
    while not any(event.request == 2 for event in world.of(SlotClaimed)):
        world.step()
    world.run(15)
    world.abandon("b")
    world.settle()
    assert 0 < sum(2 in event.requests for event in world.of(GraphSelected)) < 7
    assert len(world.tokens("a")) == 40
    world.assert_nothing_is_held()


@settings(max_examples=25, deadline=None)
@given(
    loads=st.lists(st.tuples(st.integers(1, 200), st.integers(1, 25), st.floats(0, 30)), min_size=1, max_size=8),
    shape=st.fixed_dictionaries({
        "max_batch": st.integers(1, 4), "prefills_per_pause": st.integers(1, 3),
        "window": st.sampled_from([2, 3, 5, 120]),
        "launch_mode": st.sampled_from(["fire_and_forget", "tail", "host"]),
    }),
    budget=st.integers(16, 256),
    placement=st.sampled_from(PLACEMENTS),
    leaves=st.sets(st.integers(0, 7)),
)  # fmt: skip
def test_chunks_change_times_and_never_tokens(
    loads: list[tuple[int, int, float]], shape: dict[str, Any], budget: int, placement: str, leaves: set[int]
) -> None:
    answers = []
    for changes in ({}, {"prefill_chunk_tokens": budget, "chunk_placement": placement}):
        world = World(small(**shape, **changes))
        answers.append(world.carry([("p" * prompt, answer, pause_ms) for prompt, answer, pause_ms in loads], leaves))
        for event in world.of(GraphSelected):
            assert event.kind in ("chunk", "mixed") or not changes or event.kind == "decode" or event.tokens <= budget
    assert answers[0] == answers[1]
