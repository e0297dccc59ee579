"""Clients that go away, and answers that are whole before their limit: nothing is held afterwards."""

from __future__ import annotations

import pytest

from testbed.blink.slots import SlotState, state_of
from testbed.events.schema import (
    GraphSelected,
    PromptWritten,
    RequestAbandoned,
    RequestServed,
    TokensRead,
)
from testbed.machine import (
    CompletionStatus,
    Read,
)
from tests.testbed.blink.world import World, small

GONE = CompletionStatus.RETRY_EXCEEDED


@pytest.mark.parametrize("steps", range(0, 160, 3))
def test_a_client_may_go_away_at_any_moment(steps: int) -> None:
    world = World()
    world.submit("goes", max_tokens=6)
    world.submit("stays", max_tokens=6)
    for _ in range(steps):
        world.step()
    before = len(world.tokens("goes"))
    ended = world.ended("goes")
    world.abandon("goes")
    world.settle()
    assert len(world.tokens("goes")) == before  # nothing is delivered to nobody
    assert len(world.tokens("stays")) == 6
    assert len(world.of(RequestAbandoned)) == (not ended)
    assert len(world.of(RequestServed)) == 1 + ended
    world.assert_nothing_is_held()


@pytest.mark.parametrize("steps", range(0, 160, 3))
def test_a_client_with_its_whole_answer_is_served_at_any_moment(steps: int) -> None:
    """A stop string has matched: the slot is freed as for one that went away, but nothing has failed."""
    world = World()
    world.submit("stops", max_tokens=6)
    world.submit("stays", max_tokens=6)
    for _ in range(steps):
        world.step()
    before = len(world.tokens("stops"))
    ended = world.ended("stops")
    world.finish("stops")
    world.finish("stops")
    world.settle()
    assert len(world.tokens("stops")) == before
    assert len(world.tokens("stays")) == 6
    assert not world.of(RequestAbandoned)
    served = {event.request: (event.tokens, event.reason) for event in world.of(RequestServed)}
    assert served == {1: (6, "length") if ended else (before, "stop"), 2: (6, "length")}
    assert len(world.of(RequestServed)) == 2
    world.assert_nothing_is_held()


def test_a_request_that_is_finished_ends_long_before_its_limit() -> None:
    world = World()
    world.submit("a", max_tokens=200)
    while len(world.tokens("a")) < 3:
        world.step()
    world.finish("a")
    world.settle()
    assert world.now < 100_000_000
    (served,) = world.of(RequestServed)
    assert (served.tokens, served.reason) == (len(world.tokens("a")), "stop")


def test_a_request_that_was_refused_is_not_served_as_well() -> None:
    """The end is known, but the tokens before it cannot be read."""
    world = World(small(poll_interval_min=20_000_000, poll_interval_max=20_000_000))
    metadata = world.layout.metadata_size
    world.wire.mischief.fail = lambda _, verb: (
        GONE if isinstance(verb, Read) and verb.length not in (metadata, metadata // 2) else None
    )
    world.submit("a", max_tokens=2)
    world.settle()
    assert world.refusal("a").reason == "unavailable"
    assert not world.of(RequestServed)
    world.assert_nothing_is_held()


def test_a_prompt_nobody_has_claimed_is_withdrawn() -> None:
    world = World(small(max_batch=1))
    world.submit("a", max_tokens=50)
    world.submit("b", max_tokens=50)
    world.run(30)
    assert state_of(world.memory.load(world.layout.state(1))) is SlotState.PREFILL_PENDING
    world.abandon("b")
    world.run(0.01)
    assert state_of(world.memory.load(world.layout.state(1))) is SlotState.EMPTY
    world.settle()
    assert not any(2 in event.requests for event in world.of(GraphSelected))


def test_a_client_that_goes_while_its_slot_is_submitted_is_not_served() -> None:
    world = World()
    world.submit("a", max_tokens=200)
    while not world.of(PromptWritten):
        world.step()
    world.abandon("a")
    world.settle()
    assert not world.of(TokensRead)
    assert world.now < 100_000_000
    world.assert_nothing_is_held()


def test_a_prompts_extent_is_held_to_the_end_since_a_restarted_scheduler_reads_it_again() -> None:
    world = World()
    world.submit("a", "x" * 60, max_tokens=100)
    world.run(30)
    assert world.front_end.serving == 1
    assert world.front_end.holdings.prompts.held == 64
    assert world.front_end.holdings.answers.held == 112
    world.settle()
    world.assert_nothing_is_held()


def test_abandoning_what_is_unknown_or_over_is_nothing() -> None:
    world = World()
    world.abandon("nobody")
    world.submit("a")
    world.settle()
    world.abandon("a")
    world.settle()
    assert not world.of(RequestAbandoned)


