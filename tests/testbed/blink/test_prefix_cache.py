"""Prompts that begin alike: what is not computed again, what clients are told of it, and that answers stay the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.events.prefix_events import PrefixReused
from testbed.events.run_events import LineLogged
from testbed.events.schema import BatchChanged, GraphSelected
from testbed.serving.requests import Tokens
from tests.testbed.blink.world import World, small

COMMON = "You are a helpful assistant. " * 4  # 116 tokens of the byte vocabulary, 7 whole blocks of 16


def cached(**changes: Any) -> World:
    return World(small(prefix_cache=True, **changes))


def told(world: World, name: str) -> set[int]:
    return {m.cached_tokens for m in world.answers if isinstance(m, Tokens) and m.name == name}


def test_the_second_prompt_is_computed_from_where_it_differs() -> None:
    world = cached()
    for name in ("first", "second"):
        world.submit(name, COMMON + name, max_tokens=3)
        world.settle()
    assert [event.cached_tokens for event in world.of(PrefixReused)] == [0, 112]
    assert [event.graph for event in world.of(GraphSelected) if event.kind != "decode"] == [
        "prefill-b1-s128", "chunk-b1-s256-c128",
    ]  # fmt: skip
    assert told(world, "first") == {0}
    assert told(world, "second") == {112}
    world.assert_nothing_is_held()


def test_the_last_token_of_a_prompt_is_always_computed() -> None:
    world = cached()
    for name in ("a", "b"):
        world.submit(name, "x" * 64, max_tokens=2)
        world.settle()
    assert [event.cached_tokens for event in world.of(PrefixReused)] == [0, 48]


def test_what_is_found_costs_no_prefill() -> None:
    room = {"context_tokens": 4_096, "kv_blocks": 600, "input_arena_tokens": 16_384}
    world = cached(**room)
    times = []
    for name in ("a", "b"):
        begin = world.now
        world.submit(name, "x" * 3_000 + name, max_tokens=1)
        world.settle()
        times.append(world.now - begin)
    assert times[1] < times[0] / 4


def test_without_the_parameter_nothing_is_remembered_or_told() -> None:
    world = World()
    for name in ("a", "b"):
        world.submit(name, COMMON, max_tokens=2)
        world.settle()
    assert not world.of(PrefixReused)
    assert told(world, "b") == {0}


def test_blocks_that_somebody_holds_make_room_for_more_at_once() -> None:
    """8 blocks each, 7 of them shared: 16 blocks hold one and a half of them apart, and all four together."""
    running = {}
    for share in (False, True):
        world = World(small(prefix_cache=share, kv_blocks=16))
        world.submit("a", COMMON, max_tokens=12)
        world.run(9)
        for name in "bcd":
            world.submit(name, COMMON, max_tokens=12)
        world.settle()
        running[share] = max(event.running for event in world.of(BatchChanged))
        world.assert_nothing_is_held()
    assert running == {False: 2, True: 4}


def test_a_prompt_that_was_cancelled_in_its_prefill_is_not_remembered() -> None:
    world = cached(prefill_chunk_tokens=32)
    world.submit("a", COMMON, max_tokens=3)
    world.run(9)
    world.abandon("a")
    world.settle()
    world.submit("b", COMMON, max_tokens=3)
    world.settle()
    assert [event.cached_tokens for event in world.of(PrefixReused)] == [0, 0]
    world.assert_nothing_is_held()


def test_a_pool_too_small_for_its_memory_forgets_and_serves_on() -> None:
    world = cached(kv_blocks=10)
    for index in range(6):
        world.submit(f"r{index}", f"{index}" * 100, max_tokens=4)
        world.settle()
    assert world.of(PrefixReused)[-1].evicted_blocks > 0
    world.assert_nothing_is_held()


def test_a_damaged_prompt_is_refused_and_leaves_no_memory() -> None:
    world = cached()
    spoilt = world.layout.prompt(0)
    world.wire.mischief.spoil = lambda _now, verb: (
        b"\xff" * len(verb.data) if verb.remote.address - 0x1000 == spoilt else bytes(verb.data)
    )
    world.submit("a", COMMON, max_tokens=2)
    world.settle()
    assert world.refusal("a").reason == "internal"
    assert len(world.of(LineLogged)) == 1
    world.assert_nothing_is_held()
    assert world.scheduler._pool.idle == 0


@pytest.mark.parametrize("arena", [16, 32])
def test_an_answer_and_its_word_must_fit_the_arena(arena: int) -> None:
    world = cached(token_arena_tokens=arena)
    world.submit("a", "x", max_tokens=16)
    world.settle()
    if arena == 16:
        assert world.refusal("a").reason == "context_length_exceeded"
    else:
        assert len(world.tokens("a")) == 16


@settings(max_examples=20, deadline=None)
@given(
    loads=st.lists(
        st.tuples(st.integers(0, 3), st.integers(1, 40), st.integers(1, 20), st.floats(0, 20)), min_size=1, max_size=9
    ),
    shape=st.fixed_dictionaries(
        {
            "max_batch": st.integers(1, 4),
            "kv_blocks": st.integers(12, 40),
            "window": st.sampled_from([3, 120]),
            "prefill_chunk_tokens": st.sampled_from([0, 16, 50]),
        }
    ),
    leaves=st.sets(st.integers(0, 8)),
)
def test_the_cache_changes_times_and_never_tokens(
    loads: list[tuple[int, int, int, float]], shape: dict[str, int], leaves: set[int]
) -> None:
    answers = []
    for share in (False, True):
        world = World(small(prefix_cache=share, **shape))
        asked = [(COMMON[: 40 * front] + "p" * own, answer, pause_ms) for front, own, answer, pause_ms in loads]
        answers.append(world.carry(asked, leaves))
        assert not world.of(LineLogged)
    assert answers[0] == answers[1]
