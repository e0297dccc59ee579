"""A scheduler that dies anywhere is replaced, and its clients see the streams that they would have seen."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from testbed.events.blink_events import (
    SchedulerRestarted,
    WatchdogFired,
)
from testbed.serving.requests import Tokens
from tests.testbed.blink.world import MortalMemory, World, small

REQUESTS = (("a", 40, 9), ("b", 7, 1), ("c", 30, 14), ("d", 3, 6), ("e", 55, 11))
"""Name, prompt and answer; the third and later ones arrive while the first are running."""


QUICK: dict[str, Any] = {
    "kv_blocks": 24, "window": 7, "heartbeat_interval": 500_000, "watchdog_patience": 4_000_000,
    "restart_patience": 8_000_000, "restart_cost": 1_000,
}  # fmt: skip
"""A watchdog that needs few polls to bite: these tests kill often."""


def serve(deaths: tuple[int, ...] = (), **changes: Any) -> World:
    """Five requests whose arrivals pause a running batch twice; the first is cancelled by nobody."""
    world = World(small(**{**QUICK, **changes}), deaths=deaths)
    for place, (name, prompt, answer) in enumerate(REQUESTS):
        if place in (2, 4):
            world.run(20)
        world.submit(name, "p" * prompt, answer, seed=place)
    world.settle()
    return world


@cache
def undisturbed() -> dict[str, list[int]]:
    world = serve()
    assert not world.of(WatchdogFired)
    return {name: world.tokens(name) for name, _, _ in REQUESTS}


@cache
def stores_of_a_life() -> int:
    """How often scheduler and device write while they serve `REQUESTS`."""
    probe = World(small(**QUICK), deaths=(1 << 40,))
    memory = probe.scheduler._ring.memory
    assert isinstance(memory, MortalMemory)
    for place, (name, prompt, answer) in enumerate(REQUESTS):
        if place in (2, 4):
            probe.run(20)
        probe.submit(name, "p" * prompt, answer, seed=place)
    probe.settle()
    return (1 << 40) - memory.left


def assert_as_undisturbed(world: World) -> None:
    for name, _, _ in REQUESTS:
        assert world.tokens(name) == undisturbed()[name], name
        messages = [m for m in world.answers if getattr(m, "name", None) == name]
        assert isinstance(messages[-1], Tokens)
        assert [m for m in messages if isinstance(m, Tokens) and m.reason] == [messages[-1]]
    world.assert_nothing_is_held()


@pytest.mark.parametrize("kv", ["recomputed", "kept"])
def test_killed_before_any_store_the_streams_are_those_without_a_kill(kv: str, soak: bool) -> None:
    total = stores_of_a_life()
    assert total > 100
    lived = set()
    for store in range(0, total, 1 if soak else 5):
        world = serve((store,), restored_kv=kv)
        assert_as_undisturbed(world)
        lived.add(len(world.of(SchedulerRestarted)))
    assert 1 in lived


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    deaths=st.lists(st.integers(0, 80), min_size=1, max_size=5),
    kv=st.sampled_from(["recomputed", "kept"]),
    window=st.sampled_from([2, 3, 7, 120]),
    mode=st.sampled_from(["fire_and_forget", "tail", "host"]),
)
def test_killed_again_and_again_also_while_restoring(deaths: list[int], kv: str, window: int, mode: str) -> None:
    world = serve(tuple(deaths), restored_kv=kv, window=window, launch_mode=mode)
    assert_as_undisturbed(world)
