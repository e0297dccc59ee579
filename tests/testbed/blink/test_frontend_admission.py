"""What the front end takes and what it refuses, with reasons; a full ring and full arenas."""

from __future__ import annotations

from typing import Any

import pytest

from testbed.blink.ring import RingView, tokens_from
from testbed.events.schema import (
    PromptWritten,
    RequestRefused,
    RequestTokenised,
    SlotFound,
)
from testbed.serving.requests import Tokens
from tests.testbed.blink.world import World, small


@pytest.mark.parametrize(
    ("how", "reason", "detail"),
    [
        ({"max_tokens": 0}, "invalid_request", "max_tokens must be at least 1, not 0"),
        ({"max_tokens": -3}, "invalid_request", "max_tokens"),
        ({"temperature": -0.1}, "invalid_request", "temperature must be 0 to 100, not -0.1"),
        ({"temperature": float("nan")}, "invalid_request", "temperature"),
        ({"temperature": float("inf")}, "invalid_request", "temperature"),
        ({"top_p": 0.0}, "invalid_request", "top_p must be above 0 and at most 1, not 0.0"),
        ({"top_p": 1.1}, "invalid_request", "top_p"),
        ({"top_p": float("nan")}, "invalid_request", "top_p"),
        ({"top_p": 1e-300}, "invalid_request", "top_p must be at least 1e-45 (it is carried as a 32-bit float)"),
        ({"prompt_ids": (1, 257)}, "invalid_request", "there is no token 257"),
        ({"prompt_ids": (1, -1)}, "invalid_request", "there is no token -1"),
        ({"prompt_ids": (1, 1 << 70)}, "invalid_request", f"there is no token {1 << 70}"),
        ({"prompt_ids": (1,) * 257}, "context_length_exceeded", "257 tokens of prompt"),
        ({"prompt_ids": (1,) * 250, "max_tokens": 7}, "context_length_exceeded", "250 tokens of prompt and 7 tokens"),
        ({"prompt": ""}, "invalid_request", "the prompt is empty"),
        ({"prompt": "x" * 300}, "context_length_exceeded", "300 characters"),
        ({"prompt": "x" * 250, "max_tokens": 7}, "context_length_exceeded", "250 tokens of prompt and 7 tokens"),
        ({"prompt": "x", "max_tokens": 256}, "context_length_exceeded", "256 tokens"),
    ],
)
def test_what_cannot_be_served_is_refused_with_a_reason(how: dict[str, Any], reason: str, detail: str) -> None:
    world = World()
    world.submit("bad", **how)
    world.submit("good")
    world.settle()
    refused = world.refusal("bad")
    assert refused.reason == reason
    assert detail in refused.detail
    assert [event.name for event in world.of(RequestRefused)] == ["bad"]
    assert len(world.tokens("good")) == 4
    world.assert_nothing_is_held()


def test_prompt_and_answer_may_fill_the_context_exactly() -> None:
    world = World()
    world.submit("full", "x" * 250, max_tokens=6)
    world.settle()
    assert len(world.tokens("full")) == 6


def test_the_smallest_top_p_and_temperature_are_served() -> None:
    world = World()
    world.submit("a", top_p=1e-45, temperature=1.0)
    world.submit("b", top_p=1.0, temperature=1e-300)
    world.settle()
    assert len(world.tokens("a")) == len(world.tokens("b")) == 4


def test_a_prompt_of_token_ids_reaches_the_gpu_as_it_is() -> None:
    """Whatever its text would be: here the ids are not UTF-8, and the end of sequence has no text at all."""
    ids = (255, 0, 256, 128, 72)
    world = World(small(tokenise_per_token=1_000_000))
    world.submit("a", "not these words", prompt_ids=ids)
    while not world.of(PromptWritten):
        world.step()
    (found,) = world.of(SlotFound)
    written = RingView(world.memory, world.layout).descriptor(found.slot, world.of(PromptWritten)[0].incarnation)
    assert tuple(tokens_from(RingView(world.memory, world.layout).prompt(written))) == ids
    assert world.now < 1_000_000  # what is tokens already takes no tokeniser's time
    world.settle()
    assert {message.prompt_tokens for message in world.answers if isinstance(message, Tokens)} == {5}
    assert [event.tokens for event in world.of(RequestTokenised)] == [5]


def test_an_answer_larger_than_its_arena_is_refused() -> None:
    world = World(small(token_arena_tokens=64))
    world.submit("bad", max_tokens=65)
    world.submit("good", max_tokens=64)
    world.settle()
    assert world.refusal("bad").reason == "context_length_exceeded"
    assert len(world.tokens("good")) == 64


def test_a_name_that_is_being_served_cannot_be_used_again_until_it_is_done() -> None:
    world = World()
    world.submit("a", max_tokens=3)
    world.submit("a", max_tokens=3)
    world.run(100)
    assert world.refusal("a").reason == "invalid_request"
    assert len(world.tokens("a")) == 3
    world.submit("a", max_tokens=2)
    world.run(100)
    assert len(world.tokens("a")) == 5


def test_a_full_ring_refuses_and_a_freed_slot_is_used_again() -> None:
    world = World()
    for index in range(20):
        world.submit(f"r{index}", max_tokens=3)
    world.settle()
    full = [event.name for event in world.of(RequestRefused)]
    assert full == [f"r{index}" for index in range(16, 20)]
    assert {world.refusal(name).reason for name in full} == {"ring_full"}
    world.submit("later", max_tokens=3)
    world.settle()
    assert len(world.tokens("later")) == 3
    world.assert_nothing_is_held()


def test_full_arenas_refuse_like_a_full_ring_and_nothing_leaks() -> None:
    world = World(small(input_arena_tokens=64, token_arena_tokens=64))
    for index in range(6):
        world.submit(f"r{index}", "x" * 20, max_tokens=20)
    world.settle()
    assert [world.refusal(f"r{index}").reason for index in range(2, 6)] == ["ring_full"] * 4
    world.assert_nothing_is_held()


