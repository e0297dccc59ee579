"""The three ways of launching a step's graph: what each costs, by which rules, and that they change nothing else."""

from __future__ import annotations

from itertools import pairwise
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from testbed.blink.launches import LaunchMode
from testbed.events.schema import DeviceFaulted, GraphLaunched, TokensPublished, WindowRelaunched
from tests.testbed.blink.world import World, small

MODES: tuple[LaunchMode, ...] = get_args(LaunchMode)
SCAN = small().scan_cost
TAIL, HOST, FIRE = small().tail_launch_cost, small().host_launch_cost, small().fire_and_forget_cost


def one_answer(mode: LaunchMode, tokens: int = 8) -> World:
    world = World(small(launch_mode=mode))
    world.submit("a", "x" * 100, max_tokens=tokens)
    world.settle()
    return world


@pytest.mark.parametrize(
    ("mode", "besides"),
    [("fire_and_forget", FIRE + SCAN), ("tail", 2 * TAIL + SCAN), ("host", HOST + SCAN)],
)
def test_what_a_step_costs_besides_its_graph(mode: LaunchMode, besides: int) -> None:
    world = one_answer(mode)
    cost = world.device._engine.cost_model
    published = [t for t, _, event in world.events if isinstance(event, TokensPublished)]
    for place, (before, after) in enumerate(pairwise(published)):
        assert after - before == cost.decode(1, 101 + place).duration + besides


@pytest.mark.parametrize("mode", MODES)
def test_a_launch_says_how_it_was_made_and_what_it_cost(mode: LaunchMode) -> None:
    world = one_answer(mode)
    cost = {"fire_and_forget": FIRE, "tail": TAIL, "host": HOST}[mode]
    assert {(event.mode, event.cost) for event in world.of(GraphLaunched)} == {(mode, cost)}


@pytest.mark.parametrize("mode", ["tail", "host"])
def test_only_what_is_fired_and_forgotten_counts_in_a_window(mode: LaunchMode) -> None:
    world = one_answer(mode, tokens=150)
    assert len(world.tokens("a")) == 150
    assert {event.in_window for event in world.of(GraphLaunched)} == {0}
    assert not world.of(WindowRelaunched)
    assert not world.of(DeviceFaulted)


def test_a_chain_of_tail_launches_gives_the_device_back_between_two_steps() -> None:
    """Each step is an execution of its own: 8 graphs, and 8 self-relaunches behind them."""
    world = one_answer("tail")
    assert world.device._executions == 1 + 8


@settings(max_examples=25, deadline=None)
@given(
    loads=st.lists(st.tuples(st.integers(1, 60), st.integers(1, 25), st.floats(0, 30)), min_size=1, max_size=9),
    batch=st.integers(1, 4),
    pause=st.integers(1, 3),
    leaves=st.sets(st.integers(0, 8)),
)
def test_the_way_of_launching_changes_times_and_never_tokens(
    loads: list[tuple[int, int, float]], batch: int, pause: int, leaves: set[int]
) -> None:
    answers = []
    for mode in MODES:
        world = World(small(launch_mode=mode, max_batch=batch, prefills_per_pause=pause))
        answers.append(world.carry([("p" * prompt, answer, pause_ms) for prompt, answer, pause_ms in loads], leaves))
    assert answers[0] == answers[1] == answers[2]
